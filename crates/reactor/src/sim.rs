//! A simulated reactor: virtual peers, short reads and writes, resets, stalls and a seed.

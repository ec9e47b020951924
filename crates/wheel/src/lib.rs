//! The slab of records and the intrusive timing wheel shared by hub and swarm.

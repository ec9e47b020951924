//! The demonstration: a server and a crowd on one machine, watched from outside.

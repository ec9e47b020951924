//! The behaviour of the real drivers, a file for each. They are one program: a second one would compile
//! the generic code of both drivers again.

mod adopting;
mod churn;
mod closing;
mod connecting;
mod echo;
mod limits;
mod listeners;
mod locked_memory;
mod overflow;
mod pausing;
mod peers;
mod probe;
mod sending;
mod support;
mod tables;
mod transferring;
mod waiting;

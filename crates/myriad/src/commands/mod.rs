//! One file per command: its arguments, and `run`, which turns them into an exit code.

pub(crate) mod arena;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod serve;
pub(crate) mod swarm;
pub(crate) mod token;

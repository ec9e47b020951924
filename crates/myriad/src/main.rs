//! The command line of Myriad: arguments, config files, exit codes. No logic.

fn main() {}

//! `myriad config`: the file with all defaults, the check of a file, and one made of Centrifugo's.

use crate::commands::import;
use crate::commands::serve::Places;
use crate::{BAD_ARGUMENTS, say};
use clap::{Args, Subcommand};
use myriad_server::{Flags, Machine};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows and checks the configuration of `myriad serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Prints a config file with every option, its default, its unit and what it does
    Default,
    /// Names every mistake in a config file, and what `serve` would warn of
    #[command(after_help = "Exit codes: 0 the file can be used, 104 it cannot.")]
    Check(Check),
    /// Makes a config file of a configuration of Centrifugo, and says what is different
    Import(import::Arguments),
}

#[derive(Args, Clone, Debug)]
struct Check {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Also check variables of the environment, as `serve` would read them
    #[arg(long)]
    env: bool,
}

/// Prints or checks.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Default => {
            // Whoever closes the pipe has read enough.
            let _ = write!(std::io::stdout(), "{}", myriad_server::default_file());
            ExitCode::SUCCESS
        }
        Command::Check(check) => self::check(check),
        Command::Import(arguments) => import::run(&arguments),
    }
}

fn check(check: Check) -> ExitCode {
    let name = check.file.display().to_string();
    let mut sources = Places::of_file(check.file).sources(Flags::default());
    if !check.env {
        sources.variables.clear();
    }
    match sources.resolve(&Machine::here()) {
        Ok(config) => {
            let near_ends = config.certificates_near_end();
            for remark in config.remarks.iter().chain(&near_ends) {
                say(format_args!("warning: {remark}"));
            }
            let _ = writeln!(std::io::stdout(), "{name}: no mistakes");
            let _ = writeln!(std::io::stdout(), "memory: {}", config.memory);
            if let Some(certificates) = config.certificates() {
                let _ = writeln!(std::io::stdout(), "certificates: {certificates}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            for mistake in error.each() {
                say(format_args!("error: {mistake}"));
            }
            ExitCode::from(BAD_ARGUMENTS)
        }
    }
}

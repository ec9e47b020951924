//! `myriad serve`: flags over a config file in, exit code out.

use crate::{BAD_ARGUMENTS, say};
use clap::{Args, ValueEnum};
use myriad_server::{ConfigError, LogLevel, Machine, Options, ServerError, Sources};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// Stands behind the flag and the file.
const LOG_VARIABLE: &str = "MYRIAD_LOG";

/// Holds client connections and delivers publications to them.
#[derive(Args, Clone, Debug)]
#[command(
    // A later flag stands over an earlier one, so that scripts can append to a line.
    args_override_self = true,
    after_help = "Every option can also stand in the config file, under the same name: max-connections = \"50k\".\n\
                  Exit codes: 0 stopped by a signal after draining, 1 failed, 104 bad arguments or config."
)]
pub(crate) struct Arguments {
    /// A TOML file with options; flags override it [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

/// Serves until a signal ends it.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error}"));
            ExitCode::from(if error.is_configuration() {
                BAD_ARGUMENTS
            } else {
                1
            })
        }
    }
}

fn serve(arguments: Arguments) -> Result<(), ServerError> {
    let sources = Sources {
        flags: arguments.options,
        file: arguments.config,
    };
    let options = sources.read()?;
    log_to_stderr(level(options.log)?);
    let config = options.resolve(&Machine::here())?;
    myriad_server::run(config, sources)
}

fn level(written: Option<LogLevel>) -> Result<LogLevel, ConfigError> {
    let variable = std::env::var_os(LOG_VARIABLE).filter(|value| !value.is_empty());
    match (written, variable) {
        (Some(level), _) => Ok(level),
        (None, None) => Ok(LogLevel::default()),
        (None, Some(variable)) => {
            let variable = variable.to_string_lossy();
            LogLevel::from_str(&variable, true).map_err(|_| ConfigError::Value {
                field: LOG_VARIABLE.into(),
                value: variable.into_owned(),
                advice: "choose error, warn, info, debug or trace".into(),
            })
        }
    }
}

fn log_to_stderr(level: LogLevel) {
    let filter = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_target(false)
        // Otherwise a log that nobody reads any more ends the thread that logs: the complaint about it panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

//! `myriad serve`: flags over a config file in, exit code out.

use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use myriad_server::{Flags, LogFilter, LogFormat, LogLevel, Machine, ServerError, SetLog, Sources};
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, reload};

/// Holds client connections and delivers publications to them.
#[derive(Args, Clone, Debug)]
// A later flag stands over an earlier one, so that scripts can append to a line.
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    places: Places,

    #[command(flatten)]
    flags: Flags,
}

/// Where options are written, besides flags.
#[derive(Args, Clone, Debug)]
pub(crate) struct Places {
    /// A TOML file with options [default: that of the variable MYRIAD_CONFIG, or none]
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<PathBuf>,

    /// Also read variables that begin with CENTRIFUGO_, below those that begin with MYRIAD_
    #[arg(long, help_heading = "Configuration")]
    centrifugo_env: bool,
}

impl Places {
    /// This file alone.
    pub(crate) fn of_file(path: PathBuf) -> Self {
        Self {
            config: Some(path),
            centrifugo_env: false,
        }
    }

    /// All sources of options.
    pub(crate) fn sources(self, flags: Flags) -> Sources {
        let variables: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let named = variables
            .iter()
            .find(|(name, value)| name == FILE_VARIABLE && !value.is_empty());
        Sources {
            flags: flags.options,
            flags_given: flags.given,
            file: self.config.or_else(|| named.map(|(_, path)| path.into())),
            variables,
            centrifugo: self.centrifugo_env,
        }
    }
}

/// Names the config file where no flag does.
const FILE_VARIABLE: &str = "MYRIAD_CONFIG";

/// Serves until a signal ends it.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let sources = arguments.places.sources(arguments.flags);
    let format = sources.log_format();
    match serve(sources, format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            explain(&error, format);
            ExitCode::from(if error.is_configuration() {
                BAD_ARGUMENTS
            } else {
                1
            })
        }
    }
}

/// A line for each mistake: where the log is JSON, one of the log.
fn explain(error: &ServerError, format: LogFormat) {
    let tell = |error: &dyn Display| match format {
        LogFormat::Text => say(format_args!("error: {error}")),
        LogFormat::Json => tracing::error!("{error}"),
    };
    match error {
        ServerError::Config(error) => error.each().iter().for_each(|mistake| tell(mistake)),
        error => tell(error),
    }
}

fn serve(sources: Sources, format: LogFormat) -> Result<(), ServerError> {
    let options = sources.read();
    let filter = options
        .as_ref()
        .ok()
        .and_then(|options| options.log.clone());
    let log = log_to_stderr(&filter.unwrap_or_default(), format);
    // It names more mistakes than the reading does.
    let mut config = sources.resolve(&Machine::here())?;
    config.commit = crate::COMMIT;
    myriad_server::run(config, sources, log)
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn targets(filter: &LogFilter) -> Targets {
    let parts = filter.parts.iter();
    Targets::new()
        // Of NATS we say ourselves what an operator should know.
        .with_target("async_nats", library_level(level(filter.level)))
        .with_default(level(filter.level))
        .with_targets(parts.map(|(target, of)| (target.clone(), level(*of))))
}

/// What a library may say: nothing about its everyday work, unless everybody tells everything.
fn library_level(of_server: LevelFilter) -> LevelFilter {
    if of_server == LevelFilter::INFO {
        LevelFilter::WARN
    } else {
        of_server
    }
}

/// Lines for people. Those for whoever looks for a fault name their module, so that `log` can ask for it alone.
struct Lines {
    plain: Format,
    of_modules: Format,
}

impl Lines {
    fn new() -> Self {
        Self {
            plain: Format::default().with_target(false),
            of_modules: Format::default(),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let format = if *event.metadata().level() >= Level::DEBUG {
            &self.of_modules
        } else {
            &self.plain
        };
        format.format_event(context, writer, event)
    }
}

/// Starts the log, and tells how it gets another filter.
fn log_to_stderr(filter: &LogFilter, format: LogFormat) -> SetLog {
    let (targets, handle) = reload::Layer::new(self::targets(filter));
    let lines = fmt::layer()
        // Otherwise a log that nobody reads any more ends the thread that logs: the complaint about it panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    match format {
        LogFormat::Text => registry.with(lines.event_format(Lines::new())).init(),
        LogFormat::Json => registry
            .with(lines.json().flatten_event(true).with_ansi(false))
            .init(),
    }
    SetLog::new(move |filter| {
        // It fails only where the log has gone.
        let _ = handle.reload(self::targets(filter));
    })
}

//! Values of options that have names of their own, or a form of their own.

use clap::ValueEnum;
use myriad_swarm::{Ca, Driver, LiveStyle, read_tokens};
use std::path::Path;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum DriverName {
    /// io_uring where the kernel allows it, epoll otherwise
    Auto,
    /// io_uring; an error where it does not work
    #[value(name = "io_uring")]
    IoUring,
    /// epoll
    Epoll,
}

impl DriverName {
    /// None: whatever works.
    pub(super) fn chosen(self) -> Option<Driver> {
        match self {
            Self::Auto => None,
            Self::IoUring => Some(Driver::IoUring),
            Self::Epoll => Some(Driver::Epoll),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Body {
    /// {"channel": ..., "data": ...}
    Api,
    /// The payload itself
    Plain,
    /// The payload itself, appended to a stream of the Durable Streams protocol; {channel} in the URL is the channel's name
    Stream,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Payload {
    /// Dots
    Dots,
    /// JSON records, which compress as such data does
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Live {
    /// A dashboard on a terminal, plain lines elsewhere
    Auto,
    /// A line that is rewritten on a terminal, plain lines elsewhere
    Line,
    /// A line a second on standard error
    Plain,
    /// A JSON object per line on standard output
    Json,
    /// Nothing until the report
    Off,
}

impl From<Live> for LiveStyle {
    fn from(name: Live) -> Self {
        match name {
            Live::Auto => Self::Automatic,
            Live::Line => Self::Line,
            Live::Plain => Self::Plain,
            Live::Json => Self::Json,
            Live::Off => Self::Off,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum CloseName {
    /// With RST: nothing lingers on either side
    Reset,
    /// With a close frame and FIN
    Orderly,
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| "a header has the form 'Name: value'".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// What a file of tokens has.
#[derive(Clone, Debug)]
pub(super) struct Tokens(pub(super) Vec<String>);

/// What clients show: one token for all, or those of a file.
pub(super) fn shown(token: Option<String>, tokens: Option<Tokens>) -> Vec<String> {
    tokens.map_or_else(|| token.into_iter().collect(), |tokens| tokens.0)
}

pub(super) fn ca(path: &str) -> Result<Ca, String> {
    Ca::read(Path::new(path)).map_err(|error| error.to_string())
}

pub(super) fn tokens(path: &str) -> Result<Tokens, String> {
    let tokens = read_tokens(Path::new(path));
    tokens.map(Tokens).map_err(|error| error.to_string())
}

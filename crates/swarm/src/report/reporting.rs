//! Where a run is shown beside its table, and what of the server is watched.

use crate::config::Endpoint;
use crate::report::text;
use myriad_report::Unit;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a run is shown beside its table, and what of the server is watched.
#[derive(Clone, Debug, Default)]
pub struct Reporting {
    /// Where the report goes as a page.
    pub html: Option<PathBuf>,
    /// Of that page.
    pub language: Language,
    /// Where each second's sample goes, as a line of JSON.
    pub samples: Option<PathBuf>,
    /// Where all times go as a histogram log, while the run goes on.
    pub hlog: Option<PathBuf>,
    /// Where the run's figures can be asked for, in the text format of Prometheus.
    pub metrics_listen: Option<SocketAddr>,
    /// The server's process on this machine.
    pub server_pid: Option<u32>,
    /// Where the server tells its metrics in the text format of Prometheus.
    pub server_metrics: Option<Endpoint>,
}

/// A language that the report is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Chinese, in simplified characters.
    Chinese,
}

impl Language {
    /// The one of two texts that is in this language.
    pub(crate) fn of(self, english: &'static str, chinese: &'static str) -> &'static str {
        match self {
            Self::English => english,
            Self::Chinese => chinese,
        }
    }

    /// A figure in its unit. What is not finite is a time of something that never came, and only that has a word.
    pub(crate) fn figure(self, value: f64, unit: Unit) -> String {
        match self {
            Self::Chinese if !value.is_finite() => "从未".to_owned(),
            _ => text::figure(value, unit),
        }
    }

    /// A time in milliseconds.
    pub(crate) fn time(self, millis: f64) -> String {
        self.figure(millis, Unit::Milliseconds)
    }

    /// A time in milliseconds that may be absent.
    pub(crate) fn time_or_dash(self, millis: Option<f64>) -> String {
        millis.map_or_else(|| "-".to_owned(), |millis| self.time(millis))
    }

    /// As HTML names it.
    pub(crate) fn tag(self) -> &'static str {
        self.of("en", "zh-CN")
    }
}

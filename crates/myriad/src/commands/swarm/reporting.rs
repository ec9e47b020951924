//! Where a run is shown beside its table: the options, and what they mean.

use clap::{Args, ValueEnum};
use myriad_swarm::{Endpoint, Language, Reporting};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(super) struct ReportingArguments {
    /// Write the report here as a page that needs no network and no script [default: not written]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Language of that page
    #[arg(long, value_enum, default_value = "en", requires = "html")]
    lang: LanguageName,
    /// Write a sample of each second here, as a line of JSON [default: not written]
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Write all times here, of each second and of each push, as a histogram log of HdrHistogram [default: not written]
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// Answer at this address with the figures so far, in the text format of Prometheus: GET /metrics. Port 0 is any free one
    /// [default: nobody can ask]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// Watch this process: its processor time and memory are shown beside the crowd's [default: the server is not watched]
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Watch what the server tells of itself here in the text format of Prometheus, such as http://127.0.0.1:8000/metrics
    /// [default: the server is not asked]
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse)]
    server_metrics: Option<Endpoint>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LanguageName {
    /// English
    En,
    /// Chinese
    Zh,
}

impl From<LanguageName> for Language {
    fn from(name: LanguageName) -> Self {
        match name {
            LanguageName::En => Self::English,
            LanguageName::Zh => Self::Chinese,
        }
    }
}

impl From<ReportingArguments> for Reporting {
    fn from(arguments: ReportingArguments) -> Self {
        Self {
            html: arguments.html,
            language: arguments.lang.into(),
            samples: arguments.samples,
            hlog: arguments.hlog,
            metrics_listen: arguments.metrics_listen,
            server_pid: arguments.server_pid,
            server_metrics: arguments.server_metrics,
        }
    }
}

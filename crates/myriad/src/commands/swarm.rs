//! `myriad swarm`: arguments in, exit code out.

mod compare;
mod filling;
mod find_max;
mod fleet;
mod machine;
mod protocol;
mod reporting;
mod scenario;
mod values;

use crate::command_line::shown;
use crate::{BAD_ARGUMENTS, say};
use clap::{ArgGroup, Args, Subcommand};
use compare::CompareArguments;
use find_max::FindMaxArguments;
use fleet::{AgentArguments, FleetArguments};
use machine::{ChangeArguments, MachineArguments};
use myriad_swarm::{
    ArrivalStage, Ca, Config, EXIT_INTERRUPTED, Endpoint, Incident, Interrupt, Outcome, Protocol,
    Report, RunError, Scenario, Target, Threshold, position, time_range,
};
use myriad_units::parse::{bytes, count, duration, rate, share_rate};
pub(crate) use protocol::protocol;
use reporting::ReportingArguments;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use values::{Body, CloseName, Live, Payload, Tokens, ca, header, tokens};

/// Clients when no other number is given.
const CONNECTIONS_DEFAULT: u64 = 1000;

/// A threshold did not hold.
const EXIT_THRESHOLD: u8 = 99;

/// Opens a crowd of connections to a WebSocket, HTTP or TCP server, and reports what they saw.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group = ArgGroup::new("load").multiple(true),
    after_help = "Example: myriad swarm 'ws://127.0.0.1:8000/raw?channel=x' -c 100k --publish http://127.0.0.1:8000/api/publish --pushes 3 --threshold 'reach>=100%'\n\
                  Thresholds: METRIC, one of < <= > >= == !=, and a value (a bare number is milliseconds). Metrics: fanout:first, :p50, :p90, :p99, :p99.9, :last; accepted; reach; setup:rate, :peak, :connected, :p99; errors; closes; churned; lost; agents:lost; storm:back, :dropped; comeback:p50, :p99, :slowest, :back, :missing, :given-up, :attempts, :errors, :missed; stall:stalled, :resumed, :ended, :closed, :reset, :p50, :slowest, :missing; vanish:vanished, :noticed, :unnoticed, :p50, :slowest, :all; missed; gaps; duplicates; session:gaps, :duplicates, :recovered, :unrecovered; polls:rate, :timeouts; held:shortest, :mean, :p50, :p99, :longest, :early, :late; reopened; reopening; messages; messages:rate; echo:mean, :p50, :p90, :p99, :p99.9, :max, :rate, :received, :lost, :errors, :unsent; request: and client-publish: and the same; delivery:mean to :max, :rate, :received, :missed; :failed (a share) of echo, request, client-publish and delivery. In k6's words: avg, min, med, max, p(95) and the like of setup, echo, request, client-publish, delivery, held and ping; count and rate.\n\
                  Exit codes: 0 finished, 1 nobody connected or something failed, 99 a threshold failed, 104 bad arguments, 105 interrupted."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<FileCommand>,
    /// Targets, such as 'ws://127.0.0.1:8000/raw?channel=news', http://... for clients that speak HTTP, or tcp://HOST:PORT for plain TCP; wss://,
    /// https:// and tls:// with TLS. Clients are spread over them in turn. Or the file of a scenario
    #[arg(required = true, value_name = "URL|SCENARIO.toml", value_parser = What::parse)]
    what: Vec<What>,
    #[command(flatten)]
    changes: ChangeArguments,
    /// Clients to connect [default: 1k]
    #[arg(long, short = 'c', visible_alias = "vus", short_alias = 'u', value_name = "COUNT", value_parser = count)]
    connections: Option<u64>,
    /// What clients speak
    #[arg(long, value_name = "NAME", default_value = Protocol::default().name(), value_parser = protocol(|_| true))]
    protocol: Protocol,
    /// Token that clients send with `connect` [default: none]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// File with a token on each line, which the clients take in turn. Empty lines do not count [default: none]
    #[arg(long, value_name = "FILE", value_parser = tokens, conflicts_with = "token")]
    tokens: Option<Tokens>,
    /// Channel that every client subscribes to; may be repeated [default: those of the URL's ?channel=]
    #[arg(long, value_name = "NAME")]
    channel: Vec<String>,
    /// Deal the clients out to so many channels NAME-1, NAME-2 and so on, with the name of --channel [default: every client
    /// subscribes to all]
    #[arg(long, value_name = "COUNT", value_parser = count, requires = "channel")]
    channels: Option<u64>,
    /// Connections to begin each second [default: as fast as the window allows]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    connect_rate: Option<f64>,
    /// Connect all clients evenly over this time [default: as fast as the window allows]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["connect_rate", "stage", "at_once"])]
    ramp: Option<Duration>,
    /// Grow the crowd to TARGET clients, or to that share of them, evenly over TIME, such as 30s:10k or 30s:50%; may be
    /// repeated. The last one has the whole crowd, and says how many it is without --connections [default: no stages]
    #[arg(long, value_name = "TIME:TARGET", value_parser = ArrivalStage::parse, conflicts_with_all = ["connect_rate", "at_once"])]
    stage: Vec<ArrivalStage>,
    /// Connect all clients at the first moment, whatever --connecting-max says [default: off]
    #[arg(long, conflicts_with = "connect_rate")]
    at_once: bool,
    /// Connections being established at once; fewer while attempts time out [default: 2048]
    #[arg(long, value_name = "COUNT", value_parser = count)]
    connecting_max: Option<u64>,
    #[command(flatten)]
    machine: MachineArguments,
    /// File of CAs in PEM that servers of wss:// and https:// have to be signed by, instead of the CAs that this machine trusts
    /// [default: those of this machine]
    #[arg(long, visible_alias = "cacert", value_name = "FILE", value_parser = ca)]
    ca: Option<Ca>,
    /// Do not look at the certificates of servers [default: they are verified]
    #[arg(long, short = 'k')]
    insecure: bool,
    /// A client that has been connected resumes its TLS session when it connects again [default: each handshake is a full one]
    #[arg(long)]
    tls_resume: bool,
    /// Time a connection may take [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    connect_timeout: Option<Duration>,
    /// Time the upgrade, or the head of a stream, may take [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    handshake_timeout: Option<Duration>,
    /// Attempts after a failed one [default: 2]
    #[arg(long, value_name = "COUNT")]
    retries: Option<u8>,
    /// Each client pings at this interval [default: it only answers pings]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    heartbeat: Option<Duration>,
    /// Share of the crowd that leaves and is replaced, such as 1%/m, from the end of connecting on [default: nobody leaves]
    #[arg(long, value_name = "SHARE", value_parser = share_rate)]
    churn: Option<f64>,
    /// Drop the connections of that share of the crowd at once, so long after the end of connecting, such as 50%@10s; may be
    /// repeated. Their clients come back [default: no storm]
    #[arg(long, value_name = "SHARE@TIME", value_parser = Incident::storm)]
    storm: Vec<Incident>,
    /// That share or number of clients stops reading and sending, so long after the end of connecting and until then, such as
    /// 1%@10s..40s; may be repeated. Without times, from the end of connecting to the end of the run [default: nobody stalls]
    #[arg(long, value_name = "SHARE@TIME..TIME", value_parser = Incident::stall)]
    stall: Vec<Incident>,
    /// That share or number of clients is gone without a word, as if their machines had lost power, so long after the end of
    /// connecting, such as 1%@10s; may be repeated [default: nobody vanishes]
    #[arg(long, value_name = "SHARE@TIME", value_parser = Incident::vanish)]
    vanish: Vec<Incident>,
    /// Clients whose connection the server or the network ended come back too [default: they do not]
    #[arg(long)]
    reconnect: bool,
    /// A client that comes back waits for a random time between zero and a limit, which doubles with each failure: the first
    /// limit and the largest [default: 500ms..20s]
    #[arg(long, value_name = "TIME..TIME", value_parser = time_range)]
    backoff: Option<(Duration, Duration)>,
    /// Attempts to come back before a client gives up [default: it never does]
    #[arg(long, value_name = "COUNT")]
    reconnect_attempts: Option<u32>,
    /// Clients that come back do not ask for what they missed [default: they do where the protocol has that]
    #[arg(long)]
    reconnect_fresh: bool,
    /// A header of clients' requests, as 'Name: value'; may be repeated [default: none]
    #[arg(long, short = 'H', value_name = "HEADER", value_parser = header)]
    header: Vec<(String, String)>,
    /// Offer to take compressed messages (permessage-deflate, without context takeover) [default: off]
    #[arg(long)]
    compression: bool,
    /// Body of clients' requests over HTTP, which are POST then [default: none, they are GET]
    #[arg(long, value_name = "TEXT")]
    request_body: Option<String>,
    /// From where a poll goes on that was answered: a header of the answer becomes a parameter of the next request's query, as
    /// HEADER=PARAMETER; may be repeated. `none`: each request is the same [default: offset and cursor of Durable Streams, or
    /// else If-Modified-Since and If-None-Match]
    #[arg(long, value_name = "POSITION")]
    poll_position: Vec<String>,
    /// How long a poll without a delivery is to be held, such as 60s or 30s..90s: those held for less than the first time are
    /// counted, and those held for more than the second and 100 ms [default: not judged]
    #[arg(long, value_name = "TIME", value_parser = time_range)]
    expect_held: Option<(Duration, Duration)>,
    /// Send text messages at this rate over the whole crowd, such as 5k/s, until the duration is over; the server is to
    /// send each back. Times count from when a message was due [default: no echoes]
    #[arg(long, value_name = "RATE", value_parser = rate, group = "load")]
    echo: Option<f64>,
    /// Bytes of such a message, its stamp included [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "echo")]
    echo_size: Option<u64>,
    /// Have the clients publish at this rate over the whole crowd, such as 5k/s, until the duration is over: each in turn to
    /// the first of its channels, over its own connection. Times count from when a publication was due [default: clients do
    /// not publish]
    #[arg(long, value_name = "RATE", value_parser = rate, group = "load")]
    client_publish: Option<f64>,
    /// Bytes of what a client publishes, its stamp included [default: 64]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "client_publish")]
    client_publish_size: Option<u64>,
    /// Position from which every client's subscription begins: what came after it is to be recovered, as after a
    /// reconnect. The answer of the publish API gives both [default: clients begin with what comes]
    #[arg(long, value_name = "EPOCH:OFFSET", value_parser = position)]
    recover_from: Option<(String, u64)>,
    /// Post a small body to this URL at --request-rate; the answer must be 200 with the same body. May be repeated: the
    /// URLs take turns [default: no requests]
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse, group = "load", requires = "request_rate")]
    request: Vec<Endpoint>,
    /// Requests a second, such as 1k/s; times count from when a request was due. --request needs it
    #[arg(long, value_name = "RATE", value_parser = rate, requires = "request")]
    request_rate: Option<f64>,
    /// Requests under way at once, each on a kept connection [default: 16]
    #[arg(long, value_name = "COUNT", requires = "request")]
    request_connections: Option<u32>,
    /// Publish to this URL too, for instance http://127.0.0.1:8000/api/publish; may be repeated: each push goes to all
    /// of them at once, as one [default: no pushes]
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse, group = "load")]
    publish: Vec<Endpoint>,
    /// Time between pushes
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, requires = "publish")]
    every: Duration,
    /// Spread a push to many channels evenly over --every [default: one channel after the other, at once]
    #[arg(long, requires = "publish")]
    spread: bool,
    /// Pushes to make [default: until the duration is over]
    #[arg(long, value_name = "COUNT", requires = "publish")]
    pushes: Option<u32>,
    /// Bytes of a push, its stamp included [default: 32]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "publish")]
    payload_size: Option<u64>,
    /// What a push contains beside its stamp
    #[arg(long, value_enum, default_value = "dots", requires = "publish")]
    payload: Payload,
    /// Form of the publish request: the API's JSON, the payload itself, or an append to a stream
    #[arg(long, value_enum, default_value = "api", requires = "publish")]
    publish_body: Body,
    /// Content type of what is appended to a stream; application/json makes it a string
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "text/plain",
        requires = "publish"
    )]
    publish_type: String,
    /// Channel to publish to; may be repeated [default: those of the targets]
    #[arg(long, value_name = "NAME", requires = "publish")]
    publish_channel: Vec<String>,
    /// Key of the publish API [default: none]
    #[arg(long, value_name = "KEY", requires = "publish")]
    api_key: Option<String>,
    /// Time between the end of connecting and the first push, echo, request or publication of a client [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "load")]
    warmup: Option<Duration>,
    /// Time a push waits for its next arrival before it counts as over, and an echo, a request or a publication of a client
    /// for its answer before it is lost [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    settle: Option<Duration>,
    /// What to show during the run; the report always comes at the end
    #[arg(long, value_enum, default_value = "auto")]
    live: Live,
    /// No dashboard: plain lines, as with --live plain
    #[arg(long, conflicts_with = "live")]
    no_tui: bool,
    /// Write the full report here as JSON; - is standard output [default: not written]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the distribution of arrivals here, in HdrHistogram's percentile format; - is standard output
    /// [default: not written]
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
    #[command(flatten)]
    reporting: ReportingArguments,
    #[command(flatten)]
    fleet: FleetArguments,
    /// A condition such as 'fanout:last<5s', 'reach>=99.9%' or 'lost==0'; may be repeated [default: none]
    #[arg(long, value_name = "CONDITION", value_parser = Threshold::parse)]
    threshold: Vec<Threshold>,
    /// End the run when a threshold fails, this long after the end of connecting at the earliest, such as 10s. Thresholds on
    /// counts that are to be reached are judged at the end [default: all are judged at the end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    abort_on_fail: Option<Duration>,
    /// How clients leave, at the end and by --churn
    #[arg(long, value_enum, default_value = "reset")]
    close: CloseName,
}

/// What is done with files.
#[derive(Clone, Debug, Subcommand)]
enum FileCommand {
    /// Write a commented scenario, which runs as it is against `myriad serve --dev`
    Init {
        /// Where to; - is standard output. A file that exists is not overwritten
        #[arg(value_name = "FILE", default_value = "scenario.toml")]
        file: PathBuf,
    },
    /// Print the JSON schema of scenario files, or that of reports
    Schema {
        /// That of the report that --json writes
        #[arg(long)]
        report: bool,
        /// That of the report that `find-max --json` writes
        #[arg(long, conflicts_with = "report")]
        find_max: bool,
    },
    /// Compare two reports that --json has written: what got better, what got worse. The exit code is 99 if something got
    /// worse, 104 if a file is no report
    Compare(CompareArguments),
    /// Search the largest number of clients, or the largest rate, at which the thresholds of a scenario hold
    FindMax(Box<FindMaxArguments>),
    /// Wait for a controller (`myriad swarm SCENARIO.toml --nats URL`), and be a part of its crowd
    Agent(AgentArguments),
}

/// What a run is about.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Target(Target),
    Scenario(PathBuf),
}

impl What {
    fn parse(text: &str) -> Result<Self, String> {
        let is_file = !text.contains("://");
        if is_file && Path::new(text).extension().is_some_and(|end| end == "toml") {
            return Ok(Self::Scenario(text.into()));
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_known = |scheme: &str| SCHEMES.iter().any(|it| it.eq_ignore_ascii_case(scheme));
        if !scheme.is_some_and(is_known) {
            return Err(
                "this is neither a URL that clients connect to nor a scenario; write ws://HOST:PORT/PATH, http://HOST:PORT/PATH or tcp://HOST:PORT \
                 (wss://, https:// and tls:// with TLS), or a scenario whose name ends in .toml"
                    .to_owned(),
            );
        }
        let target = Target::parse(text).map_err(|error| error.to_string())?;
        Ok(Self::Target(target))
    }
}

/// What URLs of targets begin with.
const SCHEMES: [&str; 6] = ["ws", "wss", "http", "https", "tcp", "tls"];

/// Runs the crowd to its end, or does something with files.
pub(crate) fn run(arguments: Arguments, given: &[String]) -> ExitCode {
    match &arguments.command {
        Some(FileCommand::Init { file }) => return scenario::init(file),
        Some(FileCommand::Schema { report, find_max }) => {
            return scenario::print_schema(*report, *find_max);
        }
        Some(FileCommand::Compare(arguments)) => return compare::run(arguments),
        Some(FileCommand::FindMax(arguments)) => return find_max::run(arguments, given),
        Some(FileCommand::Agent(arguments)) => return fleet::serve(arguments),
        None => {}
    }
    let scenario = match scenario::of(&arguments, given) {
        Ok(scenario) => scenario,
        Err(error) => {
            say(format_args!("error: {error}"));
            return ExitCode::from(BAD_ARGUMENTS);
        }
    };
    let fleet = arguments.fleet.clone();
    let command = Some(shown(given));
    let mut config = match &scenario {
        Some(scenario) if fleet.is_wanted() => {
            let mut config = arguments.over(scenario.config.clone());
            config.about.command = command;
            return fleet.run(scenario, &config);
        }
        Some(scenario) => arguments.over(scenario.config.clone()),
        None => arguments.into_config(),
    };
    config.about.command = command;
    run_config(&config, scenario.as_ref())
}

/// What ends a run early with its report: SIGINT and SIGTERM. None if they cannot be watched, which was said then.
fn interrupt() -> Option<Interrupt> {
    let watched = Interrupt::on_signals();
    watched
        .map_err(|error| {
            say(format_args!(
                "error: signals cannot be watched ({error}); raise the descriptor limit (ulimit -n)"
            ));
        })
        .ok()
}

fn run_config(config: &Config, scenario: Option<&Scenario>) -> ExitCode {
    let Some(interrupt) = interrupt() else {
        return ExitCode::FAILURE;
    };
    match myriad_swarm::run(config, &interrupt) {
        Ok(report) => ExitCode::from(exit_code(&report)),
        Err(RunError::Config(error)) => {
            match scenario {
                Some(scenario) => say(format_args!("error: {}", scenario.explain(error))),
                None => say(format_args!("error: {error}")),
            }
            ExitCode::from(BAD_ARGUMENTS)
        }
        Err(error) => {
            say(format_args!("error: {error}"));
            match error {
                RunError::Listen { .. } => ExitCode::from(BAD_ARGUMENTS),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn exit_code(report: &Report) -> u8 {
    match report.outcome {
        Outcome::Finished => 0,
        Outcome::ThresholdsFailed => EXIT_THRESHOLD,
        Outcome::Interrupted => EXIT_INTERRUPTED,
        Outcome::NobodyConnected | Outcome::LoadFailed => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_a_target_nor_a_scenario_is_told_what_both_look_like() {
        for text in ["mine", "mine.yaml", "scenarios/", "ftp://127.0.0.1/", "run"] {
            let said = What::parse(text).expect_err(text);
            for form in ["ws://", "http://", "tcp://", ".toml"] {
                assert!(said.contains(form), "{text}: {said}");
            }
        }
        assert!(matches!(What::parse("a.toml"), Ok(What::Scenario(_))));
        let target = What::parse("WS://127.0.0.1:1/a.toml");
        assert!(matches!(target, Ok(What::Target(_))));
    }

    #[test]
    fn a_language_is_refused_where_no_page_is_written() {
        let with = |more: &[&str]| {
            let line = ["swarm", "ws://127.0.0.1:1/", "--lang", "zh"];
            let command = Arguments::augment_args(clap::Command::new("swarm"));
            command.try_get_matches_from([&line[..], more].concat())
        };
        let said = with(&[]).expect_err("no page").to_string();
        assert!(said.contains("--html <FILE>"), "{said}");
        assert!(with(&["--html", "page.html"]).is_ok());
    }

    #[test]
    fn every_option_is_documented_and_nothing_else() {
        let page = include_str!("../../../../docs/swarm.md");
        let documented: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `--")?.split(['`', ' ']).next())
            .collect();
        let command = Arguments::augment_args(clap::Command::new("swarm"));
        let options: Vec<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        for option in &options {
            let rows = documented.iter().filter(|name| *name == option).count();
            assert_eq!(rows, 1, "--{option} has {rows} rows in the table");
        }
        assert_eq!(documented.len(), options.len());
    }

    #[test]
    fn the_help_shows_every_default() {
        let page = include_str!("../../../../docs/swarm.md");
        let command = Arguments::augment_args(clap::Command::new("swarm"));
        for argument in command.get_arguments() {
            let Some(option) = argument.get_long() else {
                continue;
            };
            let row = format!("| `--{option}");
            let row = page.lines().find(|line| line.starts_with(&row));
            let default = row.and_then(|row| row.split('|').nth(2)).expect("a row");
            let help = argument.get_help().map(ToString::to_string);
            let written = help.is_some_and(|help| help.contains("[default: "));
            let shown = written || !argument.get_default_values().is_empty();
            assert!(shown || default.trim().is_empty(), "--{option}");
        }
    }
}

//! `myriad arena`: arguments in, exit code out.

use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use myriad_arena::{Contestant, CrowdKind, Exchange, Options, Report, Transport};
use myriad_layout::{Column, Paint, Table, terminal_columns};
use myriad_swarm::EXIT_INTERRUPTED;
use myriad_units::parse::{count, duration, rate};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A contestant failed, or the run could not be made.
const FAILED: u8 = 1;

/// Runs servers of other frameworks under the same crowd, one after the other, and compares them.
#[derive(Args, Clone, Debug)]
#[command(
    // So that `make arena ARENA=...` can say otherwise than the target does.
    args_override_self = true,
    after_help = "Example: myriad arena --only netty,myriad --connections 15k --rounds 3 --html arena.html\n\
                  Exit codes: 0 no contestant failed, 1 a contestant failed (its row says why), 104 bad arguments or manifest, 105 interrupted, with the figures so far."
)]
pub(crate) struct Arguments {
    /// Contestants, separated by commas [default: all of the manifest]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Connections of the crowd
    #[arg(long, short = 'c', value_name = "COUNT", default_value = "100k", value_parser = crowd_size)]
    connections: u64,
    /// Rounds, each beginning with the next contestant; 0 only with --largest
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    rounds: u32,
    /// Pushes to the whole crowd in each round
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pushes: u64,
    /// Idle time between the last connection and the first push
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    idle: Duration,
    /// Connections that send echoes, after the pushes; at most as many as --connections
    #[arg(long, value_name = "COUNT", default_value = "1k", value_parser = at_least_one)]
    echo_connections: u64,
    /// Echoes a second, over all of these connections
    #[arg(long, value_name = "RATE", default_value = "20k/s", value_parser = load_rate)]
    echo_rate: f64,
    /// How long echoes are sent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = load_duration)]
    echo_duration: Duration,
    /// Connections to each process for requests, which are sent while the crowd stays connected
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u64).range(1..=256))]
    request_connections: u64,
    /// Requests a second, over all of these connections
    #[arg(long, value_name = "RATE", default_value = "5k/s", value_parser = load_rate)]
    request_rate: f64,
    /// How long requests are sent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = load_duration)]
    request_duration: Duration,
    /// Look for the largest crowd that each contestant holds, up to COUNT [default: off; without COUNT: 1m]
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = crowd_size)]
    largest: Option<u64>,
    /// A crowd that is held over HTTP, long-poll or sse, on the contestants that hold such clients [default: WebSockets]
    #[arg(long, value_name = "TRANSPORT", conflicts_with = "largest")]
    held: Option<Transport>,
    /// Everything over TLS 1.3, on the contestants that speak it; the certificate is made for the run
    #[arg(long, conflicts_with = "held")]
    tls: bool,
    /// Do not build; use what is built already [default: build]
    #[arg(long)]
    no_build: bool,
    /// The first port to listen on; as many follow as there are processes
    #[arg(long, value_name = "PORT", default_value_t = 26_000, value_parser = clap::value_parser!(u16).range(1_024..))]
    port: u16,
    /// The folder of the contestants and their manifest, arena.toml
    #[arg(long, value_name = "DIR", default_value = "arena")]
    arena: PathBuf,
    /// List the contestants, with the runs that each takes part in, and do nothing else
    #[arg(long)]
    list: bool,
    /// Show the report in this file, as --json wrote it, and run nothing [default: run]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "largest", "held", "tls", "no_build", "list", "json"])]
    from: Option<PathBuf>,
    /// Write everything that was measured to this file [default: not written]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with charts to this file [default: not written]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the tables to this file, as Markdown [default: not written]
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// How the arena starts its children: the process that must stay alive
    #[arg(long, value_name = "PROCESS", hide = true, requires = "command")]
    attached_to: Option<u32>,
    /// The child's own command
    #[arg(last = true, hide = true, requires = "attached_to")]
    command: Vec<OsString>,
}

/// A slope needs two sizes of a crowd.
fn crowd_size(text: &str) -> Result<u64, String> {
    match count(text) {
        Ok(few @ 0..8) => Err(format!("`{few}`: a crowd has at least 8 connections")),
        Ok(connections) => Ok(connections),
        Err(error) => Err(error.to_string()),
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match count(text) {
        Ok(0) => Err("a crowd has at least 1 connection".to_owned()),
        Ok(connections) => Ok(connections),
        Err(error) => Err(error.to_string()),
    }
}

/// No more than a crowd takes.
fn load_rate(text: &str) -> Result<f64, String> {
    match rate(text) {
        Ok(per_s) if !(1.0..=10e6).contains(&per_s) => {
            Err("give a rate from 1/s to 10m/s, such as 20k/s".to_owned())
        }
        Ok(per_s) => Ok(per_s),
        Err(error) => Err(error.to_string()),
    }
}

/// Long enough for a message at the lowest rate, and no longer than anybody waits.
fn load_duration(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(time) if !(1.0..=3_600.0).contains(&time.as_secs_f64()) => {
            Err("give a time from 1s to 1h, such as 5s".to_owned())
        }
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the arena, or becomes one of its children.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Some(parent) = arguments.attached_to {
        return failed(&myriad_arena::attach(parent, &arguments.command).to_string());
    }
    if let Some(path) = &arguments.from {
        return show(arguments, path);
    }
    let contestants = match myriad_arena::load(&arguments.arena) {
        Ok(contestants) => contestants,
        Err(error) => return bad_arguments(&error.to_string()),
    };
    let crowd = crowd_of(arguments);
    let contestants = match chosen(contestants, &arguments.only, crowd) {
        Ok(contestants) => contestants,
        Err(why) => return bad_arguments(&why),
    };
    if arguments.list {
        return list(&contestants);
    }
    let myriad = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&format!("cannot find this program's own file: {error}")),
    };
    if let Err(why) = writable(arguments) {
        return bad_arguments(&why);
    }
    if arguments.rounds == 0 && arguments.largest.is_none() {
        return bad_arguments(
            "--rounds 0 measures nothing: add --largest, or give at least 1 round",
        );
    }
    let options = Options {
        myriad,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        connections: arguments.connections,
        rounds: arguments.rounds,
        pushes: arguments.pushes,
        idle: arguments.idle,
        echo: Exchange {
            connections: arguments.echo_connections,
            rate_per_s: arguments.echo_rate,
            duration: arguments.echo_duration,
        },
        request: Exchange {
            connections: arguments.request_connections,
            rate_per_s: arguments.request_rate,
            duration: arguments.request_duration,
        },
        port: arguments.port,
        build: !arguments.no_build,
        largest_max: arguments.largest,
        held: arguments.held,
        tls: arguments.tls,
    };
    if cfg!(debug_assertions) {
        say(
            "note: this is a debug build, and so are the crowd and Myriad as a contestant; `make arena` makes a release build",
        );
    }
    match myriad_arena::run(&contestants, &options, &mut io::stderr()) {
        Ok(report) => finish(arguments, &report),
        Err(error) => failed(&error.to_string()),
    }
}

/// The crowd that is asked for. None if nobody runs, and all contestants are listed.
fn crowd_of(arguments: &Arguments) -> Option<CrowdKind> {
    match arguments.held {
        Some(transport) => Some(CrowdKind::Held(transport)),
        None if arguments.tls => Some(CrowdKind::Tls),
        None if arguments.list => None,
        None => Some(CrowdKind::Plain),
    }
}

fn chosen(
    contestants: Vec<Contestant>,
    only: &[String],
    crowd: Option<CrowdKind>,
) -> Result<Vec<Contestant>, String> {
    let names: Vec<&str> = contestants.iter().map(|one| one.name.as_str()).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        let known = names.join(", ");
        return Err(format!(
            "--only: no contestant is called `{unknown}`; there are {known}"
        ));
    }
    let wanted = |one: &Contestant| only.contains(&one.name);
    let wished = |one: &Contestant| only.is_empty() || wanted(one);
    let Some(crowd) = crowd else {
        return Ok(contestants.into_iter().filter(wished).collect());
    };
    let fits = |one: &Contestant| crowd.fits(one);
    if let Some(unfit) = contestants.iter().find(|one| wanted(one) && !fits(one)) {
        let fitting: Vec<&str> = contestants
            .iter()
            .filter(|one| fits(one))
            .map(|one| one.name.as_str())
            .collect();
        let instead = if fitting.is_empty() {
            "nobody of this manifest does".to_owned()
        } else {
            format!("these do: {}", fitting.join(", "))
        };
        return Err(format!(
            "--only: `{}` takes no part {}: {}; {instead}",
            unfit.name,
            crowd.flags(),
            crowd.why_unfit(unfit)
        ));
    }
    let chosen: Vec<Contestant> = contestants
        .into_iter()
        .filter(|one| fits(one) && wished(one))
        .collect();
    if chosen.is_empty() {
        return Err(format!(
            "no contestant of the manifest takes part in a run {}; `myriad arena --list` shows who can do what",
            crowd.flags()
        ));
    }
    Ok(chosen)
}

/// A row for each: also the runs that it takes part in.
fn list(contestants: &[Contestant]) -> ExitCode {
    let mut table = Table::new(&[Column::TEXT; 5]);
    for one in contestants {
        let runs: Vec<&str> = CrowdKind::ALL
            .into_iter()
            .filter(|crowd| crowd.fits(one))
            .map(CrowdKind::name)
            .collect();
        let runs = runs.join(" ");
        table.row([&one.name, &one.language, one.kind_name(), &runs, &one.title]);
    }
    let width = terminal_columns(io::stdout()).unwrap_or(usize::MAX);
    // Whoever closes the pipe has read enough.
    let _ = write!(io::stdout(), "{}", table.draw(0, width, Paint::Plain));
    ExitCode::SUCCESS
}

/// Before hours of measuring: can the files be written? What is in them stays until there is something to write.
fn writable(arguments: &Arguments) -> Result<(), String> {
    for path in [&arguments.json, &arguments.html, &arguments.markdown]
        .into_iter()
        .flatten()
    {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Shows a report of an earlier run. What became of its contestants is no failure now.
fn show(arguments: &Arguments, path: &Path) -> ExitCode {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return bad_arguments(&format!("cannot read {}: {error}", path.display())),
    };
    let report = match Report::from_json(&text) {
        Ok(report) => report,
        Err(why) => return bad_arguments(&format!("--from {}: {why}", path.display())),
    };
    if let Err(why) = writable(arguments) {
        return bad_arguments(&why);
    }
    if write_report(arguments, &report) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

fn finish(arguments: &Arguments, report: &Report) -> ExitCode {
    let written = write_report(arguments, report);
    if report.interrupted {
        return ExitCode::from(EXIT_INTERRUPTED);
    }
    if written && report.contestants.iter().all(|row| row.ok) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

/// Everything that was asked for; whether all of it could be written.
fn write_report(arguments: &Arguments, report: &Report) -> bool {
    // Files first: a closed pipe must not cost them.
    let json =
        || serde_json::to_string_pretty(report).expect("a report has only string keys") + "\n";
    let files: [(&Option<PathBuf>, &dyn Fn() -> String); 3] = [
        (&arguments.json, &json),
        (&arguments.html, &|| myriad_arena::html(report)),
        (&arguments.markdown, &|| myriad_arena::markdown(report)),
    ];
    let mut written = true;
    for (path, text) in files {
        if let Some(path) = path
            && let Err(error) = write(path, &text())
        {
            say(format_args!("myriad arena: {error}"));
            written = false;
        }
    }
    // Whoever closes the pipe has read enough.
    let _ = write!(
        io::stdout().lock(),
        "\n{}",
        myriad_arena::text(report, terminal_columns(io::stdout()))
    );
    written
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn bad_arguments(why: &str) -> ExitCode {
    say(format_args!("myriad arena: {why}"));
    ExitCode::from(BAD_ARGUMENTS)
}

fn failed(why: &str) -> ExitCode {
    say(format_args!("myriad arena: {why}"));
    ExitCode::from(FAILED)
}

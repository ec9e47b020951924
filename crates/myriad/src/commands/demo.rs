//! `myriad demo`: arguments in, exit code out.

use crate::commands::swarm::protocol;
use crate::{BAD_ARGUMENTS, say};
use clap::{Args, ValueEnum};
use myriad_demo::{DemoError, Options, Verdict};
use myriad_layout::terminal_columns;
use myriad_server::{Count, DriverChoice, Span};
use myriad_swarm::{EXIT_INTERRUPTED, Protocol, Scheme};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

/// A push did not reach everybody, or the demonstration could not be run.
const FAILED: u8 = 1;

/// Opens as many connections on this machine as it allows, up to a million, and pushes to all of them.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: 0 every push reached every client, 1 a push did not or the run failed, 104 bad arguments, 105 interrupted."
)]
pub(crate) struct Arguments {
    /// Connections to open, such as 50k or 1m [default: 1m, or as many as the machine allows]
    #[arg(long, short = 'c', value_name = "COUNT")]
    connections: Option<Count>,

    /// How server and crowd drive their sockets [default: auto]
    #[arg(long, value_enum, value_name = "DRIVER")]
    driver: Option<DriverChoice>,

    /// What clients speak
    #[arg(long, value_name = "NAME", default_value = Protocol::default().name(), value_parser = protocol(|it| it.scheme() == Scheme::WebSocket))]
    protocol: Protocol,

    /// Connect with TLS (wss://); the certificate is made for this run
    #[arg(long)]
    tls: bool,

    /// How often the server pings each connection: rarely, because pings take CPU time from the pushes
    #[arg(long, value_name = "TIME", default_value = "5m")]
    ping_interval: Span,

    /// Write everything that was measured to this file
    #[arg(long, value_name = "FILE", default_value = "myriad-demo.json")]
    json: PathBuf,

    /// How the demonstration starts its children: the process that must stay alive
    #[arg(long, value_name = "PROCESS", hide = true, requires = "command")]
    attached_to: Option<u32>,

    /// The child's own command
    #[arg(last = true, hide = true, requires = "attached_to")]
    command: Vec<OsString>,
}

/// Runs the demonstration, or becomes one of its children.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    if let Some(parent) = arguments.attached_to {
        let error = myriad_demo::process::attach(parent, &arguments.command);
        return failed(&format!("cannot become part of the demonstration: {error}"));
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&format!("cannot find this program's own file: {error}")),
    };
    let options = Options {
        program,
        connections: arguments.connections.map(|count| count.0),
        driver: arguments.driver.map(name),
        protocol: Some(arguments.protocol.name().to_owned()),
        tls: arguments.tls,
        ping_interval: arguments.ping_interval.to_string(),
        json: arguments.json,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        columns: terminal_columns(io::stdout()),
    };
    match myriad_demo::run(&options, &mut io::stdout().lock()) {
        Ok(report) => match report.verdict {
            Verdict::ReachedAll => ExitCode::SUCCESS,
            Verdict::Missed(why) => failed(&why),
        },
        Err(DemoError::Interrupted) => {
            say("Interrupted; the server and the crowd are stopped.");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        // Whoever read us has read enough.
        Err(DemoError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let exit = failed(&error.to_string());
            match error {
                DemoError::NoConnections => ExitCode::from(BAD_ARGUMENTS),
                _ => exit,
            }
        }
    }
}

/// As the flag takes it.
fn name(driver: DriverChoice) -> String {
    driver
        .to_possible_value()
        .expect("no variant is skipped")
        .get_name()
        .to_owned()
}

fn failed(why: &str) -> ExitCode {
    say(format_args!("myriad demo: {why}"));
    ExitCode::from(FAILED)
}

//! `myriad doctor`: arguments in, exit code out.

mod changing;

use crate::{BAD_ARGUMENTS, say, stdout_paint};
use clap::{Args, ValueEnum};
use myriad_doctor::{
    Change, ConnectionCost, Examination, IoUring, LISTENING_PORT, Load, Paths, Probe, ProbeError,
    Program, Role, Trials, examine, fix, report,
};
use myriad_layout::{WIDTH_MAX, terminal_columns};
use myriad_units::parse::{bytes, count};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The machine does not suffice, or could not be read.
const NOT_ENOUGH: u8 = 1;

/// Says what this machine allows, what stops you first, and what to do about it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples: myriad doctor --connections 1m --role both\n\
                  \x20         myriad doctor --role proxy --processes 8 --destinations 4 --connections 200k\n\
                  \x20         myriad doctor --fix --connections 2m, and later myriad doctor --undo\n\
                  Exit codes: 0 the machine allows that many (--undo: all is as it was), 1 it does not or something failed, 104 bad arguments.")]
pub(crate) struct Arguments {
    /// Connections wanted, such as 200k or 1m
    #[arg(long, short = 'c', value_name = "COUNT", default_value = "1m", value_parser = at_least_one)]
    connections: u64,
    /// Ends of the connections that are on this machine
    #[arg(long, value_enum, default_value = "server")]
    role: RoleName,
    /// Program that holds the connections [default: myriad; ordinary with --role proxy]
    #[arg(long, value_enum)]
    program: Option<ProgramName>,
    /// Processes (workers) of the ordinary program
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = at_least_one)]
    processes: u64,
    /// Source addresses that outgoing connections are spread over
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = at_least_one)]
    sources: u64,
    /// Addresses and ports that outgoing connections are spread over
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = at_least_one)]
    destinations: u64,
    /// Port the server listens on
    #[arg(long, value_name = "PORT", default_value_t = LISTENING_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// What the connections do
    #[arg(long, value_enum, default_value = "broadcast")]
    load: LoadName,
    /// The connections have TLS: count the keys that Myriad keeps for each
    #[arg(long, conflicts_with = "memory_per_connection")]
    tls: bool,
    /// Memory that the program takes for one end of a connection [default: 100B, as Myriad does; 9,071B with --role proxy, as nginx does]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory_per_connection: Option<u64>,
    /// Print everything as JSON; docs/doctor.schema.json describes it [default: a report for people]
    #[arg(long)]
    json: bool,
    /// Print the changes as a file that somebody else applies [default: a report for people]
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
    print: Option<FormatName>,
    /// Show the changes that are needed, ask, and make them [default: change nothing]
    #[arg(long, conflicts_with_all = ["json", "print", "undo", "root"])]
    fix: bool,
    /// Show what --fix changed, ask, and restore it [default: restore nothing]
    #[arg(long, conflicts_with_all = ["json", "print", "root"])]
    undo: bool,
    /// Change or restore without asking [default: ask]
    #[arg(long)]
    yes: bool,
    /// Also change the files that are read at boot [default: changes last until the next reboot]
    #[arg(long, requires = "fix")]
    persistent: bool,
    /// systemd unit of the program, such as nginx.service: --fix raises its limits [default: none]
    #[arg(long, value_name = "UNIT", requires = "fix", value_parser = unit_name)]
    unit: Option<String>,
    /// File in which --fix notes each change before it makes it
    #[arg(long, value_name = "FILE", default_value = fix::JOURNAL)]
    journal: PathBuf,
    /// Judge a copy of another machine's /proc, /sys and /etc in this folder, and try nothing [default: this machine]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoleName {
    /// The server's: connections that it accepts
    Server,
    /// The clients': connections to servers on other machines
    Client,
    /// Both: server and clients talk over loopback
    Both,
    /// A proxy's: two for each client, one accepted and one to the next server
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProgramName {
    /// myriad serve or swarm: as many descriptor tables as it needs
    Myriad,
    /// Any other: one descriptor table for each process
    Ordinary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LoadName {
    /// They are silent
    Idle,
    /// All of them receive a small message at the same time
    Broadcast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// For /etc/sysctl.d
    #[value(name = "sysctl.conf")]
    SysctlConf,
    /// For /etc/security/limits.d
    #[value(name = "limits.conf")]
    LimitsConf,
    /// A drop-in for a systemd unit
    Systemd,
    /// Options for docker run
    Docker,
    /// Part of a pod's manifest
    Kubernetes,
}

impl From<FormatName> for fix::Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::SysctlConf => Self::SysctlConf,
            FormatName::LimitsConf => Self::LimitsConf,
            FormatName::Systemd => Self::Systemd,
            FormatName::Docker => Self::Docker,
            FormatName::Kubernetes => Self::Kubernetes,
        }
    }
}

/// It becomes part of a path. A bare name is a service's, as for systemctl.
fn unit_name(text: &str) -> Result<String, String> {
    const KINDS: [&str; 5] = [".service", ".socket", ".mount", ".swap", ".scope"];
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(plain) {
        return Err("a unit is named like nginx.service".into());
    }
    match KINDS.iter().find(|kind| text.ends_with(**kind)) {
        Some(&".service") => Ok(text.to_owned()),
        Some(kind) => Err(format!(
            "a unit {kind} has no limits of a program; name a .service"
        )),
        None => Ok(format!("{text}.service")),
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match count(text).map_err(|error| error.to_string())? {
        0 => Err("choose at least 1".into()),
        number => Ok(number),
    }
}

/// Examines the machine, and says what was found or does something about it.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.undo {
        return changing::undo(&arguments.journal, arguments.yes);
    }
    let load = match arguments.load() {
        Ok(load) => load,
        Err(why) => return refuse(&why),
    };
    let examination = match arguments.examine(load) {
        Ok(examination) => examination,
        Err(error) => return failed(&format!("this machine cannot be judged: {error}")),
    };
    if arguments.fix {
        return changing::fix(arguments, examination);
    }
    let text = match arguments.print {
        Some(format) => fix::print(&examination, format.into()),
        None if arguments.json => examination.json() + "\n",
        None => report::text(&examination, stdout_paint(), width()),
    };
    // A file that was asked for is there, whatever the machine is like.
    let suffices = examination.enough || arguments.print.is_some();
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever read us has read enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            failed(&format!("the report cannot be written: {error}"))
        }
        _ => verdict(suffices),
    }
}

fn verdict(enough: bool) -> ExitCode {
    if enough {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_ENOUGH)
    }
}

fn failed(why: &str) -> ExitCode {
    say(format_args!("error: {why}"));
    ExitCode::from(NOT_ENOUGH)
}

fn refuse(why: &str) -> ExitCode {
    say(format_args!("error: {why}"));
    ExitCode::from(BAD_ARGUMENTS)
}

/// Columns of the report.
fn width() -> usize {
    terminal_columns(io::stdout()).unwrap_or(WIDTH_MAX)
}

impl Arguments {
    fn load(&self) -> Result<Load, String> {
        let paths = Paths {
            sources: self.sources,
            destinations: self.destinations,
        };
        let role = match self.role {
            RoleName::Server => Role::Server,
            RoleName::Client => Role::Crowd(paths),
            RoleName::Both => Role::BothEnds,
            RoleName::Proxy => Role::Proxy(paths),
        };
        if paths != Paths::SINGLE && !matches!(role, Role::Crowd(_) | Role::Proxy(_)) {
            return Err(
                "--sources and --destinations are about --role client and --role proxy".into(),
            );
        }
        let ordinary = Program::Ordinary {
            processes: self.processes,
        };
        let program = match (self.program, self.role) {
            (Some(ProgramName::Myriad), RoleName::Proxy) => {
                return Err("Myriad is no proxy; --role proxy is for other programs".into());
            }
            (Some(ProgramName::Ordinary), _) | (None, RoleName::Proxy) => ordinary,
            (Some(ProgramName::Myriad) | None, _) if self.processes > 1 => {
                return Err("--processes is about --program ordinary".into());
            }
            (Some(ProgramName::Myriad) | None, _) => Program::Myriad,
        };
        let load = match self.load {
            LoadName::Idle => Load::idle(role),
            LoadName::Broadcast => Load::broadcast(role),
        };
        if self.tls && program != Program::Myriad {
            return Err(
                "--tls is about Myriad; give another program's memory with --memory-per-connection"
                    .into(),
            );
        }
        let mut load = load.on(program).with_tls(self.tls);
        if let Some(given) = self.memory_per_connection {
            load.user_bytes = given;
        }
        Ok(load)
    }

    /// Asked again after changes: nothing is measured twice. What programs are given counts as given, because this
    /// process was started before.
    fn examine_again(
        &self,
        examination: &Examination,
        given: &[Change],
    ) -> Result<Examination, ProbeError> {
        let trials = Trials {
            connection_cost: examination.machine.connection_cost.clone(),
            io_uring: Some(match &examination.machine.io_uring {
                IoUring::Refused { reason } => Err(reason.clone()),
                _ => Ok(()),
            }),
            conntrack_tracks: examination.machine.conntrack.and_then(|it| it.tracks),
        };
        let mut machine = Probe::system().machine(trials)?;
        machine.listen_on(self.port);
        machine.give(given);
        Ok(Examination::new(
            machine,
            examination.load,
            self.connections,
        ))
    }

    fn examine(&self, load: Load) -> Result<Examination, ProbeError> {
        let mut machine = match &self.root {
            None => examine(&Probe::system())?,
            Some(root) => {
                let cost = ConnectionCost::assumed("it is not this machine");
                Probe::under(root).machine(cost)?
            }
        };
        machine.listen_on(self.port);
        Ok(Examination::new(machine, load, self.connections))
    }
}

#[cfg(test)]
mod tests {
    use super::unit_name;

    #[test]
    fn a_bare_unit_is_a_service() {
        assert_eq!(unit_name("nginx").unwrap(), "nginx.service");
        assert_eq!(unit_name("nginx.service").unwrap(), "nginx.service");
        assert_eq!(unit_name("app@1.2").unwrap(), "app@1.2.service");
        assert!(unit_name("nginx.socket").unwrap_err().contains(".service"));
        assert!(unit_name("../x").is_err());
    }
}

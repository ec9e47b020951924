//! What happens before the first start: a check of the programs it needs, its build, its version.

use crate::failure::Failure;
use crate::failure_text;
use crate::guard::Guard;
use crate::manifest::Contestant;
use myriad_demo::process::{Launch, Output, Process};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
/// A build has nothing to save, so a short time is enough.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the build commands, one after the other.
pub(crate) fn build(contestant: &Contestant, guard: &Guard<'_>) -> Result<(), Failure> {
    needs(contestant)?;
    for command in &contestant.build {
        run(contestant, command, guard)?;
    }
    Ok(())
}

fn needs(contestant: &Contestant) -> Result<(), Failure> {
    let missing: Vec<&str> = contestant
        .needs
        .iter()
        .map(String::as_str)
        .filter(|command| !on_path(command))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Missing {
        commands: missing.join(", "),
        hint: contestant.needs_hint.clone(),
    })
}

fn on_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).is_file())
}

fn run(contestant: &Contestant, command: &[String], guard: &Guard<'_>) -> Result<(), Failure> {
    let failed = |why: String| Failure::Build {
        command: command.join(" "),
        why,
    };
    let launch = Launch {
        through: guard.through(),
        folder: Some(&contestant.folder),
        command,
        environment: BTreeMap::new(),
        output: Output::Keep,
        ready_words: "",
    };
    let mut process =
        Process::start(&launch).map_err(|error| failed(format!("could not be run: {error}")))?;
    let deadline = Instant::now() + Duration::from_secs(contestant.build_seconds_max);
    let status = loop {
        if let Some(status) = process.wait_for_end(POLL) {
            break status;
        }
        if guard.interrupted() {
            process.stop(Signal::TERM, STOP_PATIENCE);
            return Err(Failure::Interrupted);
        }
        if Instant::now() > deadline {
            process.stop(Signal::TERM, STOP_PATIENCE);
            return Err(failed(format!(
                "took over {} s",
                contestant.build_seconds_max
            )));
        }
    };
    if status.success() {
        return Ok(());
    }
    Err(failed(format!(
        "ended ({status}): {}",
        failure_text::of(&process)
    )))
}

/// The pinned version, or the one that the installed program prints.
pub(crate) fn version(contestant: &Contestant, myriad: &Path) -> Result<String, Failure> {
    let (Some((program, arguments)), Some(pattern)) = (
        contestant.version_command.split_first(),
        &contestant.version_pattern,
    ) else {
        return Ok(contestant.version.clone());
    };
    let own = myriad.to_string_lossy();
    let program = if program == "{myriad}" {
        &own
    } else {
        program.as_str()
    };
    let said = output(program, arguments, &contestant.folder);
    pattern
        .finds(&said)
        .next()
        .map(str::to_owned)
        .ok_or_else(|| Failure::Version {
            command: contestant.version_command.join(" "),
            said: failure_text::last(said.lines()),
        })
}

/// Both outputs of a program that ends by itself, or why there is none.
pub(crate) fn output(program: &str, arguments: &[String], folder: &Path) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    if folder.is_dir() {
        command.current_dir(folder);
    }
    match command.output() {
        Ok(output) => {
            let mut said = output.stdout;
            said.extend(output.stderr);
            String::from_utf8_lossy(&said).into_owned()
        }
        Err(error) => format!("`{program}`: {error}"),
    }
}

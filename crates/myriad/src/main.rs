//! The command line of Myriad: arguments, config files, exit codes. No logic.
#![forbid(unsafe_code)]

mod advice;
mod command_line;
mod commands;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use myriad_layout::Paint;
use std::fmt::Display;
use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

/// Arguments, or a config file, that cannot be used.
const BAD_ARGUMENTS: u8 = 104;

/// The commit that the program was built from, or `unknown`: `build.rs` finds it.
const COMMIT: &str = env!("BUILD_COMMIT");

/// What `--version` says.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("BUILD_COMMIT"),
    ")"
);

/// Holds a million connections, and shows it.
#[derive(Parser)]
#[command(name = "myriad", version = VERSION, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A push server: holds client connections and delivers publications to them
    Serve(Box<commands::serve::Arguments>),
    /// A config file with every default, the check of one, and one made of Centrifugo's
    Config(commands::config::Arguments),
    /// A token (JWT) for trying things out, signed with a secret
    Token(commands::token::Arguments),
    /// A crowd of clients for any WebSocket, HTTP or TCP server: connects, receives, and reports what it saw
    Swarm(Box<commands::swarm::Arguments>),
    /// What this machine allows, what stops you first, and what to do about it
    Doctor(Box<commands::doctor::Arguments>),
    /// Opens as many connections on this machine as it allows, and pushes to all of them
    Demo(Box<commands::demo::Arguments>),
    /// Computes how many connections a chain of machines carries, its weakest hop, and the nodes that more connections need
    Plan(Box<commands::plan::Arguments>),
    /// Runs servers of other frameworks under the same crowd, and compares them
    Arena(Box<commands::arena::Arguments>),
    /// Completions of this command line for a shell
    Completions(commands::completions::Arguments),
    /// Manual pages, one for each command
    Man(commands::man::Arguments),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) => {
            return explain(&advice::advise(error, &Line::command(), &words));
        }
    };
    match line.command {
        Command::Serve(arguments) => commands::serve::run(*arguments),
        Command::Config(arguments) => commands::config::run(arguments),
        Command::Token(arguments) => commands::token::run(arguments),
        Command::Swarm(arguments) => commands::swarm::run(*arguments, &words),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Demo(arguments) => commands::demo::run(*arguments),
        Command::Plan(arguments) => commands::plan::run(*arguments),
        Command::Arena(arguments) => commands::arena::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments, Line::command()),
        Command::Man(arguments) => commands::man::run(&arguments, Line::command()),
    }
}

/// Says something on stderr. That nobody reads it is no reason to end, nor for another exit code.
fn say(words: impl Display) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

/// Whether what goes to stdout is coloured, as its terminal and the environment wish.
fn stdout_paint() -> Paint {
    let no_color = std::env::var("NO_COLOR").ok();
    let term = std::env::var("TERM").ok();
    let is_terminal = std::io::stdout().is_terminal();
    Paint::choose(is_terminal, no_color.as_deref(), term.as_deref())
}

/// Help and version are successes, also when whoever reads them has closed the pipe.
fn explain(error: &clap::Error) -> ExitCode {
    // A closed pipe has read enough, and there is nowhere else to say anything.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(BAD_ARGUMENTS),
    }
}

#[cfg(test)]
mod tests {
    use super::Line;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn the_help_of_the_crowd_names_every_kind_of_target() {
        let mut line = Line::command();
        let swarm = line.find_subcommand_mut("swarm").expect("it is there");
        let help = swarm.render_long_help().to_string();
        for scheme in ["ws", "wss", "http", "https", "tcp", "tls"] {
            let is_named = help.contains(&format!("{scheme}://"));
            assert!(is_named, "{scheme}");
        }
    }
}

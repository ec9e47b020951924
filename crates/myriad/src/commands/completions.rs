//! `myriad completions`: the script that completes this command line in a shell.

use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints the completions of a shell.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Put them where your shell looks, and start a new one:\n\
                  \x20 bash  myriad completions bash > ~/.local/share/bash-completion/completions/myriad\n\
                  \x20 zsh   myriad completions zsh > ~/.zfunc/_myriad, with fpath+=~/.zfunc before compinit in ~/.zshrc\n\
                  \x20 fish  myriad completions fish > ~/.config/fish/completions/myriad.fish\n\
                  Exit codes: 0 printed, 104 bad arguments.")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for a shell.
pub(crate) fn run(arguments: &Arguments, mut line: Command) -> ExitCode {
    // Into memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    let name = line.get_name().to_owned();
    clap_complete::generate(arguments.shell, &mut line, name, &mut script);
    // Whoever closes the pipe has read enough.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}

//! `myriad swarm compare`: two reports beside each other.

use super::EXIT_THRESHOLD;
use crate::{BAD_ARGUMENTS, say, stdout_paint};
use clap::Args;
use myriad_layout::terminal_columns;
use myriad_swarm::{Comparison, read_report};
use myriad_units::parse::share;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Clone, Debug)]
pub(super) struct CompareArguments {
    /// The report before, as --json has written it
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The report after
    #[arg(value_name = "B.json")]
    after: PathBuf,
    /// Largest change that is taken for noise, as a share of the first report's figure
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share)]
    tolerance: f64,
}

/// Prints the table. The exit code is 99 if a figure got worse.
pub(super) fn run(arguments: &CompareArguments) -> ExitCode {
    let reports = read_report(&arguments.before)
        .and_then(|before| Ok((before, read_report(&arguments.after)?)));
    let (before, after) = match reports {
        Ok(reports) => reports,
        Err(error) => {
            say(format_args!("error: {error}"));
            return ExitCode::from(BAD_ARGUMENTS);
        }
    };
    let comparison = Comparison::of(("A", &before), ("B", &after), arguments.tolerance);
    let out = std::io::stdout();
    let columns = terminal_columns(&out).unwrap_or(usize::MAX);
    let text = format!("\n{}\n", comparison.render(columns, stdout_paint()));
    // A reader that has seen enough, such as `head`, is no failure.
    let _ = out.lock().write_all(text.as_bytes());
    if comparison.got_worse() {
        ExitCode::from(EXIT_THRESHOLD)
    } else {
        ExitCode::SUCCESS
    }
}

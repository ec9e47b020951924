//! Scenario files on the command line: a first one, their schema, and what options go beside one.

use super::{Arguments, What};
use crate::{BAD_ARGUMENTS, say};
use myriad_swarm::{
    STARTER, Scenario, ScenarioError, key_of_option, report_schema, schema, search_schema,
};
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Options that go beside a scenario: the run's size, this machine, and where reports go. All others are keys of the file.
const BESIDE: [&str; 28] = [
    "--set",
    "--var",
    "--env",
    "--connections",
    "-c",
    "--duration",
    "--threads",
    "--driver",
    "--source-ip",
    "--live",
    "--no-tui",
    "--metrics-listen",
    "--json",
    "--hgrm",
    "--hlog",
    "--html",
    "--lang",
    "--samples",
    "--server-pid",
    "--server-metrics",
    "--threshold",
    "--abort-on-fail",
    "--vus",
    "--nats",
    "--nats-creds",
    "--agents",
    "--agents-wait",
    "--help",
];

/// Why a scenario is no run.
pub(super) enum Refused {
    /// A scenario and something else.
    NotAlone,
    /// Changes of a scenario, and no scenario.
    SetAlone,
    /// Agents, and no scenario.
    AgentsAlone,
    /// An option that a scenario has a key for.
    Option(String),
    Scenario(ScenarioError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAlone => {
                f.write_str("a scenario stands alone; write the URLs into its terminals.targets")
            }
            Self::SetAlone => f.write_str(
                "--set and --var change a scenario; give the file of one, or use options",
            ),
            Self::AgentsAlone => f.write_str(
                "--nats runs a scenario with agents; write the run into a file (myriad swarm init)",
            ),
            Self::Option(option) => match key_of_option(option) {
                Some(key) => write!(
                    f,
                    "{option} does not go beside a scenario; change its key with --set {key}={}",
                    if option == "--insecure" {
                        "true"
                    } else {
                        "VALUE"
                    }
                ),
                None => write!(
                    f,
                    "{option} does not go beside a scenario; change its key with --set KEY=VALUE (docs/scenarios.md has the keys)"
                ),
            },
            Self::Scenario(error) => error.fmt(f),
        }
    }
}

/// The scenario that the command line names; none where it has URLs.
pub(super) fn of(arguments: &Arguments, given: &[String]) -> Result<Option<Scenario>, Refused> {
    let path = arguments.what.iter().find_map(|what| match what {
        What::Scenario(path) => Some(path),
        What::Target(_) => None,
    });
    let Some(path) = path else {
        return match arguments.changes.sets()[..] {
            _ if arguments.fleet.is_wanted() => Err(Refused::AgentsAlone),
            [] => Ok(None),
            _ => Err(Refused::SetAlone),
        };
    };
    if arguments.what.len() > 1 {
        return Err(Refused::NotAlone);
    }
    if let Some(option) = given.iter().find_map(|word| foreign_option(word)) {
        return Err(Refused::Option(option.to_owned()));
    }
    let scenario = Scenario::load(path, &arguments.changes.sets());
    let scenario = scenario.and_then(|scenario| match arguments.connections {
        Some(count) => scenario.with_count(count),
        None => Ok(scenario),
    });
    scenario.map(Some).map_err(Refused::Scenario)
}

/// The option that a word is, if it does not go beside a scenario.
fn foreign_option(word: &str) -> Option<&str> {
    // The options with a letter of their own that do not.
    let of_letter = [("-H", "--header"), ("-k", "--insecure")];
    if let Some((_, option)) = of_letter
        .iter()
        .find(|(letter, _)| word.starts_with(letter))
    {
        return Some(option);
    }
    let option = word
        .split('=')
        .next()
        .filter(|name| name.starts_with("--"))?;
    (!BESIDE.contains(&option)).then_some(option)
}

/// Writes the first scenario, which must not take the place of anything.
pub(super) fn init(path: &Path) -> ExitCode {
    if path.as_os_str() == "-" {
        return print(STARTER);
    }
    if path.extension().is_none_or(|end| end != "toml") {
        say(format_args!(
            "error: the name of a scenario ends in .toml; write myriad swarm init {}",
            path.with_extension("toml").display()
        ));
        return ExitCode::from(BAD_ARGUMENTS);
    }
    let written =
        std::fs::File::create_new(path).and_then(|mut file| file.write_all(STARTER.as_bytes()));
    match written {
        Ok(()) => {
            let path = path.display();
            say(format_args!(
                "{path} is written; start `myriad serve --dev`, then `myriad swarm {path}`"
            ));
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            say(format_args!(
                "error: {} exists; give another name: myriad swarm init FILE",
                path.display()
            ));
            ExitCode::from(BAD_ARGUMENTS)
        }
        Err(error) => {
            say(format_args!(
                "error: {} cannot be written ({error}); check the folder and its permissions",
                path.display()
            ));
            ExitCode::FAILURE
        }
    }
}

/// Prints the schema of reports, or that of searches, or that of scenarios.
pub(super) fn print_schema(of_reports: bool, of_searches: bool) -> ExitCode {
    let schema = match (of_reports, of_searches) {
        (true, _) => report_schema(),
        (_, true) => search_schema(),
        _ => schema(),
    };
    print(&format!("{schema}\n"))
}

/// Prints a text. A closed pipe has read enough.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!(
                "error: standard output cannot be written ({error})"
            ));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_beside_a_scenario_are_those_of_the_machine_and_of_reports() {
        for word in [
            "--json",
            "--json=a",
            "-c",
            "x.toml",
            "--set=a=b",
            "--threshold=lost==0",
        ] {
            assert_eq!(foreign_option(word), None, "{word}");
        }
        assert_eq!(foreign_option("--echo=5"), Some("--echo"));
        assert_eq!(foreign_option("-HA: b"), Some("--header"));
        assert_eq!(foreign_option("-k"), Some("--insecure"));
        for (option, change) in [
            ("--insecure", "--set tls.insecure=true"),
            ("--echo", "--set echo.rate=VALUE"),
            ("--churn", "--set churn.rate=VALUE"),
            ("--spread", "--set publish.spread=VALUE"),
        ] {
            let said = Refused::Option(option.to_owned()).to_string();
            assert!(said.ends_with(change), "{said}");
        }
    }
}

//! What the parser of arguments does not say by itself.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// Adds a tip for a value that follows its flag after a space where the flag wants `=`, as in `--dev no`: such a value is
/// taken for an argument of its own, and refused without a word about the flag.
pub(crate) fn advise(mut error: clap::Error, command: &Command, words: &[String]) -> clap::Error {
    let tip = equals_tip(&error, command, words).or_else(|| other_word_tip(&error, words));
    if let Some(tip) = tip {
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

fn equals_tip(error: &clap::Error, command: &Command, words: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if value.starts_with('-') {
        // Another flag, which is a mistake of its own.
        return None;
    }
    let command = words
        .iter()
        .find_map(|word| command.find_subcommand(word))?;
    let wants_equals = |flag: &str| {
        let name = flag.strip_prefix("--")?;
        let mut flags = command
            .get_arguments()
            .filter(|arg| arg.get_long() == Some(name));
        flags.find(|arg| arg.is_require_equals_set())
    };
    let pairs = words.iter().zip(words.iter().skip(1));
    let mut flags = pairs
        .filter(|(_, next)| *next == value)
        .filter_map(|(flag, _)| Some((flag, wants_equals(flag)?)));
    let (flag, arg) = flags.next()?;
    Some(format!("write {flag}={}", meant(arg, value)))
}

/// What `swarm` has for flags of k6, wrk, wrk2, hey and oha.
const OF_OTHER_TOOLS: [(&[&str], &str); 2] = [
    (
        &["--rps", "--rate", "--qps", "-R", "-q"],
        "a rate belongs to what is sent: give --echo RATE, --request-rate RATE with --request URL, or `rate` of a flow in a scenario",
    ),
    (
        &["-n", "--requests", "--iterations", "-i"],
        "a run lasts for a time: give --duration TIME (-d), and a rate such as --echo RATE or --request-rate RATE",
    ),
];

/// The way to do here what a flag of another tool asks for.
fn other_word_tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let is_swarm = words.get(1).is_some_and(|word| word == "swarm");
    if !is_swarm || error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut of_others = OF_OTHER_TOOLS.iter();
    let (_, tip) = of_others.find(|(flags, _)| flags.contains(&flag.as_str()))?;
    Some((*tip).to_owned())
}

/// The value as the flag takes it: `no` is `false` to one that takes only `true` and `false`.
fn meant<'a>(arg: &Arg, value: &'a str) -> &'a str {
    let possible = arg.get_possible_values();
    let takes = |word: &str| possible.iter().any(|value| value.matches(word, true));
    match value.to_ascii_lowercase().as_str() {
        "no" | "off" | "0" if takes("false") => "false",
        "yes" | "on" | "1" if takes("true") => "true",
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::advise;
    use crate::Line;
    use clap::{CommandFactory as _, Parser as _};

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Err(error) = Line::try_parse_from(&words) else {
            panic!("{line}: accepted");
        };
        advise(error, &Line::command(), &words).to_string()
    }

    #[test]
    fn a_value_after_a_space_is_shown_with_its_equals_sign() {
        for (line, tip) in [
            ("myriad serve --dev no", "tip: write --dev=false"),
            (
                "myriad serve --anonymous Yes",
                "tip: write --anonymous=true",
            ),
            ("myriad serve --dev false", "tip: write --dev=false"),
            ("myriad arena --largest 30k", "tip: write --largest=30k"),
        ] {
            let said = said(line);
            assert!(said.contains(tip), "{line}: {said}");
        }
    }

    #[test]
    fn flags_of_other_tools_lead_to_what_is_given_here() {
        for (flags, tip) in [
            ("--rps 100", "--request-rate RATE"),
            ("--rate=100", "--echo RATE"),
            ("-R1000", "--echo RATE"),
            ("-q 5", "--echo RATE"),
            ("-n 100", "--duration TIME"),
        ] {
            let said = said(&format!("myriad swarm ws://127.0.0.1:1/ {flags}"));
            assert!(said.contains(tip), "{flags}: {said}");
            assert!(!said.contains("as a value"), "{flags}: {said}");
        }
        let said = said("myriad arena -n 100");
        assert!(!said.contains("--duration TIME"), "{said}");
    }

    #[test]
    fn other_mistakes_get_no_such_tip() {
        for line in [
            "myriad serve no",
            "myriad serve --shards 1 no",
            "myriad serve --dev --nonsense",
            "myriad nonsense",
        ] {
            let said = said(line);
            assert!(!said.contains("tip: write"), "{line}: {said}");
        }
    }
}

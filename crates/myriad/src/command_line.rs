//! The command line as a report shows it: as a shell reads it, and without what is secret. Reports are passed on.

/// Options whose value is a secret.
const SECRET_OPTIONS: [&str; 2] = ["--api-key", "--token"];

/// Options whose value is a name and something that may be secret, by the sign between the two.
const NAMED_OPTIONS: [(&str, char); 5] = [
    ("--header", ':'),
    ("-H", ':'),
    ("--set", '='),
    ("--var", '='),
    ("--env", '='),
];

/// Words in the name of something secret.
const SECRET_WORDS: [&str; 7] = [
    "auth", "cookie", "key", "password", "pass", "secret", "token",
];

/// What stands in the place of a secret.
const MASK: &str = "***";

/// The command line of these words, the first of which is the program.
pub(crate) fn shown(words: &[String]) -> String {
    let mut shown = vec!["myriad".to_owned()];
    let mut option = "";
    for word in words.iter().skip(1) {
        let masked = match word.split_once('=') {
            Some((name, value)) if word.starts_with("--") => {
                format!("{name}={}", masked(name, value))
            }
            _ => masked(option, word),
        };
        option = word;
        shown.push(quoted(&masked));
    }
    shown.join(" ")
}

/// The value of an option without what is secret in it.
fn masked(option: &str, value: &str) -> String {
    if SECRET_OPTIONS.contains(&option) {
        return MASK.to_owned();
    }
    let mut named = NAMED_OPTIONS.iter();
    let named =
        named.find_map(|(name, sign)| (*name == option).then(|| value.split_once(*sign))?);
    if let Some((name, _)) = named {
        let small = name.to_ascii_lowercase();
        if SECRET_WORDS.iter().any(|word| small.contains(word)) {
            let sign = &value[name.len()..=name.len()];
            return format!("{name}{sign}{MASK}");
        }
    }
    without_user(value)
}

/// A URL without the user and password in it.
fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// A word as a shell reads it as one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_and_has_no_secret() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |given: &[&str]| shown(&words(&[&["/usr/bin/myriad", "swarm"], given].concat()));
        assert_eq!(
            of(&["a.toml", "--html", "a b.html"]),
            "myriad swarm a.toml --html 'a b.html'"
        );
        assert_eq!(of(&["ws://h/?a=b&c=d"]), "myriad swarm 'ws://h/?a=b&c=d'");
        assert_eq!(
            of(&["--threshold", "it's"]),
            "myriad swarm --threshold 'it'\\''s'"
        );
        let secrets = [
            (&["--api-key", "S3"][..], "--api-key '***'"),
            (&["--api-key=S3"], "'--api-key=***'"),
            (&["--token", "S3"], "--token '***'"),
            (&["-H", "Authorization: S3"], "-H 'Authorization:***'"),
            (&["--header=Cookie: S3"], "'--header=Cookie:***'"),
            (
                &["--set", "variables.api-key=S3"],
                "--set 'variables.api-key=***'",
            ),
            (
                &["--nats", "nats://ann:S3@host:4222"],
                "--nats 'nats://***@host:4222'",
            ),
        ];
        for (given, expected) in secrets {
            assert_eq!(of(given), format!("myriad swarm {expected}"));
        }
        assert_eq!(
            of(&["--key", "echo.rate", "-H", "X: 1"]),
            "myriad swarm --key echo.rate -H 'X: 1'"
        );
    }
}

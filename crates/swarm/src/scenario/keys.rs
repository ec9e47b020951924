//! The keys of a scenario by the options of the command line, which the checks of a run speak of.

use crate::nearest::nearest;

/// Each option that has a key.
const KEYS: [(&str, &str); 57] = [
    ("--connections", "terminals.count"),
    ("--protocol", "terminals.protocol"),
    ("--token", "terminals.token"),
    ("--tokens", "terminals.tokens-file"),
    ("--channel", "terminals.channels"),
    ("--channels", "terminals.channel-count"),
    ("--connect-rate", "arrival.rate"),
    ("--ramp", "arrival.ramp"),
    ("--stage", "arrival.stages"),
    ("--at-once", "arrival.at-once"),
    ("--connecting-max", "arrival.connecting-max"),
    ("--connect-timeout", "arrival.connect-timeout"),
    ("--handshake-timeout", "arrival.handshake-timeout"),
    ("--retries", "arrival.retries"),
    ("--duration", "hold.duration"),
    ("--warmup", "hold.warmup"),
    ("--settle", "hold.settle"),
    ("--threads", "generator.threads"),
    ("--driver", "generator.driver"),
    ("--source-ip", "generator.source-ip"),
    ("--ca", "tls.ca"),
    ("--insecure", "tls.insecure"),
    ("--tls-resume", "tls.resume"),
    ("--header", "terminals.headers"),
    ("--request-body", "terminals.request-body"),
    ("--poll-position", "terminals.poll-position"),
    ("--expect-held", "terminals.expect-held"),
    ("--compression", "terminals.compression"),
    ("--recover-from", "terminals.recover-from"),
    ("--close", "terminals.close"),
    ("--heartbeat", "heartbeat.every"),
    ("--churn", "churn.rate"),
    ("--storm", "storm"),
    ("--stall", "stall.share"),
    ("--vanish", "vanish.share"),
    ("--reconnect", "reconnect.lost"),
    ("--backoff", "reconnect.backoff"),
    ("--reconnect-attempts", "reconnect.attempts"),
    ("--publish", "publish.urls"),
    ("--every", "publish.every"),
    ("--spread", "publish.spread"),
    ("--pushes", "publish.pushes"),
    ("--payload-size", "publish.payload-size"),
    ("--payload", "publish.payload"),
    ("--publish-body", "publish.body"),
    ("--publish-type", "publish.content-type"),
    ("--publish-channel", "publish.channels"),
    ("--api-key", "publish.api-key"),
    ("--echo", "echo.rate"),
    ("--echo-size", "echo.size"),
    ("--client-publish", "client-publish.rate"),
    ("--client-publish-size", "client-publish.size"),
    ("--request", "requests.urls"),
    ("--request-rate", "requests.rate"),
    ("--request-connections", "requests.connections"),
    ("--threshold", "thresholds"),
    ("--abort-on-fail", "abort-on-fail"),
];

/// A message about options, as one about keys.
pub(super) fn in_keys(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find("--") {
        let option = option_at(&rest[at..]);
        out.push_str(&rest[..at]);
        out.push_str(key_of_option(option).unwrap_or(option));
        rest = &rest[at + option.len()..];
    }
    out.push_str(rest);
    out
}

/// The key of the first option that a message names, which is the one that it is about.
pub(super) fn first_key(message: &str) -> Option<&'static str> {
    let at = message.find("--")?;
    key_of_option(option_at(&message[at..]))
}

fn option_at(text: &str) -> &str {
    let end = text.find(|c: char| !(c == '-' || c.is_ascii_lowercase()));
    &text[..end.unwrap_or(text.len())]
}

/// The key of a scenario that an option of the command line is, such as `tls.insecure` of `--insecure`.
#[must_use]
pub fn key_of_option(option: &str) -> Option<&'static str> {
    let found = KEYS.iter().find(|(known, _)| *known == option);
    found.map(|(_, key)| *key)
}

/// The key that somebody has probably meant; none where this one exists.
pub(crate) fn nearest_key(key: &str) -> Option<String> {
    let known: Vec<String> = KEYS.iter().map(|(_, key)| (*key).to_owned()).collect();
    nearest(key, &known).filter(|nearest| nearest != key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_options_becomes_one_about_keys() {
        let message = "--echo needs --protocol raw; the --duration, and --warmup.";
        assert_eq!(
            in_keys(message),
            "echo.rate needs terminals.protocol raw; the hold.duration, and hold.warmup."
        );
        assert_eq!(first_key(message), Some("echo.rate"));
        assert_eq!(in_keys("nothing -- at all"), "nothing -- at all");
        let meant = nearest_key("terminals.cuont");
        assert_eq!(meant.as_deref(), Some("terminals.count"));
        assert_eq!(nearest_key("terminals.count"), None);
        assert_eq!(nearest_key("flows.chat.rate"), None);
    }

    #[test]
    fn every_key_is_one_of_the_format() {
        let schema = crate::scenario::schema();
        let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
        for (option, key) in KEYS {
            let Some((section, name)) = key.split_once('.') else {
                assert!(schema["properties"][key].is_object(), "{option}: {key}");
                continue;
            };
            let property = &schema["properties"][section];
            let reference = property["$ref"]
                .as_str()
                .or_else(|| property["anyOf"][0]["$ref"].as_str());
            let definition = reference.expect(section).trim_start_matches("#/$defs/");
            let found = &schema["$defs"][definition]["properties"][name];
            assert!(found.is_object(), "{option}: {key}");
        }
    }

    #[test]
    fn every_option_that_the_checks_speak_of_has_a_key() {
        let source = include_str!("../config_error.rs");
        let outputs = ["--json", "--hgrm", "--live"];
        for (at, _) in source.match_indices("--") {
            let option = option_at(&source[at..]);
            let is_known = key_of_option(option).is_some() || outputs.contains(&option);
            assert!(is_known || option == "--", "{option}");
        }
    }
}

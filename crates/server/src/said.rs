//! What is said whatever the log's level is: that the server is ready, a key that it made, and a panic.
//!
//! With a log of JSON these are objects like its lines, so that whoever collects the log can read all of stderr.

use crate::announce::rfc3339_us;
use crate::config::LogFormat;
use serde::Serialize;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::time::{Duration, SystemTime};

/// A line like those of the log.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    message: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backtrace: Option<String>,
}

fn line(level: &str, message: &str, backtrace: Option<String>) -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let line = Line {
        timestamp: rfc3339_us(since_1970.unwrap_or(Duration::ZERO)),
        level,
        message,
        target: "myriad_server",
        backtrace,
    };
    // Text can always be written as JSON.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Says something on stderr. A closed stderr is no reason not to serve.
pub(crate) fn say(format: LogFormat, words: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = match format {
        LogFormat::Text => writeln!(stderr, "{words}"),
        LogFormat::Json => writeln!(stderr, "{}", line("INFO", words, None)),
    };
}

/// Has panics of all threads written as lines of JSON.
pub(crate) fn panics_as_json() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(std::io::stderr().lock(), "{}", line_of(panic));
    }));
}

fn line_of(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>").to_owned();
    let place = panic.location().map(ToString::to_string);
    let place = place.unwrap_or_else(|| "an unknown place".into());
    let words = panic.payload_as_str().unwrap_or("Box<dyn Any>");
    // As with the default hook, RUST_BACKTRACE decides.
    let backtrace = Backtrace::capture();
    let is_there = backtrace.status() == BacktraceStatus::Captured;
    line(
        "ERROR",
        &format!("thread '{name}' panicked at {place}: {words}"),
        is_there.then(|| backtrace.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_whatever_the_words_are() {
        let line = line(
            "ERROR",
            "thread 'a\n' said \"b\"",
            Some("1: c\n2: d".into()),
        );
        assert!(!line.contains('\n'), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["level"], "ERROR");
        assert_eq!(read["message"], "thread 'a\n' said \"b\"");
        assert_eq!(read["backtrace"], "1: c\n2: d");
        assert!(read["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}

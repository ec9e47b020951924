//! What makes the figures of a run less trustworthy, and what to do about its failures.

use crate::config::Answered;
use crate::engine::flows::mark::MarkPlace;
use crate::engine::flows::plan::Audience;
use crate::engine::flows::unstamped::Unstamped;
use crate::engine::tls::TlsFailure;
use crate::failure::Failure;
use crate::measure::figures::as_millis;
use crate::measure::process::{LATE_MAX, SATURATED_SHARE};
use crate::measure::round_trip::Counts;
use crate::report::text;
use crate::run::{Figures, Run, name_of_close};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of what a server said that a sentence quotes.
const SAID_BYTES_MAX: usize = 400;

impl Run<'_> {
    /// What makes the figures less trustworthy, and what to do about failures.
    pub(super) fn warnings(&self, figures: &Figures) -> Vec<String> {
        let mut warnings = Vec::new();
        let (watch, totals) = (&self.watch, &figures.totals);
        if watch.saturated_seconds > 0 {
            warnings.push(format!(
                "the crowd itself was short of CPU in {} of {} (at most {} of what its threads can use): times and rates may be its limit and not the server's; give it more cores, or a machine of its own",
                watch.saturated_seconds,
                text::counted(watch.seconds, "second"),
                text::share(watch.share_max)
            ));
        }
        if let Some(link) = &self.link {
            warnings.extend(super::fleet::warnings(&link.report()));
        }
        self.warn_of_saturation(&mut warnings);
        self.warn_of_connecting(figures, &mut warnings);
        if self.plan.tls.is_some() && self.config.tls.is_insecure {
            warnings.push(
                "the certificates of servers were not verified (--insecure): anybody could have answered in their place, and a client of yours would take longer for its handshake".to_owned(),
            );
        }
        if totals.churn_forgone > 0 {
            warnings.push(format!(
                "{} due to leave by --churn did not, because too many were still being replaced or the crowd had no CPU: the churn was lower than asked for",
                text::counted(totals.churn_forgone, "client")
            ));
        }
        if totals.replacements_given_up > 0 {
            warnings.push(format!(
                "{} of those that left could not be replaced; see the errors",
                text::count(totals.replacements_given_up)
            ));
        }
        warnings.extend(
            figures
                .failures
                .keys()
                .filter_map(|failure| advice(*failure, figures)),
        );
        self.warn_of_reopened(figures, &mut warnings);
        if self.plan.session.is_none() {
            let closed = |code| {
                figures
                    .closes
                    .get(&Some(code))
                    .map_or(0, |closes| closes.count)
            };
            warnings.extend(hint_of_protocol(closed, totals.lost, totals.open));
        }
        self.warn_of_answered(figures, &mut warnings);
        self.warn_of_requests(&mut warnings);
        self.warn_of_callers(&mut warnings);
        self.warn_of_unstamped(figures, &mut warnings);
        self.warn_of_publisher(&mut warnings);
        self.warn_of_server(&mut warnings);
        if self.drain_timed_out {
            warnings.push(
                "closing took too long and was given up; the kernel closes the rest".to_owned(),
            );
        }
        warnings
    }

    fn warn_of_saturation(&self, warnings: &mut Vec<String>) {
        let (fanout, watch) = (self.fanout_figures(), &self.watch);
        warnings.extend(warnings_of_saturation(
            fanout.worst.count,
            fanout.crowd_saturated,
            fanout.machine_saturated,
        ));
        // Pushes are watched one by one, and then it is known which times these seconds are in.
        if fanout.machine_saturated == 0 {
            let full = watch.machine_saturated_seconds;
            warnings.extend(warning_of_machine(full, watch.seconds));
        }
    }

    fn warn_of_connecting(&self, figures: &Figures, warnings: &mut Vec<String>) {
        let totals = &figures.totals;
        let late = |duration: Duration| text::time(as_millis(duration));
        if totals.schedule_late > LATE_MAX {
            warnings.push(format!(
                "the connect schedule was up to {} late because the crowd could not keep it; lower --connect-rate",
                late(totals.schedule_late)
            ));
        }
        if totals.window_late > LATE_MAX {
            warnings.push(format!(
                "the connect schedule was up to {} late because the crowd had the most it may have under way ({}): the server is slower than --connect-rate",
                late(totals.window_late),
                text::counted(u64::from(self.plan.connecting_max), "connection")
            ));
        }
        let ceiling = u64::from(self.plan.connecting_max);
        // Where nobody was upgraded the server was silent, and the window is no part of that.
        let is_slow = totals.opened > 0 && Self::handshakes_timed_out(figures);
        if totals.window_least < ceiling && is_slow {
            warnings.push(format!(
                "connections timed out, so that the crowd had fewer of them under way: {} at the least, instead of {}",
                text::count(totals.window_least),
                text::count(ceiling)
            ));
        }
        if totals.opened < self.config.connections {
            let connected = text::count(totals.opened);
            warnings.push(format!(
                "only {connected} of {} connected",
                text::count(self.config.connections)
            ));
        }
    }

    /// A flow of which nothing was recognised, although something came.
    fn warn_of_unstamped(&self, figures: &Figures, warnings: &mut Vec<String>) {
        let (Some(plan), Some(ledger)) = (&self.plan.flows, &self.shared.flows) else {
            return;
        };
        let Some(example) = &figures.unstamped else {
            return;
        };
        let came = figures.totals.unstamped;
        let flows = plan.flows.iter().zip(ledger.sum());
        warnings.extend(flows.filter_map(|(flow, its)| {
            let is_silent = its.expected > 0 && its.recognised() == 0;
            let is_by_stamp = flow.audience != Audience::Answer;
            (is_silent && is_by_stamp).then(|| unstamped(&flow.name, &flow.place, came, example))
        }));
    }

    /// A client that connects again asks the server for more than one that is held.
    fn warn_of_reopened(&self, figures: &Figures, warnings: &mut Vec<String>) {
        let http = &figures.totals.http;
        let ended = http.reopened + http.reopening;
        if ended == 0 {
            return;
        }
        let reopened = text::counted(ended, "connection");
        if self.config.protocol.has_requests() {
            return warnings.push(format!(
                "{reopened} ended behind an answer or between two: the next request of each client then paid for another one"
            ));
        }
        let what = if http.answers > 0 {
            "behind an answer: every request then pays for a connection"
        } else {
            "of a stream: what was published meanwhile reached its client late, or not at all if the server tells no position"
        };
        warnings.push(format!("the server ended {reopened} {what}"));
    }

    fn handshakes_timed_out(figures: &Figures) -> bool {
        let timeouts = [
            Failure::ConnectTimeout,
            Failure::HandshakeTimeout,
            Failure::SessionTimeout,
            Failure::AnswerTimeout,
            Failure::Tls(TlsFailure::Timeout),
        ];
        timeouts
            .iter()
            .any(|failure| figures.failures.contains_key(failure))
    }

    fn warn_of_answered(&self, figures: &Figures, warnings: &mut Vec<String>) {
        let Some(load) = self.config.answered() else {
            return;
        };
        let (option, _) = load.options();
        let what = match load {
            Answered::Echo(_) => "echoes",
            Answered::ClientPublish(_) => "publications of clients",
        };
        let counts = &figures.answered;
        if counts.late > LATE_MAX {
            warnings.push(format!(
                "{what} were sent up to {} after they were due because the crowd had no CPU for them, and that is part of their times; lower {option}, or give it more cores",
                text::time(as_millis(counts.late))
            ));
        }
        let gone = figures.totals.lost + figures.totals.impatient;
        let why = match gone {
            0 => format!("too many were unanswered or unsent: the server is slower than {option}"),
            gone => format!(
                "{} ended meanwhile, and too few were left to send them",
                text::counted(gone, "connection")
            ),
        };
        warnings.extend(warnings_of_schedule(what, counts, &why));
    }

    fn warn_of_requests(&self, warnings: &mut Vec<String>) {
        let Some(requester) = &self.requester else {
            return;
        };
        let progress = requester.progress();
        let why = "every connection waited for an answer: the server is slower than --request-rate, or --request-connections are too few";
        warnings.extend(warnings_of_schedule(
            "requests",
            &progress.trips.counts,
            why,
        ));
        warnings.extend(warnings_of_urls(
            "requests to",
            &progress.failures,
            &progress.trouble,
        ));
    }

    fn warn_of_callers(&self, warnings: &mut Vec<String>) {
        for (flow, requests) in &self.callers {
            let Some(plan) = &self.plan.flows else { return };
            let progress = requests.progress();
            let why = "every connection waited for an answer: the server is slower than the flow's rate, or its connections are too few";
            warnings.extend(warnings_of_schedule(
                &format!("requests of the flow {}", plan.flows[*flow].name),
                &progress.trips.counts,
                why,
            ));
            warnings.extend(warnings_of_urls(
                "requests to",
                &progress.failures,
                &progress.trouble,
            ));
        }
    }

    /// A server that was to be watched, and could not be.
    fn warn_of_server(&self, warnings: &mut Vec<String>) {
        let (process, metrics) = self.server.unread();
        let given = &self.config.reporting;
        if let Some(pid) = given.server_pid.filter(|_| process) {
            warnings.push(format!(
                "the process {pid} of --server-pid could not be read, so that the server was not watched: is it the right number, and on this machine?"
            ));
        }
        if let Some(endpoint) = given.server_metrics.as_ref().filter(|_| metrics) {
            warnings.push(format!(
                "nothing that is known came from {} (--server-metrics), so that the server was not watched: is this the path of its metrics, in the text format of Prometheus?",
                endpoint.url
            ));
        }
    }

    fn warn_of_publisher(&self, warnings: &mut Vec<String>) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        let progress = publisher.progress();
        let every = self.config.publish.as_ref().map(|publish| publish.every);
        if progress.late > publish_late_max(every.unwrap_or_default()) {
            warnings.push(format!(
                "the publish schedule was up to {} late, and that is part of the times: answers took longer than the schedule allows, or the publisher had no CPU",
                text::time(as_millis(progress.late))
            ));
        }
        warnings.extend(warnings_of_urls(
            "publishing to",
            &progress.failures,
            &progress.trouble,
        ));
    }
}

/// Lateness of the publish schedule above which the pushes were not those that were asked for.
fn publish_late_max(every: Duration) -> Duration {
    LATE_MAX.min(every / 2)
}

/// Of so many seconds, some in which the machine had no rest.
fn warning_of_machine(full: u64, seconds: u64) -> Option<String> {
    (full > 0).then(|| {
        format!(
            "this machine had no processor left in {} of {}: if server and crowd share it, times contain both, and the rates are those of both together",
            text::count(full),
            text::counted(seconds, "second")
        )
    })
}

/// Of so many pushes, some in which a thread of the crowd had no rest, and some in which the machine had none.
fn warnings_of_saturation(pushes: u64, crowd: u64, machine: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    let (of, limit) = (text::counted(pushes, "push"), text::share(SATURATED_SHARE));
    if crowd > 0 {
        warnings.push(format!(
            "a thread of the crowd was above {limit} of its processor during {} of {of}: their times may be its limit and not the server's",
            text::count(crowd)
        ));
    }
    if machine > 0 {
        warnings.push(format!(
            "this machine had no processor left during {} of {of}: if server and crowd share it, these times contain both",
            text::count(machine)
        ));
    }
    warnings
}

/// What to do about each kind of failure, and the last trouble with each URL.
fn warnings_of_urls(
    what: &str,
    failures: &BTreeMap<Failure, u64>,
    trouble: &BTreeMap<String, String>,
) -> Vec<String> {
    let troubles = trouble
        .iter()
        .map(|(url, trouble)| format!("{what} {url} failed: {trouble}"));
    let steps = failures
        .keys()
        .filter_map(|failure| Some(format!("{failure}: {}", failure.next_step()?)));
    steps.chain(troubles).collect()
}

/// What to do about a failure, and what the server said to it.
fn advice(failure: Failure, figures: &Figures) -> Option<String> {
    let said = figures.answers.get(&failure);
    // The whole is in `server_said`.
    let said = said.map(|said| quoted(said));
    let said = said.as_deref();
    let step = match failure {
        Failure::HandshakeTimeout if figures.totals.opened == 0 => Some(
            "the server accepts connections and answers no upgrade: is this its WebSocket port?",
        ),
        _ => failure.next_step_after(said.unwrap_or_default()),
    };
    match (step, said) {
        (Some(step), Some(said)) => {
            let said = printable(said);
            Some(format!("{failure}: {step}; {}: {said}", whose(failure)))
        }
        (Some(step), None) => Some(format!("{failure}: {step}")),
        (None, Some(said)) => {
            let said = printable(said);
            Some(format!("{failure}: {}: {said}", whose(failure)))
        }
        (None, None) => None,
    }
}

/// As much of what a server said as a sentence quotes. The reason of an answer over HTTP is in its body: of a long head the first line
/// stands for the rest.
fn quoted(said: &[u8]) -> Vec<u8> {
    let head_end = memchr::memmem::find(said, b"\r\n\r\n");
    let line_end = memchr::memmem::find(said, b"\r\n");
    let mut quoted = match (head_end, line_end) {
        (Some(head_end), Some(line_end))
            if said.len() > SAID_BYTES_MAX && said.starts_with(b"HTTP/") =>
        {
            [&said[..line_end], b" ... ", &said[head_end + 4..]].concat()
        }
        _ => said.to_vec(),
    };
    quoted.truncate(SAID_BYTES_MAX);
    quoted
}

/// Who said the words that are quoted.
fn whose(failure: Failure) -> &'static str {
    match failure {
        Failure::Tls(TlsFailure::PlainText) => "the server said",
        Failure::Tls(_) => "in full",
        _ => "the server said",
    }
}

/// Codes with which servers of the Centrifuge client protocol end a connection that sent another message than a
/// command (bad request), or none (stale).
const NO_COMMAND_CODES: [u16; 2] = [3501, 3502];

/// What to do about a server that closed every connection because it waited for commands of a protocol.
fn hint_of_protocol(closed: impl Fn(u16) -> u64, lost: u64, open: u64) -> Option<String> {
    let closed = NO_COMMAND_CODES.map(closed);
    let is_every_one = lost > 0 && open == 0 && closed.iter().sum::<u64>() == lost;
    let codes = NO_COMMAND_CODES.iter().zip(closed);
    let (code, _) = codes.max_by_key(|&(_, count)| count)?;
    is_every_one.then(|| {
        format!(
            "the server closed every connection with {code}: it wants commands of the Centrifuge client protocol at this path, and these clients send none; give --protocol, or a path for clients without one, such as /raw?channel=x"
        )
    })
}

/// What a server said first, by kind of failure, and by code of its close frames.
pub(super) fn server_said(figures: &Figures) -> BTreeMap<String, String> {
    let answers = figures.answers.iter();
    let answers = answers.map(|(failure, said)| (failure.to_string(), printable(said)));
    let closes = figures.closes.iter();
    let reasons = closes.filter(|(_, closes)| !closes.reason.is_empty());
    let reasons = reasons.map(|(code, closes)| {
        let kind = format!("close_{}", name_of_close(*code));
        (kind, printable(closes.reason.as_bytes()))
    });
    answers.chain(reasons).collect()
}

/// What is said of a flow whose stamp was found in none of the messages that came.
fn unstamped(name: &str, place: &MarkPlace, came: u64, example: &Unstamped) -> String {
    let step = match (example.has_stamp, place) {
        (true, MarkPlace::Anywhere) => "The stamp in it is that of another flow",
        (true, _) => {
            "Its stamp is at another place: correct that, or leave it out, and the stamp is looked for anywhere"
        }
        (false, MarkPlace::Anywhere) => {
            "It has no stamp: does the server send what has ${stamp} on as it is?"
        }
        (false, _) => {
            "It has no stamp: does the server send what has ${stamp} on, and in this form?"
        }
    };
    format!(
        "flow {name}: {} came in which no stamp was found, which is looked for {}; {}: {}. {step}",
        text::counted(came, "message"),
        place.describe(),
        if came == 1 { "it" } else { "one of them" },
        printable(&example.message)
    )
}

/// Bytes of a peer as text that is safe to show: whatever is not printable is escaped.
fn printable(bytes: &[u8]) -> String {
    let escape = |c: char| match c {
        '\u{fffd}' | '\\' => c.to_string(),
        // Letters of any language are shown; what moves a cursor or turns the direction of writing is not.
        c if c.is_alphanumeric() || (' '..='~').contains(&c) => c.to_string(),
        c => c.escape_default().to_string(),
    };
    let text = String::from_utf8_lossy(bytes);
    format!(
        "\"{}\"",
        text.trim_end().chars().map(escape).collect::<String>()
    )
}

/// What a schedule of echoes or requests could not keep, and why some had to wait.
fn warnings_of_schedule(what: &str, counts: &Counts, why_held: &str) -> Vec<String> {
    let held = (counts.held > LATE_MAX).then(|| {
        let time = text::time(as_millis(counts.held));
        format!("{what} were sent up to {time} after they were due because {why_held}")
    });
    let unsent = (counts.unsent() > 0).then(|| {
        let unsent = text::count(counts.unsent());
        format!(
            "{unsent} {what} fell due and were never sent, and are in no time, because {why_held}: the times are those of a lower load than asked for"
        )
    });
    held.into_iter().chain(unsent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_and_what_was_never_sent_is_warned_of() {
        let mut counts = Counts {
            due: 9,
            sent: 9,
            held: LATE_MAX,
            ..Counts::default()
        };
        assert_eq!(warnings_of_schedule("echoes", &counts, "so"), [""; 0]);
        (counts.due, counts.held) = (1_009, Duration::from_millis(1_500));
        let warnings = warnings_of_schedule("echoes", &counts, "so");
        assert_eq!(
            warnings[0],
            "echoes were sent up to 1.50 s after they were due because so"
        );
        assert!(
            warnings[1].starts_with(
                "1,000 echoes fell due and were never sent, and are in no time, because so:"
            ),
            "{warnings:?}"
        );
    }

    #[test]
    fn a_server_that_wants_a_protocol_is_told_from_others() {
        let hint = |closes: &[(u16, u64)], lost, open| {
            let closes: BTreeMap<u16, u64> = closes.iter().copied().collect();
            hint_of_protocol(
                |code| closes.get(&code).copied().unwrap_or_default(),
                lost,
                open,
            )
        };
        let stale = hint(&[(3502, 10)], 10, 0).unwrap();
        assert!(
            stale.contains("with 3502:") && stale.contains("Centrifuge"),
            "{stale}"
        );
        let both = hint(&[(3501, 8), (3502, 2)], 10, 0).unwrap();
        assert!(both.contains("with 3501:"), "{both}");
        assert_eq!(hint(&[(3502, 9), (3008, 1)], 10, 0), None);
        assert_eq!(hint(&[(3502, 10)], 10, 1), None);
        assert_eq!(hint(&[], 0, 10), None);
        assert_eq!(hint(&[(3008, 10)], 10, 0), None);
    }

    #[test]
    fn what_a_server_said_can_do_nothing_to_a_terminal() {
        assert_eq!(
            printable(b"<h1>N\xc3\xb6</h1>\x1b[2J\r\nbye\xff\0\n\n"),
            "\"<h1>N\u{f6}</h1>\\u{1b}[2J\\r\\nbye\u{fffd}\\u{0}\""
        );
        assert_eq!(printable("a\u{202e}b".as_bytes()), "\"a\\u{202e}b\"");
    }

    #[test]
    fn the_body_of_an_answer_is_quoted_behind_a_long_head() {
        let said = format!(
            "HTTP/1.1 404 Not Found\r\nx: {}\r\n\r\nno such stream",
            "y".repeat(SAID_BYTES_MAX)
        );
        let quoted = |said: &str| String::from_utf8(quoted(said.as_bytes())).unwrap();
        assert_eq!(quoted(&said), "HTTP/1.1 404 Not Found ... no such stream");
        let short = "HTTP/1.1 404 Not Found\r\nx: y\r\n\r\nno such stream";
        assert_eq!(quoted(short), short);
        assert_eq!(quoted(&"z".repeat(1000)).len(), SAID_BYTES_MAX);
    }

    #[test]
    fn saturation_is_warned_of_where_it_was() {
        assert_eq!(warnings_of_saturation(3, 0, 0), [""; 0]);
        assert_eq!(warning_of_machine(0, 9), None);
        let whole = warning_of_machine(3, 9).expect("a warning");
        assert!(whole.contains("3 of 9 seconds"), "{whole}");
        let crowd = warnings_of_saturation(3, 2, 0);
        assert_eq!(crowd.len(), 1);
        assert!(crowd[0].contains("2 of 3 pushes"), "{crowd:?}");
        let machine = warnings_of_saturation(3, 0, 3);
        assert_eq!(machine.len(), 1);
        assert!(
            machine[0].contains("these times contain both"),
            "{machine:?}"
        );
    }

    #[test]
    fn a_short_interval_leaves_less_room_for_lateness() {
        assert_eq!(publish_late_max(Duration::from_secs(5)), LATE_MAX);
        let short = publish_late_max(Duration::from_millis(20));
        assert_eq!(short, Duration::from_millis(10));
    }
}

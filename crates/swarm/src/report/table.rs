//! The closing table.

mod flows;

use crate::protocol::Protocol;
use crate::report::reporting::Language;
use crate::report::{Fanout, Messages, Outcome, Report, summary, text};
use myriad_layout::{Column, Paint, Table, wrapped};
use myriad_report::{
    ClientPublishReport, Ended, FanoutTimes, Origin, PublishAnswer, PushReport, RoundTripReport,
    RoundTripTimes, TlsReport,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pushes listed one by one; of more, the first and the last of them.
const PUSHES_LISTED: usize = 20;

/// Columns of the labels, with the blanks before and behind them.
const LABEL_COLUMNS: usize = 15;

/// Fewest columns that lines are wrapped to.
const COLUMNS_MIN: usize = 40;

/// The table, in lines of at most `columns` where its words allow that.
pub(crate) fn render(report: &Report, columns: usize) -> String {
    let mut page = Page {
        text: "\n".to_owned(),
        columns: columns.max(COLUMNS_MIN),
    };
    write_head(report, &mut page);
    write_setup(report, &mut page);
    super::comeback::write(report, &mut page);
    super::unwell::write(report, &mut page);
    write_messages(report, &mut page);
    write_session(report, &mut page);
    super::http::write(report, &mut page);
    write_round_trips(("echo", "came back"), report.echo.as_ref(), &mut page);
    if let Some(published) = &report.client_publish {
        write_client_publish(published, &mut page);
    }
    write_round_trips(
        ("requests", "came back"),
        report.request.as_ref(),
        &mut page,
    );
    for flow in &report.flows {
        flows::write(flow, &mut page);
    }
    write_pushes(report, &mut page);
    write_crowd(report, &mut page);
    for verdict in &report.thresholds {
        let mark = match verdict.passed {
            true => "ok  ",
            false if verdict.aborted => "FAIL, and ended the run",
            false => "FAIL",
        };
        let value = verdict.value.map_or_else(
            || "nothing was measured".to_owned(),
            |value| text::figure(value, verdict.unit),
        );
        let expression = &verdict.expression;
        page.line("threshold", &format!("{mark}  {expression}  ({value})"));
    }
    for warning in &report.warnings {
        page.line("warning", warning);
    }
    page.text.push('\n');
    page.text
}

/// Text under way.
pub(super) struct Page {
    text: String,
    columns: usize,
}

impl Page {
    /// A label and what belongs to it; further lines stand below its text.
    pub(super) fn line(&mut self, label: &str, text: &str) {
        for (index, line) in wrapped(text, self.columns - LABEL_COLUMNS)
            .into_iter()
            .enumerate()
        {
            let label = if index == 0 { label } else { "" };
            let line = format!("  {label:<12} {line}");
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// A sentence without a label.
    fn sentence(&mut self, text: &str) {
        for line in wrapped(text, self.columns - 2) {
            self.text.push_str(&format!("  {line}\n"));
        }
    }
}

fn write_head(report: &Report, page: &mut Page) {
    let settings = &report.settings;
    page.sentence(&format!(
        "myriad swarm: {} to {}",
        text::counted(settings.connections, "client"),
        targets(&settings.targets)
    ));
    if let Some(sentence) = &report.went_wrong {
        page.sentence(sentence);
    }
    if report.outcome == Outcome::Interrupted {
        page.sentence(&format!(
            "Interrupted after {:.1} s; the figures are those so far.",
            report.elapsed_s
        ));
    }
    if let Some(sentence) = summary::only_connected(report, Language::English) {
        page.sentence(&sentence);
    }
    page.text.push('\n');
}

fn targets(targets: &[String]) -> String {
    match targets {
        [one] => one.clone(),
        [first, rest @ ..] => format!(
            "{first} and {}",
            text::counted(rest.len() as u64, "more target")
        ),
        [] => String::new(),
    }
}

/// How TLS handshakes went, in a line.
fn handshakes(tls: &TlsReport) -> String {
    let mut line = format!(
        "p50 {}  p99 {}  slowest {}; {}",
        text::time_or_dash(tls.p50_ms),
        text::time_or_dash(tls.p99_ms),
        text::time_or_dash(tls.slowest_ms),
        text::counted(tls.handshakes, "handshake"),
    );
    let more = [(tls.resumed, "resumed"), (tls.tls12, "of TLS 1.2")];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        line.push_str(&format!(", {} {what}", text::count(count)));
    }
    if tls.insecure {
        line.push_str("; certificates were not verified");
    }
    line
}

fn write_setup(report: &Report, page: &mut Page) {
    let setup = &report.setup;
    let mut connected = format!(
        "{} of {} in {}, {}",
        text::count(setup.connected),
        text::count(setup.connections_wanted),
        text::time(setup.elapsed_s * 1000.0),
        text::rate(setup.rate_per_s)
    );
    if let Some(peak) = setup.peak_rate_per_s {
        connected.push_str(&format!(" (best second {})", text::rate(peak)));
    }
    page.line("connected", &connected);
    let upgraded = format!(
        "p50 {}  p99 {}  slowest {}",
        text::time_or_dash(setup.p50_ms),
        text::time_or_dash(setup.p99_ms),
        text::time_or_dash(setup.slowest_ms)
    );
    let label = if report.session.is_some() {
        "joined in"
    } else if report.http.is_some() || is_over_tcp(report) {
        "opened in"
    } else {
        "upgraded in"
    };
    page.line(label, &upgraded);
    if let Some(tls) = &setup.tls {
        page.line("TLS", &handshakes(tls));
    }
    page.line("errors", &kinds(&report.errors));
    if !report.closes.is_empty() {
        page.line("closes", &format!("by the server: {}", closes(report)));
    }
    let churn = &report.churn;
    if report.settings.churn_per_s.is_some() || churn.lost + churn.impatient > 0 {
        let mut line = format!(
            "{} left on purpose, {} replaced, {} lost",
            text::count(churn.churned),
            text::count(churn.reconnected),
            text::count(churn.lost)
        );
        if churn.impatient > 0 {
            let impatient = text::count(churn.impatient);
            line.push_str(&format!(
                ", {impatient} reset because their close frame was not answered"
            ));
        }
        page.line("churn", &line);
    }
}

/// Whether clients spoke plain TCP, where nothing is upgraded.
pub(super) fn is_over_tcp(report: &Report) -> bool {
    report.settings.protocol == Protocol::Tcp.name()
}

/// Kinds of errors that a line has. A server may use each of 65,536 codes, and the JSON report has them all.
const KINDS_SHOWN_MAX: usize = 32;

/// Each kind with its count.
pub(super) fn kinds(counts: &BTreeMap<String, u64>) -> String {
    kinds_in(counts, Language::English)
}

/// The same in a language.
pub(super) fn kinds_in(counts: &BTreeMap<String, u64>, language: Language) -> String {
    if counts.is_empty() {
        return language.of("none", "无").to_owned();
    }
    let more = language.of("more kinds", "种其他");
    most_frequent(counts, more, |kind, count| format!("{kind} {count}"))
}

/// The most frequent of these, in their order, as `write` has one with its count; and how many `more` there are.
fn most_frequent(
    counts: &BTreeMap<String, u64>,
    more: &str,
    write: impl Fn(&str, &str) -> String,
) -> String {
    let mut shown: Vec<(&String, &u64)> = counts.iter().collect();
    shown.sort_by_key(|(_, count)| Reverse(**count));
    let rest = shown.split_off(shown.len().min(KINDS_SHOWN_MAX));
    shown.sort();
    let mut items: Vec<String> = shown
        .into_iter()
        .map(|(kind, count)| write(kind, &text::count(*count)))
        .collect();
    if !rest.is_empty() {
        let count = text::count(rest.iter().map(|(_, count)| **count).sum());
        items.push(format!("{} {more} {count}", rest.len()));
    }
    items.join(", ")
}

/// Close frames by code, with the first reason of each.
fn closes(report: &Report) -> String {
    most_frequent(&report.closes, "more codes", |code, count| {
        match report.server_said.get(&format!("close_{code}")) {
            Some(reason) => format!("{code} {count} ({reason})"),
            None => format!("{code} {count}"),
        }
    })
}

fn write_session(report: &Report, page: &mut Page) {
    let Some(session) = &report.session else {
        return;
    };
    let mut offsets = format!(
        "gaps {}, duplicates {}",
        text::count(session.gaps),
        text::count(session.duplicates)
    );
    if session.overtaken > 0 {
        offsets.push_str(&format!(", overtaken {}", text::count(session.overtaken)));
    }
    page.line("offsets", &offsets);
    let asked = session.recovered + session.unrecovered;
    if asked > 0 {
        let recovered = format!(
            "{} of {}, with {}",
            text::count(session.recovered),
            text::counted(asked, "subscription"),
            text::counted(session.recovered_publications, "publication")
        );
        page.line("recovered", &recovered);
    }
}

fn write_messages(report: &Report, page: &mut Page) {
    let messages = &report.messages;
    let has_pushes = !report.settings.publish_urls.is_empty() || report.fanout.is_some();
    // A run in which no client was to get a message has not failed for that.
    if messages.count > 0 || has_pushes {
        let mut received = format!(
            "{}, mean {}",
            text::count(messages.count),
            text::rate(messages.mean_per_s)
        );
        received.push_str(&weighted_rates(messages));
        page.line("messages", &received);
    }
    let of_pushes = [
        ("missing", messages.missed),
        ("gaps", messages.gaps),
        ("duplicates", messages.duplicates),
    ];
    let rarer = [
        ("overtaken", messages.overtaken),
        ("unexpected", messages.unexpected),
        ("late", messages.late),
        ("unmeasured", messages.unmeasured),
        ("replayed", messages.replayed),
    ];
    let of_pushes = of_pushes
        .into_iter()
        .filter(|&(_, value)| has_pushes || value > 0);
    let rarer = rarer.into_iter().filter(|&(_, value)| value > 0);
    let counts: Vec<String> = of_pushes
        .chain(rarer)
        .map(|(name, value)| format!("{name} {}", text::count(value)))
        .collect();
    if !counts.is_empty() {
        page.line("", &counts.join(", "));
    }
    write_pings(report, page);
}

fn write_pings(report: &Report, page: &mut Page) {
    let pings = &report.pings;
    if pings.answered > 0 {
        page.line(
            "pings",
            &format!("{} answered", text::count(pings.answered)),
        );
    }
    if pings.heartbeats_sent > 0 {
        let heartbeats = format!(
            "{} sent, {} answered, p50 {}  p99 {}",
            text::count(pings.heartbeats_sent),
            text::count(pings.heartbeats_answered),
            text::time_or_dash(pings.p50_ms),
            text::time_or_dash(pings.p99_ms)
        );
        page.line("heartbeats", &heartbeats);
    }
}

/// `, weighted over 1/5 min 24,012/s 23,844/s`: the spans that the run was long enough for.
fn weighted_rates(messages: &Messages) -> String {
    let spans = [
        ("1", messages.last_1_min_per_s),
        ("5", messages.last_5_min_per_s),
        ("15", messages.last_15_min_per_s),
    ];
    let known = spans
        .into_iter()
        .filter_map(|(minutes, rate)| Some((minutes, text::rate(rate?))));
    let (minutes, rates): (Vec<_>, Vec<_>) = known.unzip();
    if rates.is_empty() {
        return String::new();
    }
    let (minutes, rates) = (minutes.join("/"), rates.join(" "));
    format!(", weighted over {minutes} min {rates}")
}

/// What came back of what was sent; nothing when nothing was to be sent.
fn write_client_publish(published: &ClientPublishReport, page: &mut Page) {
    write_round_trips(("published", "accepted"), Some(&published.replies), page);
    let delivery = &published.delivery;
    let of = delivery.expected.map_or_else(String::new, |expected| {
        format!(" of {}", text::count(expected))
    });
    let counts = format!(
        "{}{of}, {}",
        text::count(delivery.received),
        text::rate(delivery.received_per_s)
    );
    page.line("deliveries", &counts);
    page.line("", &since_due(&delivery.delivery_ms));
}

fn write_round_trips(
    (name, answered): (&str, &str),
    trips: Option<&RoundTripReport>,
    page: &mut Page,
) {
    let Some(trips) = trips else {
        return;
    };
    let mut counts = format!(
        "{} of {} {answered}, {} of {} asked for, lost {}, errors {}",
        text::count(trips.received),
        text::count(trips.sent),
        text::rate(trips.received_per_s),
        text::rate(trips.rate_per_s),
        text::count(trips.lost),
        text::count(trips.errors)
    );
    if trips.unsent > 0 {
        counts.push_str(&format!(", never sent {}", text::count(trips.unsent)));
    }
    page.line(name, &counts);
    page.line("", &since_due(&trips.round_trip_ms));
}

fn since_due(times: &RoundTripTimes) -> String {
    format!(
        "since due: mean {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        text::time_or_dash(times.mean),
        text::time_or_dash(times.p50),
        text::time_or_dash(times.p90),
        text::time_or_dash(times.p99),
        text::time_or_dash(times.p999),
        text::time_or_dash(times.max)
    )
}

/// Columns of the pushes' table.
const PUSH_COLUMNS: [&str; 10] = [
    "push", "reach", "reached", "first", "p50", "p90", "p99", "p99.9", "last", "accepted",
];

/// Which of them are left out where they do not all fit, the first first.
const DISPENSABLE: [usize; 5] = [5, 7, 3, 9, 4];

fn write_pushes(report: &Report, page: &mut Page) {
    if report.pushes.is_empty() {
        return;
    }
    let mut columns = [Column::NUMBER; PUSH_COLUMNS.len()];
    columns[0] = Column::TEXT;
    let mut table = Table::new(&columns);
    table.row(PUSH_COLUMNS);
    let count = report.pushes.len();
    let hidden = if count > PUSHES_LISTED {
        PUSHES_LISTED - 1..count - 1
    } else {
        count..count
    };
    for (index, push) in report.pushes.iter().enumerate() {
        if index == hidden.start {
            let more = text::count(hidden.len() as u64);
            table.note(format!("  ... {more} more ..."));
        }
        if !hidden.contains(&index) {
            table.row(cells_of_push(push));
            if let Some(remark) = remark(push) {
                table.note(remark);
            }
        }
    }
    if let Some(fanout) = report.fanout.as_ref().filter(|fanout| fanout.pushes > 1) {
        add_rows_of_all(&mut table, fanout, report);
    }
    page.text.push('\n');
    write_table(table, page);
    let is_foreign = |push: &PushReport| push.origin == Origin::Foreign;
    if report.pushes.iter().any(is_foreign) {
        page.sentence(
            "* somebody else's: times count from its first arrival, not from its publication",
        );
    }
    page.text.push('\n');
}

/// Every arrival together; and apart from that, each figure of the push in which it was worst.
fn add_rows_of_all(table: &mut Table, fanout: &Fanout, report: &Report) {
    let received = report
        .pushes
        .iter()
        .filter(|push| push.origin == fanout.origin && push.ended != Ended::CutShort);
    let received: u64 = received.map(|push| push.received).sum();
    // Pushes past those that are listed are in the figures, but not in this sum.
    let is_whole = report.pushes.len() as u64 >= fanout.pushes;
    let received = is_whole.then_some(received);
    let times = fanout.overall;
    table.row(cells("together", fanout.reach, received, times, None));
    let (reach, accepted_ms) = (fanout.reach_min, fanout.accepted_max_ms);
    table.row(cells(
        "worst of each",
        reach,
        None,
        fanout.worst,
        accepted_ms,
    ));
}

fn cells_of_push(push: &PushReport) -> [String; PUSH_COLUMNS.len()] {
    let channel = push.channel.as_deref().unwrap_or_default();
    let star = if push.origin == Origin::Foreign {
        "*"
    } else {
        ""
    };
    let name = format!("{}{star} {channel}", push.sequence);
    let received = Some(push.received);
    cells(&name, push.reach, received, push.times, push.accepted_ms)
}

/// What the figures of a push do not say.
fn remark(push: &PushReport) -> Option<&'static str> {
    match push.ended {
        Ended::Refused => Some("    ^ the server refused it"),
        Ended::Unreached => Some("    ^ no connection to the publish URL"),
        Ended::CutShort => Some("    ^ cut short by the end of the run"),
        Ended::Complete | Ended::Settled => (push.answer == Some(PublishAnswer::Unanswered))
            .then_some("    ^ the publish request was not answered"),
    }
}

fn cells(
    name: &str,
    reach: Option<f64>,
    received: Option<u64>,
    times: FanoutTimes,
    accepted_ms: Option<f64>,
) -> [String; PUSH_COLUMNS.len()] {
    [
        name.trim_end().to_owned(),
        reach.map_or_else(|| "-".to_owned(), text::percent),
        received.map(text::count).unwrap_or_default(),
        text::time_or_dash(times.first_ms),
        text::time_or_dash(times.p50_ms),
        text::time_or_dash(times.p90_ms),
        text::time_or_dash(times.p99_ms),
        text::time_or_dash(times.p999_ms),
        text::time_or_dash(times.last_ms),
        text::time_or_dash(accepted_ms),
    ]
}

/// Writes the table without those columns that there is no room for.
fn write_table(mut table: Table, page: &mut Page) {
    const INDENT: usize = 2;
    let mut shown: Vec<usize> = (0..PUSH_COLUMNS.len()).collect();
    let whole = table.clone();
    for dispensable in DISPENSABLE {
        if table.natural_width() + INDENT <= page.columns {
            break;
        }
        shown.retain(|&column| column != dispensable);
        table = whole.only(&shown);
    }
    page.text
        .push_str(&table.draw(INDENT, page.columns, Paint::Plain));
}

fn write_crowd(report: &Report, page: &mut Page) {
    let (settings, crowd) = (&report.settings, &report.crowd);
    let threads = text::counted(u64::from(settings.threads), "thread");
    let mut line = format!("{}, {threads}", settings.driver);
    // A run of less than a second was not watched.
    if crowd.watched_s > 0 {
        let share = text::share(crowd.cpu_share_max);
        line.push_str(&format!(", CPU at most {share}"));
    }
    if let Some(bytes) = crowd.user_bytes_per_client {
        line.push_str(&format!(", {} of user space a client", text::bytes(bytes)));
    }
    page.line("this crowd", &line);
    if let Some(line) = cpu_per_message(report) {
        page.line("CPU", &line);
    }
    super::fleet::write(report, page);
}

/// What a message took of the processors at both ends; none where the server's process was not watched: alone, the generator's says
/// little of a run with few messages.
fn cpu_per_message(report: &Report) -> Option<String> {
    let cpu = report.cpu?;
    let generator = text::micros(cpu.generator_cpu_us_per_message?);
    let server = text::micros(cpu.server_cpu_us_per_message?);
    Some(format!(
        "generator CPU per message {generator}, server CPU per message {server}; {} in {} from the end of connecting",
        text::counted(cpu.messages, "message"),
        text::time(cpu.span_s * 1000.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use myriad_report::CpuReport;

    /// A report with many pushes, long figures and long warnings.
    fn long_report() -> Report {
        let mut report = report();
        let mut push = report.pushes[0].clone();
        push.times.first_ms = Some(999.0);
        push.ended = Ended::Settled;
        push.answer = Some(PublishAnswer::Unanswered);
        report.pushes = vec![push; 30];
        report.fanout.as_mut().unwrap().pushes = 30;
        report.warnings = vec!["a warning that goes on and on ".repeat(9)];
        report.errors = (500..520)
            .map(|status| (format!("handshake_{status}"), 1_000_000))
            .collect();
        report
    }

    #[test]
    fn a_server_that_uses_every_code_fills_no_terminal() {
        let errors = (0..65_536u64).map(|code| (format!("unsubscribed_{code}"), code % 1000 + 1));
        let shown = kinds(&errors.collect());
        assert!(shown.contains("unsubscribed_10999 1,000, ") && shown.len() < 1500);
        assert!(shown.ends_with(", 65504 more kinds 32,644,416"), "{shown}");
        assert_eq!(kinds(&[("a".to_owned(), 2)].into()), "a 2");
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_lines() {
        let report = long_report();
        for columns in [80, 100, 200] {
            for line in render(&report, columns).lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
        let header = |columns| {
            let table = render(&report, columns);
            let header = table.lines().find(|line| line.contains("reached"));
            header.unwrap().to_owned()
        };
        assert!(header(200).contains("p99.9") && header(200).contains("accepted"));
        assert!(!header(80).contains("p99.9") && header(80).contains("last"));
    }

    #[test]
    fn what_clients_of_plain_tcp_do_is_no_upgrade() {
        let mut report = report();
        assert!(render(&report, 80).contains("upgraded in"));
        report.settings.protocol = "tcp".to_owned();
        let table = render(&report, 80);
        assert!(
            table.contains("opened in") && !table.contains("upgraded"),
            "{table}"
        );
    }

    #[test]
    fn what_a_message_costs_is_told_of_both_ends() {
        let mut report = report();
        let cpu = CpuReport {
            span_s: 32.0,
            messages: 1_500_000,
            generator_cpu_s: 4.5,
            generator_cpu_us_per_message: Some(3.0),
            ..CpuReport::default()
        };
        report.cpu = Some(cpu);
        assert!(!render(&report, 200).contains("per message"), "one alone");
        report.cpu = Some(CpuReport {
            server_cpu_s: Some(6.0),
            server_cpu_us_per_message: Some(4.0),
            ..cpu
        });
        let table = render(&report, 200);
        let wanted = "CPU          generator CPU per message 3 µs, server CPU per message 4 µs; \
                      1,500,000 messages in 32.0 s from the end of connecting\n";
        assert!(table.contains(wanted), "{table}");
    }

    #[test]
    fn what_went_wrong_comes_first() {
        let mut report = report();
        report.went_wrong = Some("Not everything went well: 1 connection was lost.".to_owned());
        let table = render(&report, 80);
        let second = table.lines().filter(|line| !line.is_empty()).nth(1);
        assert_eq!(
            second,
            Some("  Not everything went well: 1 connection was lost.")
        );
    }

    #[test]
    fn a_run_without_a_load_says_so_below_what_it_was() {
        let mut report = report();
        assert!(!render(&report, 200).contains("Only connecting"));
        (report.fanout, report.pushes) = (None, Vec::new());
        report.messages = Messages::default();
        let table = render(&report, 80);
        let second = table.lines().filter(|line| !line.is_empty()).nth(1);
        let wanted = "  Only connecting was measured, and who stayed connected";
        assert!(second.unwrap().starts_with(wanted), "{table}");
    }

    #[test]
    fn what_was_not_in_the_run_has_no_line_that_looks_like_a_failure() {
        let table = render(&report(), 200);
        let wanted =
            "messages     1,000, mean 0/s\n               missing 0, gaps 0, duplicates 0\n";
        assert!(table.contains(wanted), "{table}");
        let mut report = Report {
            fanout: None,
            pushes: Vec::new(),
            ..report()
        };
        let table = render(&report, 200);
        assert!(table.contains("messages     1,000"), "{table}");
        report.messages.duplicates = 2;
        report.messages.late = 1;
        let table = render(&report, 200);
        assert!(
            table.contains("\n               duplicates 2, late 1\n"),
            "{table}"
        );
        report.messages = Messages::default();
        let table = render(&report, 200);
        for nothing in ["messages  ", "missing", "gaps", "duplicates"] {
            assert!(!table.contains(nothing), "{nothing}: {table}");
        }
        // Pushes of which nothing came are a failure.
        report.settings.publish_urls = vec!["http://127.0.0.1:1/".to_owned()];
        let table = render(&report, 200);
        assert!(table.contains("messages     0, mean 0/s\n"), "{table}");
        assert!(table.contains("missing 0, gaps 0, duplicates 0"), "{table}");
    }

    #[test]
    fn figures_have_sensible_digits_and_one_is_no_plural() {
        let mut report = report();
        let table = render(&report, 80);
        assert!(
            table.contains("1,000 of 1,000 in 40.0 ms, 24,012/s\n"),
            "{table}"
        );
        (report.settings.connections, report.settings.threads) = (1, 1);
        let table = render(&report, 80);
        assert!(
            table.contains("1 client to") && table.contains("1 thread\n"),
            "{table}"
        );
    }

    #[test]
    fn rates_are_shown_over_spans_that_have_passed() {
        let mut report = report();
        report.messages.mean_per_s = 122.0;
        let table = render(&report, 200);
        assert!(table.contains("1,000, mean 122/s\n"), "{table}");
        report.messages.last_1_min_per_s = Some(170.0);
        let table = render(&report, 200);
        let minute = "mean 122/s, weighted over 1 min 170/s\n";
        assert!(table.contains(minute), "{table}");
        report.messages.last_5_min_per_s = Some(193.0);
        let table = render(&report, 200);
        let both = "mean 122/s, weighted over 1/5 min 170/s 193/s\n";
        assert!(table.contains(both), "{table}");
    }

    #[test]
    fn the_worst_push_is_not_mixed_with_all_of_them() {
        let mut report = long_report();
        let fanout = report.fanout.as_mut().unwrap();
        (fanout.reach, fanout.reach_min) = (Some(0.95), Some(0.5));
        fanout.worst.last_ms = Some(f64::INFINITY);
        let table = render(&report, 200);
        let row = |name: &str| {
            let line = table
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.unwrap().to_owned()
        };
        let together = row("together");
        assert!(
            together.contains("95.00%") && together.ends_with('-'),
            "{table}"
        );
        assert!(!together.contains("never"), "{together}");
        let worst = row("worst of each");
        assert!(
            worst.contains("50.00%") && worst.contains("never"),
            "{worst}"
        );
        assert!(worst.ends_with("800 µs"), "{worst}");
    }
}

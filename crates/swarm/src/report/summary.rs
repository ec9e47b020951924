//! What went wrong in a run, in one sentence; and that a run without a load measured connecting alone.

use crate::protocol::Protocol;
use crate::report::reporting::Language;
use crate::report::table::is_over_tcp;
use crate::report::text::{count, counted, listed};
use crate::report::{Outcome, Report};
use myriad_report::{DeliveryReport, FlowReport, RoundTripReport};

/// What went wrong, in a sentence, and before it one on echoes when none of them came back; none when nothing did.
pub(crate) fn went_wrong(report: &Report) -> Option<String> {
    if report.outcome == Outcome::NobodyConnected {
        return Some(nobody(report));
    }
    let mut troubles: Vec<String> = [
        super::fleet::lost(report),
        given_up(report),
        lost(report),
        not_open_again(report),
        away(report),
        failed_pushes(report),
        missed(report),
        repeated(report),
        unexpected(report),
        broken_streams(report),
        unrecovered(report),
    ]
    .into_iter()
    .flatten()
    .collect();
    let no_echo = report.echo.as_ref().and_then(no_echo);
    if no_echo.is_none() {
        troubles.extend(unanswered("echo", report.echo.as_ref()));
    }
    if let Some(published) = &report.client_publish {
        troubles.extend(unpublished(&published.replies));
        troubles.extend(undelivered(&published.delivery));
    }
    troubles.extend(unanswered("request", report.request.as_ref()));
    for flow in &report.flows {
        troubles.extend(incomplete(flow));
        troubles.extend(disorderly(flow));
    }
    let errors: u64 = report.errors.values().sum();
    if troubles.is_empty() && no_echo.is_none() && errors > 0 {
        troubles.push(format!("there {}", were(errors, "error")));
    }
    let list = listed(&troubles).map(|list| format!("Not everything went well: {list}."));
    let sentences: Vec<String> = ended_early(report)
        .into_iter()
        .chain(no_echo)
        .chain(list)
        .collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Whether one of the loads came to nothing: no push was taken, or nothing that was sent was answered or delivered. Usually a URL, a path or a
/// stamp is wrong then, and whatever else is green was not tested.
pub(super) fn has_failed_load(report: &Report) -> bool {
    let published = report.client_publish.as_ref().map(|it| &it.replies);
    let trips = [report.echo.as_ref(), published, report.request.as_ref()];
    let mut trips = trips.into_iter().flatten();
    no_push_was_taken(report)
        || trips.any(|it| it.received == 0 && it.lost + it.errors > 0)
        || report.flows.iter().any(is_futile)
}

/// That a run without a load measured connecting alone, and how to give it one. None of a run in which something was to be sent, or came.
pub(super) fn only_connected(report: &Report, language: Language) -> Option<String> {
    if !has_no_load(report) {
        return None;
    }
    let protocol = Protocol::named(&report.settings.protocol).unwrap_or_default();
    let (option, section) = if protocol.has_messages() {
        ("--echo RATE", "[echo]")
    } else if protocol.has_session() {
        ("--client-publish RATE", "[client-publish]")
    } else {
        ("--request URL", "[requests]")
    };
    Some(match language {
        Language::English => format!(
            "Only connecting was measured, and who stayed connected, because the run had no load: add one with {option} or --publish URL, \
             or in a scenario with {section} or [publish]."
        ),
        Language::Chinese => format!(
            "本次测试没有负载，只测量了建连以及连接是否保持：可用 {option} 或 --publish URL 添加负载，在场景文件中则用 {section} 或 [publish]。"
        ),
    })
}

/// Whether clients were to connect and to stay, and nothing else was to happen and nothing came.
fn has_no_load(report: &Report) -> bool {
    let settings = &report.settings;
    let is_loaded = !settings.publish_urls.is_empty()
        || report.echo.is_some()
        || report.client_publish.is_some()
        || report.request.is_some()
        || !report.flows.is_empty();
    let is_disturbed = settings.churn_per_s.is_some()
        || report.comeback.is_some()
        || report.stall.is_some()
        || report.vanish.is_some();
    // Pings, polls that are held and recoveries have figures of their own.
    let is_asked = settings.heartbeat_s.is_some()
        || settings.recover_from.is_some()
        || report.http.as_ref().is_some_and(|http| http.held.is_some());
    let has_heard = report.messages.count > 0;
    report.setup.connected > 0 && !(is_loaded || is_disturbed || is_asked || has_heard)
}

fn no_push_was_taken(report: &Report) -> bool {
    let Some(fanout) = &report.fanout else {
        return false;
    };
    // A push that was not answered may have been taken: then somebody got it.
    let has_reached = fanout.overall.first_ms.is_some();
    fanout.pushes > 0 && fanout.failed == fanout.pushes && !has_reached
}

/// A flow of which nothing came, although the server has had its time.
fn is_futile(flow: &FlowReport) -> bool {
    flow.received == 0 && (flow.missing > 0 || flow.is_untaken())
}

/// What did not come of the messages of a flow.
fn incomplete(flow: &FlowReport) -> Option<String> {
    let failed = flow.failed();
    if failed > 0 {
        return Some(format!(
            "{} of {} of the flow {} were not answered as they should be",
            count(failed),
            counted(flow.sent, "request"),
            flow.name
        ));
    }
    (flow.missing > 0).then(|| {
        format!(
            "{} of {} of the flow {} did not come",
            count(flow.missing),
            counted(flow.expected, "delivery"),
            flow.name
        )
    })
}

/// What came of the messages of a flow and should not have come, or not then; and what was not sent.
fn disorderly(flow: &FlowReport) -> Option<String> {
    let figures = [
        (flow.unsent, "unsent"),
        (flow.duplicated, "repeated"),
        (flow.out_of_order, "out of order"),
        (flow.unexpected, "unexpected"),
        (flow.late, "late"),
    ];
    let some = figures.into_iter().filter(|(value, _)| *value > 0);
    let some: Vec<String> = some
        .map(|(value, what)| format!("{} {what}", count(value)))
        .collect();
    Some(format!("the flow {} had {}", flow.name, listed(&some)?))
}

fn ended_early(report: &Report) -> Option<String> {
    let verdict = report.thresholds.iter().find(|it| it.aborted)?;
    Some(format!(
        "The run was ended early, because {} failed.",
        verdict.expression
    ))
}

fn nobody(report: &Report) -> String {
    let wanted = report.setup.connections_wanted;
    let whose = match wanted {
        1 => "The client could not connect".to_owned(),
        _ => format!("None of the {} could connect", counted(wanted, "client")),
    };
    let statuses: Vec<String> = report
        .errors
        .keys()
        .filter_map(|kind| {
            let status = kind.strip_prefix("handshake_");
            status.or_else(|| kind.strip_prefix("answer_"))
        })
        .filter(|kind| kind.bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_owned)
        .collect();
    if let Some(statuses) = listed(&statuses) {
        let asked = match report.http {
            Some(_) => "the request",
            None => "the upgrade",
        };
        return format!("{whose}: the server answered {asked} with {statuses}.");
    }
    if let Some(answers) = session_answers(report) {
        return format!("{whose}: the server {answers}.");
    }
    match report.setup.tcp_connected {
        0 => format!("{whose}."),
        // Each client may have tried several times.
        attempts if report.session.is_some() => format!(
            "{} connected, none has its session: is this a Centrifuge endpoint?",
            count(attempts.min(wanted))
        ),
        attempts if report.http.is_some() => format!(
            "{} connected, none was answered: is this an HTTP server?",
            count(attempts.min(wanted))
        ),
        // Only a client that has upgraded waits for answers.
        attempts if report.errors.contains_key("session_timeout") => format!(
            "{} connected, and none was answered as [opening] says: compare its `answers` with what the server sends.",
            count(attempts.min(wanted))
        ),
        // Over plain TCP only what a scenario says on opening stands between a connection and an open client.
        attempts if is_over_tcp(report) || report.errors.contains_key("session_ended") => format!(
            "{} connected, and none got through [opening]: compare its `send` and `answers` with what the server expects.",
            count(attempts.min(wanted))
        ),
        attempts => format!(
            "{} connected, none upgraded: is this a WebSocket server?",
            count(attempts.min(wanted))
        ),
    }
}

/// How a server that speaks the protocol refused its clients.
fn session_answers(report: &Report) -> Option<String> {
    let forms = [
        ("connect_error_", "answered `connect` with error"),
        ("subscribe_error_", "answered `subscribe` with error"),
        ("session_closed_", "closed with"),
    ];
    let answers = forms.into_iter().filter_map(|(prefix, answered)| {
        let kinds = report.errors.keys();
        let codes: Vec<String> = kinds
            .filter_map(|kind| Some(kind.strip_prefix(prefix)?.to_owned()))
            .collect();
        Some(format!("{answered} {}", listed(&codes)?))
    });
    listed(&answers.collect::<Vec<_>>())
}

fn given_up(report: &Report) -> Option<String> {
    let setup = &report.setup;
    (setup.given_up > 0).then(|| {
        format!(
            "{} of {} could not connect",
            count(setup.given_up),
            counted(setup.connections_wanted, "client")
        )
    })
}

fn lost(report: &Report) -> Option<String> {
    let lost = report.churn.lost;
    let all = lost > 0 && report.crowd.open_at_end == 0 && report.churn.churned == 0;
    if all && lost > 1 {
        return Some(format!("all {} connections were lost", count(lost)));
    }
    (lost > 0).then(|| format!("{} lost", verb(lost, "connection")))
}

/// Clients of streams that a server had ended. Polls are between two connections for a moment only.
fn not_open_again(report: &Report) -> Option<String> {
    let http = report.http.as_ref().filter(|http| http.held.is_none())?;
    let of = counted(http.reopening, "client");
    (http.reopening > 0)
        .then(|| format!("at the end {of} had no stream, because the server had ended it"))
}

fn away(report: &Report) -> Option<String> {
    let comeback = report.comeback.as_ref()?;
    let missing = comeback.gone.saturating_sub(comeback.back);
    (missing > 0).then(|| {
        format!(
            "{} of {} did not come back",
            count(missing),
            counted(comeback.gone, "client")
        )
    })
}

fn failed_pushes(report: &Report) -> Option<String> {
    let fanout = report.fanout.as_ref()?;
    let of = counted(fanout.pushes, "push");
    (fanout.failed > 0).then(|| format!("{} of {of} failed", count(fanout.failed)))
}

fn missed(report: &Report) -> Option<String> {
    let missed = report.messages.missed;
    (missed > 0).then(|| {
        let (deliveries, is) = if missed == 1 {
            ("delivery", "is")
        } else {
            ("deliveries", "are")
        };
        format!("{} {deliveries} {is} missing", count(missed))
    })
}

fn repeated(report: &Report) -> Option<String> {
    let repeated = report.messages.duplicates;
    (repeated > 0).then(|| format!("{} repeated", verb(repeated, "delivery")))
}

fn unexpected(report: &Report) -> Option<String> {
    let unexpected = report.messages.unexpected;
    (unexpected > 0).then(|| format!("{} unexpected", verb(unexpected, "delivery")))
}

fn broken_streams(report: &Report) -> Option<String> {
    let session = report.session.as_ref()?;
    let broken = session.gaps + session.duplicates;
    (broken > 0).then(|| {
        let offsets = counted(broken, "offset");
        format!("{offsets} missing or repeated")
    })
}

fn unrecovered(report: &Report) -> Option<String> {
    let session = report.session.as_ref()?;
    let lost = session.unrecovered;
    (lost > 0).then(|| format!("{} not recovered", verb(lost, "subscription")))
}

/// A server that sends none of them back is usually not meant to.
fn no_echo(trips: &RoundTripReport) -> Option<String> {
    let is_silent = trips.lost > 0 && trips.received == 0 && trips.errors == 0;
    is_silent.then(|| {
        format!(
            "Of {} none came back: does the server send messages back at this path?",
            counted(trips.sent, "echo")
        )
    })
}

fn unanswered(one: &str, trips: Option<&RoundTripReport>) -> Option<String> {
    let trips = trips?;
    if trips.lost > 0 {
        let of = counted(trips.sent, one);
        return Some(format!("{} of {of} did not come back", count(trips.lost)));
    }
    (trips.errors > 0).then(|| format!("there {}", were(trips.errors, "wrong answer")))
}

/// What clients published and the server refused or did not answer.
fn unpublished(replies: &RoundTripReport) -> Option<String> {
    (replies.lost > 0).then(|| {
        let of = counted(replies.sent, "publication");
        format!(
            "{} of {of} by clients were not accepted",
            count(replies.lost)
        )
    })
}

fn undelivered(delivery: &DeliveryReport) -> Option<String> {
    let missed = delivery.missed.filter(|&missed| missed > 0)?;
    let of = counted(delivery.expected?, "delivery");
    Some(format!(
        "{} of {of} of what clients published are missing",
        count(missed)
    ))
}

/// `1 connection was`, `2 connections were`.
fn verb(value: u64, one: &str) -> String {
    let verb = if value == 1 { "was" } else { "were" };
    format!("{} {verb}", counted(value, one))
}

/// `was 1 error`, `were 2 errors`.
fn were(value: u64, one: &str) -> String {
    let verb = if value == 1 { "was" } else { "were" };
    format!("{verb} {}", counted(value, one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Messages;
    use crate::report::tests::report;
    use myriad_report::{ComebackReport, SessionReport};

    #[test]
    fn a_run_in_which_all_went_well_has_nothing_to_say() {
        assert_eq!(went_wrong(&report()), None);
    }

    /// The report of a run that was to connect clients, and nothing else.
    fn connecting_alone() -> Report {
        Report {
            fanout: None,
            pushes: Vec::new(),
            messages: Messages::default(),
            ..report()
        }
    }

    #[test]
    fn a_run_without_a_load_has_measured_connecting_alone() {
        let mut report = connecting_alone();
        let sentence = |report: &Report| only_connected(report, Language::English).unwrap();
        for (protocol, option, section) in [
            ("raw", "--echo RATE", "[echo]"),
            ("tcp", "--echo RATE", "[echo]"),
            (
                "centrifuge-json",
                "--client-publish RATE",
                "[client-publish]",
            ),
            ("sse", "--request URL", "[requests]"),
        ] {
            report.settings.protocol = protocol.to_owned();
            let said = sentence(&report);
            assert!(said.starts_with("Only connecting was measured"), "{said}");
            let with = format!("with {option} or --publish URL");
            assert!(said.contains(&with), "{protocol}: {said}");
            let ends = format!("in a scenario with {section} or [publish].");
            assert!(said.ends_with(&ends), "{protocol}: {said}");
        }
        report.setup.connected = 0;
        assert_eq!(only_connected(&report, Language::English), None);
    }

    #[test]
    fn a_run_in_which_something_was_to_be_sent_or_came_measured_more() {
        let changes: [fn(&mut Report); 8] = [
            |it| it.messages.count = 1,
            |it| it.settings.publish_urls = vec!["http://127.0.0.1:1/".to_owned()],
            |it| it.echo = Some(RoundTripReport::default()),
            |it| it.request = Some(RoundTripReport::default()),
            |it| it.flows = vec![FlowReport::default()],
            |it| it.settings.heartbeat_s = Some(25.0),
            |it| it.settings.churn_per_s = Some(0.01),
            |it| it.comeback = Some(ComebackReport::default()),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut report = connecting_alone();
            change(&mut report);
            assert_eq!(only_connected(&report, Language::Chinese), None, "{number}");
        }
        assert_eq!(only_connected(&report(), Language::English), None);
    }

    #[test]
    fn a_load_has_failed_of_which_nothing_came() {
        let mut report = report();
        assert!(!has_failed_load(&report));
        let trips = |sent: u64, received: u64| RoundTripReport {
            sent,
            received,
            lost: sent - received,
            ..RoundTripReport::default()
        };
        for (sent, received, failed) in [(0, 0, false), (9, 0, true), (9, 1, false)] {
            report.request = Some(trips(sent, received));
            assert_eq!(has_failed_load(&report), failed, "{received} of {sent}");
        }
        report.request = None;
        let flow = |received: u64, missing: u64, refused: u64| FlowReport {
            sent: 7,
            received,
            missing,
            refused,
            ..FlowReport::default()
        };
        for (of_it, failed) in [
            ((0, 0, 0), false),
            ((0, 700, 0), true),
            ((1, 699, 0), false),
            ((0, 0, 7), true),
            ((0, 0, 6), false),
        ] {
            let (received, missing, refused) = of_it;
            report.flows = vec![flow(7, 0, 0), flow(received, missing, refused)];
            assert_eq!(has_failed_load(&report), failed, "{of_it:?}");
        }
    }

    #[test]
    fn streams_that_are_not_open_again_are_told() {
        let mut report = report();
        report.http = Some(myriad_report::HttpReport {
            reopening: 50,
            ..Default::default()
        });
        let sentence = went_wrong(&report).unwrap();
        assert!(sentence.contains("50 clients had no stream"), "{sentence}");
    }

    #[test]
    fn whatever_went_wrong_is_in_one_sentence() {
        let mut report = report();
        report.churn.lost = 1;
        let sentence = |report: &Report| went_wrong(report).unwrap();
        assert_eq!(
            sentence(&report),
            "Not everything went well: 1 connection was lost."
        );
        report.churn.lost = 1_200;
        report.messages.missed = 1;
        let fanout = report.fanout.as_mut().unwrap();
        (fanout.pushes, fanout.failed) = (3, 2);
        assert_eq!(
            sentence(&report),
            "Not everything went well: 1,200 connections were lost, 2 of 3 pushes failed and 1 delivery is missing."
        );
        report.crowd.open_at_end = 0;
        assert!(sentence(&report).contains("all 1,200 connections were lost"));
    }

    #[test]
    fn what_came_and_should_not_have_come_is_told() {
        let mut report = report();
        (report.messages.duplicates, report.messages.unexpected) = (100, 1);
        assert_eq!(
            went_wrong(&report).unwrap(),
            "Not everything went well: 100 deliveries were repeated and 1 delivery was unexpected."
        );
        (report.messages.duplicates, report.messages.unexpected) = (0, 0);
        report.flows = vec![
            FlowReport {
                name: "chat".to_owned(),
                missing: 1,
                expected: 9,
                unsent: 2,
                duplicated: 3,
                ..FlowReport::default()
            },
            FlowReport {
                name: "quiet".to_owned(),
                out_of_order: 4,
                unexpected: 5,
                late: 6,
                ..FlowReport::default()
            },
            FlowReport::default(),
        ];
        assert_eq!(
            went_wrong(&report).unwrap(),
            "Not everything went well: 1 of 9 deliveries of the flow chat did not come, \
             the flow chat had 2 unsent and 3 repeated and \
             the flow quiet had 4 out of order, 5 unexpected and 6 late."
        );
    }

    #[test]
    fn streams_that_were_not_whole_are_told() {
        let mut report = report();
        report.session = Some(SessionReport::default());
        assert_eq!(went_wrong(&report), None);
        report.session = Some(SessionReport {
            gaps: 1,
            duplicates: 1,
            unrecovered: 3,
            ..SessionReport::default()
        });
        assert_eq!(
            went_wrong(&report).unwrap(),
            "Not everything went well: 2 offsets missing or repeated and 3 subscriptions were not recovered."
        );
    }

    #[test]
    fn a_server_that_sends_no_echo_back_is_asked_about_first() {
        let mut report = report();
        let echo = RoundTripReport {
            sent: 500,
            lost: 500,
            ..RoundTripReport::default()
        };
        report.echo = Some(echo);
        let question =
            "Of 500 echoes none came back: does the server send messages back at this path?";
        assert_eq!(went_wrong(&report).as_deref(), Some(question));
        report.churn.lost = 2;
        let both = format!("{question} Not everything went well: 2 connections were lost.");
        assert_eq!(went_wrong(&report), Some(both));
        report.churn.lost = 0;
        for (received, errors) in [(1, 0), (0, 1)] {
            report.echo = Some(RoundTripReport {
                received,
                lost: 499,
                errors,
                ..echo
            });
            assert_eq!(
                went_wrong(&report).unwrap(),
                "Not everything went well: 499 of 500 echoes did not come back."
            );
        }
    }

    #[test]
    fn attempts_that_failed_and_were_repeated_are_errors() {
        let mut report = report();
        report.errors.insert("handshake_503".to_owned(), 25);
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(sentence, "Not everything went well: there were 25 errors.");
    }

    #[test]
    fn a_port_that_accepts_and_never_answers_is_asked_about() {
        let mut report = report();
        report.outcome = Outcome::NobodyConnected;
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(
            sentence,
            "1,000 connected, none upgraded: is this a WebSocket server?"
        );
        report.errors.insert("session_timeout".to_owned(), 3);
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(
            sentence,
            "1,000 connected, and none was answered as [opening] says: compare its `answers` with what the server sends."
        );
        report.errors.clear();
        let ended = "1,000 connected, and none got through [opening]: compare its `send` and `answers` with what the server expects.";
        report.errors.insert("session_ended".to_owned(), 3);
        assert_eq!(went_wrong(&report).as_deref(), Some(ended));
        report.errors.clear();
        report.settings.protocol = "tcp".to_owned();
        report.errors.insert("reset".to_owned(), 3);
        assert_eq!(went_wrong(&report).as_deref(), Some(ended));
        report.errors.clear();
        report.setup.tcp_connected = 0;
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(sentence, "None of the 1,000 clients could connect.");
        report.setup.connections_wanted = 1;
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(sentence, "The client could not connect.");
    }

    #[test]
    fn a_server_that_answers_commands_is_asked_nothing() {
        let mut report = report();
        report.outcome = Outcome::NobodyConnected;
        report.setup.tcp_connected = 1_000;
        report.session = Some(SessionReport::default());
        let sentence = |report: &Report| went_wrong(report).unwrap();
        report.errors.insert("session_timeout".to_owned(), 3);
        assert_eq!(
            sentence(&report),
            "1,000 connected, none has its session: is this a Centrifuge endpoint?"
        );
        report.errors.insert("subscribe_error_103".to_owned(), 900);
        assert_eq!(
            sentence(&report),
            "None of the 1,000 clients could connect: the server answered `subscribe` with error 103."
        );
        report.errors.insert("connect_error_101".to_owned(), 9);
        report.errors.insert("session_closed_3500".to_owned(), 5);
        report.errors.insert("session_closed_3501".to_owned(), 5);
        assert_eq!(
            sentence(&report),
            "None of the 1,000 clients could connect: the server answered `connect` with error 101, answered `subscribe` with error 103 and closed with 3500 and 3501."
        );
    }

    #[test]
    fn a_server_that_refuses_every_upgrade_is_a_web_server_at_least() {
        let mut report = report();
        report.outcome = Outcome::NobodyConnected;
        report.setup.tcp_connected = 3_000;
        report.errors.insert("handshake_timeout".to_owned(), 1);
        let sentence = went_wrong(&report).unwrap();
        assert!(sentence.starts_with("1,000 connected"), "{sentence}");
        report.errors.insert("handshake_401".to_owned(), 2_000);
        report.errors.insert("handshake_404".to_owned(), 999);
        let sentence = went_wrong(&report).unwrap();
        assert_eq!(
            sentence,
            "None of the 1,000 clients could connect: the server answered the upgrade with 401 and 404."
        );
    }
}

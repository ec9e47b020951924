//! Messages and requests at a fixed rate. Each must be answered.
//!
//! The rate is the same for all contestants. Measured are the times of the answers at this rate, and whether all come.
//! The highest rate of a server is another question: a crowd on the same machine cannot answer it.

use crate::crowd::{Crowd, CrowdOptions, Files, Load, PacedLoad};
use crate::failure::{Failure, Phase};
use crate::figures::Column;
use crate::manifest::{Feature, WarmUp};
use crate::scenario::{Attempt, Plan, Round, kinds};
use crate::server::{Mode, Server, float};
use crate::tls::Tls;
use myriad_report::{Report, RoundTripReport};
use myriad_units::counted;
use std::time::Duration;

/// From the last connection to the first message.
const AFTER: Duration = Duration::from_millis(500);
/// Beyond its own time: to connect, to wait 30 s for late answers, to close.
const PATIENCE: Duration = Duration::from_secs(180);

/// What each contestant must answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Connections. Of echoes: no more than the crowd has. Of requests: to each process.
    pub connections: u64,
    /// Messages or requests a second, over all connections.
    pub rate_per_s: f64,
    /// Time from the first to the last.
    pub duration: Duration,
}

/// Echoes or requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    /// Messages on the crowd's own connections.
    Echo,
    /// `POST /request` beside a crowd that is only held.
    Request,
}

/// Echoes on a server of their own in mode echo, if the contestant offers them.
pub(crate) fn echo(attempt: &mut Attempt<'_, '_>) -> Result<(), Failure> {
    if !attempt.contestant.offers(Feature::Echo) {
        return Ok(());
    }
    let mut server = attempt.serve(Mode::Echo)?;
    run(ExchangeKind::Echo, attempt, &mut server, 0)?;
    server.stop();
    Ok(())
}

/// Requests to a server that holds `held` connections of a crowd, if the contestant offers them.
pub(crate) fn request(
    attempt: &mut Attempt<'_, '_>,
    server: &mut Server<'_>,
    held: u64,
) -> Result<(), Failure> {
    // What is posted beside held requests is not compared.
    if attempt.plan.held.is_some() || !attempt.contestant.offers(Feature::Request) {
        return Ok(());
    }
    run(ExchangeKind::Request, attempt, server, held)
}

fn run(
    kind: ExchangeKind,
    attempt: &mut Attempt<'_, '_>,
    server: &mut Server<'_>,
    held: u64,
) -> Result<(), Failure> {
    let (warm_up, measured) = kind.phases();
    let plan = attempt.plan;
    let asked = kind.asked(plan);
    if let Some(few) = kind.warm_up(attempt.contestant.warm_up, asked) {
        attempt.enter(warm_up);
        let report = send(kind, server, held, plan, few, warm_up)?;
        verdict(kind, &report, few, warm_up)?;
    }
    attempt.enter(measured);
    let report = send(kind, server, held, plan, asked, measured)?;
    note(kind, attempt.round, &report);
    verdict(kind, &report, asked, measured)
}

impl ExchangeKind {
    /// The warm-up, and what is measured.
    fn phases(self) -> (Phase, Phase) {
        match self {
            Self::Echo => (Phase::EchoWarmUp, Phase::Echo),
            Self::Request => (Phase::RequestWarmUp, Phase::Request),
        }
    }

    fn asked(self, plan: Plan<'_>) -> Exchange {
        match self {
            Self::Echo => plan.echo,
            Self::Request => plan.request,
        }
    }

    /// The warm-up that the manifest asks for, if any. It has a rate of its own: at a low measured rate it would take
    /// hours.
    fn warm_up(self, manifest: WarmUp, asked: Exchange) -> Option<Exchange> {
        let (connections, count, rate_per_s) = match self {
            Self::Echo => {
                let connections = manifest.connections.min(asked.connections);
                let messages = connections.saturating_mul(manifest.echoes);
                (connections, messages, 20_000.0)
            }
            Self::Request => (asked.connections, manifest.requests, 5_000.0),
        };
        (count > 0).then(|| Exchange {
            connections,
            rate_per_s,
            // Not of nothing, after rounding: that is no duration.
            duration: Duration::from_secs_f64(float(count) / rate_per_s)
                .max(Duration::from_millis(1)),
        })
    }

    /// Clients of the crowd. Requests go over connections of their own, beside a crowd of one client.
    fn clients(self, exchange: Exchange) -> u64 {
        match self {
            Self::Echo => exchange.connections,
            Self::Request => 1,
        }
    }

    fn load(self, exchange: Exchange, server: &Server<'_>) -> Load {
        let paced = PacedLoad {
            rate_per_s: exchange.rate_per_s,
            duration: exchange.duration,
            after: AFTER,
        };
        match self {
            Self::Echo => Load::Echo(paced),
            Self::Request => Load::Request {
                urls: server.request_urls(),
                connections: exchange.connections,
                paced,
            },
        }
    }

    fn answers(self, report: &Report) -> Option<RoundTripReport> {
        match self {
            Self::Echo => report.echo,
            Self::Request => report.request,
        }
    }

    /// Columns of answers a second, and of the times of half and of 99% of them.
    fn columns(self) -> [Column; 3] {
        match self {
            Self::Echo => [Column::EchoPerS, Column::EchoP50Ms, Column::EchoP99Ms],
            Self::Request => [
                Column::RequestPerS,
                Column::RequestP50Ms,
                Column::RequestP99Ms,
            ],
        }
    }

    /// Errors that the crowd's report does not list by kind. It does list each lost request by kind.
    fn errors(self, answers: RoundTripReport) -> Vec<(&'static str, u64)> {
        match self {
            Self::Echo => vec![("echo_lost", answers.lost), ("echo_unsent", answers.unsent)],
            Self::Request => vec![("request_unsent", answers.unsent)],
        }
    }

    /// What an answer does.
    fn came_back(self) -> &'static str {
        match self {
            Self::Echo => "messages came back",
            Self::Request => "requests were answered with what they carried",
        }
    }
}

/// One crowd, from its first connection until the server reports only the connections from before.
fn send(
    kind: ExchangeKind,
    server: &mut Server<'_>,
    held: u64,
    plan: Plan<'_>,
    exchange: Exchange,
    phase: Phase,
) -> Result<Report, Failure> {
    let options = CrowdOptions {
        targets: server.targets(),
        connections: kind.clients(exchange),
        held: None,
        ca: plan.tls.map(Tls::certificate),
        load: Some(kind.load(exchange, server)),
    };
    // A crowd that is held meanwhile has the other files.
    let files = Files::of(plan.folder, "exchange");
    let crowd = Crowd::start(&options, &files, plan.guard)?;
    let report = crowd.finish(server, AFTER + exchange.duration + PATIENCE, phase)?;
    server.wait_for_connections(held, phase)?;
    Ok(report)
}

/// Adds times and errors to those of the round.
fn note(kind: ExchangeKind, round: &mut Round, report: &Report) {
    let Some(answers) = kind.answers(report) else {
        return;
    };
    let times = answers.round_trip_ms;
    let figures = [Some(answers.received_per_s), times.p50, times.p99];
    for (column, figure) in kind.columns().into_iter().zip(figures) {
        if let Some(figure) = figure {
            round.figures.insert(column, figure);
        }
    }
    round.add_errors(report.errors.clone());
    round.add_errors([("lost", report.churn.lost)]);
    round.add_errors(kind.errors(answers));
    let (_, measured) = kind.phases();
    let warnings = report.warnings.iter();
    let named = warnings.map(|warning| format!("{measured}: {warning}"));
    round.warnings.extend(named);
}

/// Whether all clients connected and every message came back unchanged. Messages that were not sent because too many
/// were unanswered count as errors. They do not break the contract: the server was slow.
fn verdict(
    kind: ExchangeKind,
    report: &Report,
    asked: Exchange,
    phase: Phase,
) -> Result<(), Failure> {
    let failed = |why: String| {
        let why = format!("{why}{}", kinds(report));
        Err(Failure::Crowd { phase, why })
    };
    let (connected, clients) = (report.setup.connected, kind.clients(asked));
    if connected < clients {
        return failed(format!("only {connected} of {clients} connected"));
    }
    if report.churn.lost > 0 {
        let lost = report.churn.lost;
        return failed(format!("the server closed {}", counted(lost, "connection")));
    }
    let Some(answers) = kind.answers(report) else {
        return failed("the crowd's report says nothing of answers".to_owned());
    };
    let RoundTripReport {
        sent,
        received,
        errors,
        ..
    } = answers;
    if sent == 0 || received < sent {
        return failed(format!("{received} of {sent} {}", kind.came_back()));
    }
    if errors > 0 {
        return failed(format!("{errors} answers were wrong"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Exchange = Exchange {
        connections: 7,
        rate_per_s: 50.0,
        duration: Duration::from_secs(1),
    };

    fn report(kind: ExchangeKind, connected: u64, answers: Option<RoundTripReport>) -> Report {
        let mut report = Report::default();
        report.setup.connected = connected;
        match kind {
            ExchangeKind::Echo => report.echo = answers,
            ExchangeKind::Request => report.request = answers,
        }
        report
    }

    fn answers(sent: u64, received: u64) -> RoundTripReport {
        RoundTripReport {
            sent,
            received,
            lost: sent - received,
            received_per_s: 49.5,
            ..RoundTripReport::default()
        }
    }

    fn judged(kind: ExchangeKind, report: &Report) -> String {
        let verdict = verdict(kind, report, ASKED, kind.phases().1);
        verdict.map_or_else(|failure| failure.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn all_that_was_sent_has_to_come_back() {
        let echo = |connected, answers| report(ExchangeKind::Echo, connected, answers);
        let judged = |report: &Report| judged(ExchangeKind::Echo, report);
        assert_eq!(judged(&echo(7, Some(answers(50, 50)))), "ok");
        let unsent = RoundTripReport {
            unsent: 3,
            ..answers(47, 47)
        };
        assert_eq!(judged(&echo(7, Some(unsent))), "ok");
        assert_eq!(
            judged(&echo(7, Some(answers(50, 48)))),
            "echo: 48 of 50 messages came back"
        );
        assert_eq!(
            judged(&echo(7, Some(answers(0, 0)))),
            "echo: 0 of 0 messages came back"
        );
        assert_eq!(
            judged(&echo(6, Some(answers(50, 50)))),
            "echo: only 6 of 7 connected"
        );
        assert_eq!(
            judged(&echo(7, None)),
            "echo: the crowd's report says nothing of answers"
        );
        let mut wrong = echo(7, Some(answers(50, 50)));
        wrong.echo.as_mut().unwrap().errors = 2;
        wrong.errors.insert("echo_unknown".to_owned(), 2);
        assert_eq!(
            judged(&wrong),
            "echo: 2 answers were wrong (echo_unknown 2)"
        );
        wrong.churn.lost = 1;
        assert_eq!(
            judged(&wrong),
            "echo: the server closed 1 connection (echo_unknown 2)"
        );
    }

    #[test]
    fn requests_need_one_client_beside_them_and_every_answer() {
        let all = report(ExchangeKind::Request, 1, Some(answers(50, 50)));
        assert_eq!(judged(ExchangeKind::Request, &all), "ok");
        let alone = report(ExchangeKind::Request, 0, Some(answers(50, 50)));
        assert_eq!(
            judged(ExchangeKind::Request, &alone),
            "requests: only 0 of 1 connected"
        );
        let mut refused = report(ExchangeKind::Request, 1, Some(answers(50, 0)));
        refused.errors.insert("request_404".to_owned(), 50);
        assert_eq!(
            judged(ExchangeKind::Request, &refused),
            "requests: 0 of 50 requests were answered with what they carried (request_404 50)"
        );
        // Whose echoes were all there says nothing of its requests.
        let echoes = report(ExchangeKind::Echo, 1, Some(answers(50, 50)));
        assert_eq!(
            judged(ExchangeKind::Request, &echoes),
            "requests: the crowd's report says nothing of answers"
        );
    }

    #[test]
    fn what_went_wrong_is_added_to_what_the_pushes_had() {
        let mut round = Round::default();
        round.errors.insert("connect_refused".to_owned(), 2);
        let mut said = report(
            ExchangeKind::Echo,
            7,
            Some(RoundTripReport {
                unsent: 5,
                ..answers(50, 49)
            }),
        );
        said.errors.insert("connect_refused".to_owned(), 1);
        said.warnings.push("short of CPU".to_owned());
        note(ExchangeKind::Echo, &mut round, &said);
        assert_eq!(round.errors["connect_refused"], 3);
        assert_eq!(round.errors["echo_lost"], 1);
        assert_eq!(round.errors["echo_unsent"], 5);
        assert_eq!(round.figures[&Column::Errors], 9.0);
        assert_eq!(round.figures[&Column::EchoPerS], 49.5);
        assert!(!round.figures.contains_key(&Column::EchoP50Ms));
        assert_eq!(round.warnings, ["echo: short of CPU"]);
    }

    #[test]
    fn a_lost_request_is_counted_once_and_under_what_became_of_it() {
        let mut round = Round::default();
        let mut said = report(
            ExchangeKind::Request,
            1,
            Some(RoundTripReport {
                unsent: 5,
                errors: 2,
                ..answers(50, 47)
            }),
        );
        said.errors.insert("request_unanswered".to_owned(), 1);
        said.errors.insert("request_wrong".to_owned(), 2);
        note(ExchangeKind::Request, &mut round, &said);
        let kinds = ["request_unanswered", "request_unsent", "request_wrong"];
        assert!(round.errors.keys().eq(&kinds), "{:?}", round.errors);
        assert_eq!(round.figures[&Column::Errors], 8.0);
        assert_eq!(round.figures[&Column::RequestPerS], 49.5);
        assert!(!round.figures.contains_key(&Column::EchoPerS));
    }

    #[test]
    fn a_warm_up_has_its_own_rate_and_is_none_where_nothing_is_asked_for() {
        let mut manifest = WarmUp {
            connections: 5,
            pushes: 1,
            echoes: 400,
            requests: 10_000,
        };
        let echoes = ExchangeKind::Echo.warm_up(manifest, ASKED).unwrap();
        assert_eq!(
            (echoes.connections, echoes.duration),
            (5, Duration::from_millis(100))
        );
        let requests = ExchangeKind::Request.warm_up(manifest, ASKED).unwrap();
        assert_eq!(
            (requests.connections, requests.duration),
            (7, Duration::from_secs(2))
        );
        (manifest.echoes, manifest.requests) = (0, 0);
        assert!(ExchangeKind::Echo.warm_up(manifest, ASKED).is_none());
        assert!(ExchangeKind::Request.warm_up(manifest, ASKED).is_none());
    }
}

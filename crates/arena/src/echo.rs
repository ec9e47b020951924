//! The last part of a round: messages that come back.
//!
//! The rate is fixed, and the same for everybody. What is looked at is how long answers take at it, and whether all come;
//! how much a server could do at the most is another question, which a crowd on the same machine could not answer.

use crate::course::{Plan, Round, Say, kinds};
use crate::crowd::{self, Crowd, Echoes, Files, Load, Order, Report};
use crate::failure::{Failure, Phase};
use crate::figures::Column;
use crate::manifest::{Contestant, Feature};
use crate::server::{Mode, Server, Start, float};
use std::time::Duration;

/// From the last connection to the first message.
const AFTER: Duration = Duration::from_millis(500);
/// Of a warm-up's messages, whatever the measured rate: at a low one it would take hours.
const WARM_UP_RATE_PER_S: f64 = 20_000.0;
/// Beyond its own time: to connect, to wait 30 s for late answers, to close.
const PATIENCE: Duration = Duration::from_secs(180);

/// What everybody echoes.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// Of the crowd; no more than take part in everything else.
    pub connections: u64,
    /// Messages over the whole crowd.
    pub rate_per_s: f64,
    /// From the first message to the last.
    pub duration: Duration,
}

/// Starts the contestant again, in mode echo, if it has one.
pub(crate) fn run(
    contestant: &Contestant,
    plan: Plan<'_>,
    round: &mut Round,
    say: Say<'_>,
) -> Result<(), Failure> {
    if !contestant.offers(Feature::Echo) {
        return Ok(());
    }
    let start = Start {
        port: plan.port,
        // As before: the same processes, told the same of the crowd.
        connections: plan.connections,
        mode: Mode::Echo,
    };
    let mut server = Server::start(contestant, start, plan.guard)?;
    if let Some(few) = warm_up(contestant, plan.echo) {
        say(Phase::EchoWarmUp);
        let report = send(&mut server, plan, few, Phase::EchoWarmUp)?;
        verdict(&report, few, Phase::EchoWarmUp)?;
    }
    say(Phase::Echo);
    let report = send(&mut server, plan, plan.echo, Phase::Echo)?;
    note(round, &report);
    verdict(&report, plan.echo, Phase::Echo)?;
    server.stop();
    Ok(())
}

/// As many messages on each connection as the manifest asks for; none where it asks for nothing.
fn warm_up(contestant: &Contestant, echo: Echo) -> Option<Echo> {
    let warm_up = contestant.warm_up;
    let connections = warm_up.connections.min(echo.connections);
    let messages = connections.saturating_mul(warm_up.echoes);
    (messages > 0).then(|| Echo {
        connections,
        rate_per_s: WARM_UP_RATE_PER_S,
        // Not of nothing, after rounding: that is no duration.
        duration: Duration::from_secs_f64(float(messages) / WARM_UP_RATE_PER_S)
            .max(Duration::from_millis(1)),
    })
}

/// One crowd from its first connection until the server says that nobody is left.
fn send(
    server: &mut Server<'_>,
    plan: Plan<'_>,
    echo: Echo,
    phase: Phase,
) -> Result<Report, Failure> {
    let order = Order {
        targets: server.targets(),
        connections: echo.connections,
        load: Some(Load::Echo(crowd::Echo {
            rate_per_s: echo.rate_per_s,
            duration: echo.duration,
            after: AFTER,
        })),
    };
    let crowd = Crowd::start(&order, &Files::within(plan.folder), plan.guard)?;
    let report = crowd.finish(server, AFTER + echo.duration + PATIENCE, phase)?;
    server.wait_for_connections(0, phase)?;
    Ok(report)
}

/// Times and what went wrong, beside what the round has already.
fn note(round: &mut Round, report: &Report) {
    let Some(echo) = report.echo else { return };
    let figures = &mut round.figures;
    figures.insert(Column::EchoPerS, echo.received_per_s);
    let times = echo.round_trip_ms;
    for (column, time) in [
        (Column::EchoP50Ms, times.p50),
        (Column::EchoP99Ms, times.p99),
    ] {
        if let Some(ms) = time {
            figures.insert(column, ms);
        }
    }
    let mut add = |kind: &str, count: u64| {
        if count > 0 {
            *round.errors.entry(kind.to_owned()).or_insert(0) += count;
        }
    };
    for (kind, count) in &report.errors {
        add(kind, *count);
    }
    add("lost", report.churn.lost);
    add("echo_lost", echo.lost);
    add("echo_unsent", echo.unsent);
    let errors = float(round.errors.values().sum());
    round.figures.insert(Column::Errors, errors);
    let warnings = report.warnings.iter();
    let named = warnings.map(|warning| format!("echo: {warning}"));
    round.warnings.extend(named);
}

/// Whether everybody was there and all that was sent came back as it was. What was never sent, because too much was
/// unanswered, is an error that is counted, but no broken contract: the server was slow.
fn verdict(report: &Report, asked: Echo, phase: Phase) -> Result<(), Failure> {
    let failed = |why: String| {
        let why = format!("{why}{}", kinds(report));
        Err(Failure::Crowd { phase, why })
    };
    let (connected, connections) = (report.setup.connected, asked.connections);
    if connected < connections {
        return failed(format!("only {connected} of {connections} connected"));
    }
    if report.churn.lost > 0 {
        let lost = report.churn.lost;
        return failed(format!("the server closed {lost} connections"));
    }
    let Some(echo) = report.echo else {
        return failed("the crowd's report has no echoes".to_owned());
    };
    let Echoes {
        sent,
        received,
        errors,
        ..
    } = echo;
    if sent == 0 || received < sent {
        return failed(format!("{received} of {sent} messages came back"));
    }
    if errors > 0 {
        return failed(format!("{errors} answers were wrong"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Report;

    const ASKED: Echo = Echo {
        connections: 7,
        rate_per_s: 50.0,
        duration: Duration::from_secs(1),
    };

    fn report(connected: u64, echo: Option<Echoes>) -> Report {
        let mut report = Report {
            echo,
            ..Report::default()
        };
        report.setup.connected = connected;
        report
    }

    fn echoes(sent: u64, received: u64) -> Echoes {
        Echoes {
            sent,
            received,
            lost: sent - received,
            received_per_s: 49.5,
            ..Echoes::default()
        }
    }

    fn judged(report: &Report) -> String {
        let verdict = verdict(report, ASKED, Phase::Echo);
        verdict.map_or_else(|failure| failure.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn all_that_was_sent_has_to_come_back() {
        assert_eq!(judged(&report(7, Some(echoes(50, 50)))), "ok");
        let unsent = Echoes {
            unsent: 3,
            ..echoes(47, 47)
        };
        assert_eq!(judged(&report(7, Some(unsent))), "ok");
        assert_eq!(
            judged(&report(7, Some(echoes(50, 48)))),
            "echo: 48 of 50 messages came back"
        );
        assert_eq!(
            judged(&report(7, Some(echoes(0, 0)))),
            "echo: 0 of 0 messages came back"
        );
        assert_eq!(
            judged(&report(6, Some(echoes(50, 50)))),
            "echo: only 6 of 7 connected"
        );
        assert_eq!(
            judged(&report(7, None)),
            "echo: the crowd's report has no echoes"
        );
        let mut wrong = report(7, Some(echoes(50, 50)));
        wrong.echo.as_mut().unwrap().errors = 2;
        wrong.errors.insert("echo_unknown".to_owned(), 2);
        assert_eq!(
            judged(&wrong),
            "echo: 2 answers were wrong (echo_unknown 2)"
        );
        wrong.churn.lost = 1;
        assert_eq!(
            judged(&wrong),
            "echo: the server closed 1 connections (echo_unknown 2)"
        );
    }

    #[test]
    fn what_went_wrong_is_added_to_what_the_pushes_had() {
        let mut round = Round::default();
        round.errors.insert("connect_refused".to_owned(), 2);
        let mut said = report(
            7,
            Some(Echoes {
                unsent: 5,
                ..echoes(50, 49)
            }),
        );
        said.errors.insert("connect_refused".to_owned(), 1);
        said.warnings.push("short of CPU".to_owned());
        note(&mut round, &said);
        assert_eq!(round.errors["connect_refused"], 3);
        assert_eq!(round.errors["echo_lost"], 1);
        assert_eq!(round.errors["echo_unsent"], 5);
        assert_eq!(round.figures[&Column::Errors], 9.0);
        assert_eq!(round.figures[&Column::EchoPerS], 49.5);
        assert!(!round.figures.contains_key(&Column::EchoP50Ms));
        assert_eq!(round.warnings, ["echo: short of CPU"]);
    }
}

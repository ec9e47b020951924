//! Clients that the server holds over HTTP: what a round has for them beside pushes.

use crate::crowd::{Crowd, CrowdOptions, Files, HeldClients, Load, Publish};
use crate::failure::{Failure, Phase};
use crate::figures::Column;
use crate::manifest::{Contestant, Transport};
use crate::scenario::{Attempt, kinds};
use crate::server::{Server, float};
use crate::tls::Tls;
use myriad_report::Report;
use std::time::Duration;

/// Time for which polls are answered as fast as they come.
pub(crate) const RATE_FOR: Duration = Duration::from_secs(5);
/// Between two publications: faster than any server answers a large crowd.
pub(crate) const RATE_EVERY: Duration = Duration::from_millis(50);
/// From the last connection to the first publication.
const RATE_AFTER: Duration = Duration::from_secs(1);
/// Beyond its own time: to connect, to wait 30 s for late answers, to close.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the crowd of a contestant speaks; none for WebSockets.
pub(crate) fn clients(contestant: &Contestant, held: Option<Transport>) -> Option<HeldClients> {
    let position = contestant
        .held
        .as_ref()
        .and_then(|held| held.position.clone());
    held.map(|transport| HeldClients {
        transport,
        position,
    })
}

/// Polls that are parked and answered as fast as the server can: publications follow each other so closely that no
/// server is done with one when the next is due. Each client asks again at once.
pub(crate) fn rate(attempt: &mut Attempt<'_, '_>, server: &mut Server<'_>) -> Result<(), Failure> {
    let plan = attempt.plan;
    if plan.held != Some(Transport::LongPoll) {
        return Ok(());
    }
    attempt.enter(Phase::PollRate);
    let broadcast = server.broadcast();
    let publish = Publish {
        urls: server.broadcast_urls(),
        body: broadcast.body,
        pushes: u64::try_from(RATE_FOR.as_millis() / RATE_EVERY.as_millis()).unwrap_or(u64::MAX),
        every: RATE_EVERY,
        after: RATE_AFTER,
    };
    let options = CrowdOptions {
        targets: server.targets(),
        connections: plan.connections,
        held: clients(attempt.contestant, plan.held),
        ca: plan.tls.map(Tls::certificate),
        load: Some(Load::PublishFor(publish, RATE_FOR)),
    };
    let crowd = Crowd::start(&options, &Files::of(plan.folder, "rate"), plan.guard)?;
    let report = crowd.finish(server, RATE_FOR + RATE_AFTER + PATIENCE, Phase::PollRate)?;
    // Not those missed: the crowd leaves in the middle of it.
    attempt.round.add_errors(report.errors.clone());
    attempt.round.add_errors([
        ("lost", report.churn.lost),
        ("gaps", report.messages.gaps),
        ("duplicates", report.messages.duplicates),
    ]);
    let answers = judge(&report, plan.connections)?;
    let per_s = float(answers) / RATE_FOR.as_secs_f64();
    attempt.round.figures.insert(Column::PollAnswersPerS, per_s);
    server.wait_for_connections(0, Phase::PollRate)?;
    Ok(())
}

/// The answers, if everybody stayed to the end.
fn judge(report: &Report, connections: u64) -> Result<u64, Failure> {
    let failed = |why: String| Failure::Crowd {
        phase: Phase::PollRate,
        why: format!("{why}{}", kinds(report)),
    };
    let connected = report.setup.connected;
    if connected < connections {
        return Err(failed(format!(
            "only {connected} of {connections} connected"
        )));
    }
    if report.churn.lost > 0 {
        let lost = report.churn.lost;
        return Err(failed(format!(
            "connections that the server closed: {lost}"
        )));
    }
    let answers = report.http.as_ref().map_or(0, |http| http.answers);
    if answers == 0 {
        return Err(failed("no poll was answered".to_owned()));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::HttpReport;

    fn judged(change: impl FnOnce(&mut Report)) -> Result<u64, String> {
        let mut report = Report::default();
        report.setup.connected = 5;
        report.http = Some(HttpReport {
            answers: 700,
            ..HttpReport::default()
        });
        change(&mut report);
        judge(&report, 5).map_err(|failure| failure.to_string())
    }

    #[test]
    fn answers_count_if_everybody_stayed() {
        assert_eq!(judged(|_| {}), Ok(700));
        let why = judged(|report| report.setup.connected = 4).unwrap_err();
        assert!(why.contains("only 4 of 5"), "{why}");
        let why = judged(|report| report.churn.lost = 2).unwrap_err();
        assert!(why.contains("closed: 2"), "{why}");
        let why = judged(|report| {
            report.http = None;
            report.errors.insert("answer_500".to_owned(), 9);
        })
        .unwrap_err();
        assert!(why.contains("no poll was answered (answer_500 9)"), "{why}");
    }
}

//! Questions to shards: how many may be under way, and how long their answers may take.
//!
//! A request has one deadline, for its turn and for its answers together.

use super::super::Control;
use super::fault::{Code, Fault};
use myriad_shard::{Inquiry, InquiryAnswer, Mesh, RequestId};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Questions under way that cost shards milliseconds, and the control plane as much memory as their answers take.
pub(super) const QUESTIONS_MAX: usize = 8;

/// A turn to ask; dropped when the answer is written.
pub(in super::super) type Turn<'c> = SemaphorePermit<'c>;

/// Waits for a turn to ask.
pub(in super::super) async fn turn(
    control: &Control,
    deadline: Instant,
) -> Result<Turn<'_>, Fault> {
    let turn = timeout_at(deadline, control.api.questions.acquire()).await;
    let Ok(Ok(turn)) = turn else {
        return Err(Fault::busy(
            "too many questions about channels and members are under way; ask less often",
        ));
    };
    if Instant::now() >= deadline {
        // Nobody would wait for the answers.
        return Err(Fault::unanswered());
    }
    Ok(turn)
}

/// Asks every shard. A shard that has ended has nothing to say.
pub(super) async fn every_shard(
    control: &Control,
    inquiry: &Inquiry,
    deadline: Instant,
) -> Result<Vec<InquiryAnswer>, Fault> {
    let wait = control.api.inquiries.begin();
    for shard in 0..control.mesh.shard_count() {
        control.mesh.inquire(shard, wait.ask(), inquiry.clone());
    }
    let answers = wait.until(deadline).await;
    let answers: Option<Vec<_>> = answers.into_iter().collect();
    let answers = answers.ok_or_else(Fault::unanswered)?;
    Ok(answers.into_iter().flatten().collect())
}

/// Asks the home of a channel.
pub(in super::super) async fn home(
    control: &Control,
    deadline: Instant,
    ask: impl FnOnce(&Mesh, RequestId),
) -> Result<InquiryAnswer, Fault> {
    let wait = control.api.inquiries.begin();
    ask(&control.mesh, wait.ask());
    let mut answers = wait.until(deadline).await;
    let answer = answers.pop().flatten().ok_or_else(Fault::unanswered)?;
    answer.ok_or_else(Fault::draining)
}

/// A shard answers what it was not asked. That is a defect of ours, and ends the request only: a panic would end everybody's connections.
pub(super) fn defective(asked: &str, answer: &InquiryAnswer) -> Fault {
    debug_assert!(false, "asked for {asked}, a shard answers {answer:?}");
    tracing::error!(
        target: "myriad::defects",
        "a defect of this server: asked for {asked}, a shard answers something else; the request fails. Please report it"
    );
    Fault::new(
        Code::Internal,
        "a defect of this server, which its log names; whether the request was carried out is unknown",
    )
}

/// A count that a request may name, up to a bound; the bound if it names none.
pub(super) fn page_size(limit: Option<i64>, most: usize) -> Result<usize, Fault> {
    match limit {
        None | Some(0) => Ok(most),
        Some(limit) => usize::try_from(limit)
            .map(|limit| limit.min(most))
            .map_err(|_| Fault::bad(format!("field \"limit\" is {limit}; send 1 to {most}"))),
    }
}

//! What sessions ask: commands that need an application, or more time than a shard has.

use crate::auth::Authority;
use crate::shards::monotonic_now;
use myriad_shard::{Ask, AskAnswer, AskingClient, Mesh, Now, Question};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Whoever answers what sessions ask.
pub(crate) trait Answerer {
    /// May take long: at the question's deadline it is dropped.
    async fn answer(&self, asker: &AskingClient, question: &Question) -> AskAnswer;
}

impl<A: Answerer> Answerer for Arc<A> {
    async fn answer(&self, asker: &AskingClient, question: &Question) -> AskAnswer {
        (**self).answer(asker, question).await
    }
}

/// Answers what comes with a token, and leaves the rest to an application.
pub(crate) struct WithTokens<A> {
    pub(crate) tokens: Arc<Authority>,
    pub(crate) application: A,
}

impl<A: Answerer> Answerer for WithTokens<A> {
    async fn answer(&self, asker: &AskingClient, question: &Question) -> AskAnswer {
        match self.tokens.answer(asker, question).await {
            Some(answer) => answer,
            None => self.application.answer(asker, question).await,
        }
    }
}

/// Answers an ask, unless its deadline comes first.
pub(crate) async fn answer(mesh: Mesh, ask: Ask, answerer: impl Answerer) {
    let answer = within(ask.deadline(), answerer.answer(ask.asker(), ask.question())).await;
    // Without an answer the ask is only dropped: its shard answers the client at the same deadline.
    if let Some(answer) = answer {
        mesh.answer(ask, answer);
    }
}

/// The answer, if it comes by the deadline. After the deadline nobody is even asked, so that what has piled up goes quickly.
async fn within(deadline: Now, answer: impl Future<Output = AskAnswer>) -> Option<AskAnswer> {
    let left = deadline.0.checked_sub(monotonic_now().0)?;
    timeout(Duration::from_nanos(left), answer).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Application;
    use myriad_shard::ErrorCode;
    use std::future::{pending, ready};

    fn answer() -> AskAnswer {
        AskAnswer::Refused(ErrorCode::NotAvailable.into())
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn an_answer_is_waited_for_until_the_deadline() {
        let second = Duration::from_secs(1);
        let deadline = Now(monotonic_now().0 + 3_600_000_000_000);
        let slow = async {
            tokio::time::sleep(second).await;
            answer()
        };
        assert!(run(within(deadline, slow)).is_some());
        assert!(run(within(deadline, pending())).is_none());
    }

    /// Bytes of the future that `make` would make.
    fn size_made<A, F: Future>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Thousands of asks may wait for the application at once.
    #[test]
    fn an_ask_that_waits_is_small() {
        let bytes = size_made(|(mesh, ask, answerer)| {
            super::answer(mesh, ask, WithTokens::<Arc<Application>> { ..answerer })
        });
        assert!(bytes <= 4096, "{bytes}");
    }

    #[test]
    fn after_the_deadline_nobody_is_asked() {
        assert!(run(within(Now(0), ready(answer()))).is_none());
    }
}

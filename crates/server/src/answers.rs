//! Requests that wait for answers of shards.
//!
//! A shard answers with an id, which is plain data, through the [mailbox](crate::mailbox); here the control plane finds the request that
//! the id belongs to. A request may wait for many answers: each of its questions has a place.

use myriad_shard::RequestId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Bits of an id that say the place.
const PLACE_BITS: u32 = 24;

/// The waiting requests by the ids of their questions. Each ends with its [`Wait`], so there are no more than requests under way.
#[derive(Debug)]
pub(crate) struct Answers<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    last: u64,
    requests: HashMap<u64, Gathered<T>>,
}

/// The answers to one request.
#[derive(Debug)]
struct Gathered<T> {
    answers: Vec<Option<T>>,
    missing: usize,
    whole: Arc<Notify>,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting {
            last: 0,
            requests: HashMap::new(),
        }))
    }
}

impl<T> Answers<T> {
    /// A request that has asked nothing yet.
    pub(crate) fn begin(&self) -> Wait<'_, T> {
        let whole = Arc::new(Notify::new());
        let mut waiting = self.lock();
        waiting.last += 1;
        let request = waiting.last;
        let gathered = Gathered {
            answers: Vec::new(),
            missing: 0,
            whole: Arc::clone(&whole),
        };
        waiting.requests.insert(request, gathered);
        Wait {
            answers: self,
            request,
            whole,
        }
    }

    /// A question is answered. One that nobody waits for is answered in vain.
    pub(crate) fn settle(&self, id: RequestId, answer: T) {
        self.lock().settle(id, Some(answer));
    }

    /// Nobody waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().requests.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Waiting<T> {
    /// Ends the wait for one answer; without one, where there will be none.
    fn settle(&mut self, id: RequestId, answer: Option<T>) {
        let (request, place) = (id.0 >> PLACE_BITS, id.0 & ((1 << PLACE_BITS) - 1));
        let Some(gathered) = self.requests.get_mut(&request) else {
            return;
        };
        let place = usize::try_from(place).expect("24 bits");
        gathered.answers[place] = answer;
        gathered.missing -= 1;
        if gathered.missing == 0 {
            gathered.whole.notify_one();
        }
    }
}

/// A request that waits. After its drop, answers find nobody.
#[derive(Debug)]
pub(crate) struct Wait<'a, T> {
    answers: &'a Answers<T>,
    request: u64,
    whole: Arc<Notify>,
}

impl<T> Wait<'_, T> {
    /// Names one more question, in the place behind the others. It is answered once, or given up.
    pub(crate) fn ask(&self) -> RequestId {
        let mut waiting = self.answers.lock();
        let gathered = waiting.requests.get_mut(&self.request);
        let gathered = gathered.expect("a request is there as long as it waits");
        let place = gathered.answers.len() as u64;
        assert!(place < 1 << PLACE_BITS, "a place has {PLACE_BITS} bits");
        gathered.answers.push(None);
        gathered.missing += 1;
        RequestId(self.request << PLACE_BITS | place)
    }

    /// The question was not asked: there will be no answer.
    pub(crate) fn give_up(&self, id: RequestId) {
        self.answers.lock().settle(id, None);
    }

    /// Waits until every question is answered or given up, at most until the deadline. Whatever is missing then is none.
    pub(crate) async fn until(self, deadline: Instant) -> Vec<Option<T>> {
        let is_whole = |waiting: &Waiting<T>| {
            let gathered = waiting.requests.get(&self.request);
            gathered.is_none_or(|gathered| gathered.missing == 0)
        };
        while !is_whole(&self.answers.lock()) {
            if timeout_at(deadline, self.whole.notified()).await.is_err() {
                break;
            }
        }
        let gathered = self.answers.lock().requests.remove(&self.request);
        gathered.map_or_else(Vec::new, |gathered| gathered.answers)
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        self.answers.lock().requests.remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn each_question_gets_its_own_answer() {
        let answers = Answers::default();
        let (first, second) = (answers.begin(), answers.begin());
        let ids = [first.ask(), first.ask(), first.ask()];
        assert!(!ids.contains(&second.ask()));
        answers.settle(ids[2], "c");
        first.give_up(ids[1]);
        answers.settle(ids[0], "a");
        let deadline = Instant::now() + Duration::from_secs(1);
        let begin = Instant::now();
        assert_eq!(first.until(deadline).await, [Some("a"), None, Some("c")]);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        // Answers to a request that has ended find nobody.
        answers.settle(ids[0], "late");
        drop(second);
        assert!(answers.lock().requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_at_the_deadline_is_none() {
        let answers = Answers::default();
        let wait = answers.begin();
        let ids = [wait.ask(), wait.ask()];
        answers.settle(ids[1], 7);
        let begin = Instant::now();
        let deadline = begin + Duration::from_secs(4);
        assert_eq!(wait.until(deadline).await, [None, Some(7)]);
        assert_eq!(begin.elapsed(), Duration::from_secs(4));
        assert!(answers.lock().requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_questions_waits_for_nobody() {
        let answers = Answers::<u8>::default();
        let deadline = Instant::now() + Duration::from_secs(4);
        assert!(answers.begin().until(deadline).await.is_empty());
        assert!(Instant::now() < deadline);
    }
}

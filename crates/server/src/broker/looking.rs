//! Whether a stream still has what was read of it.

use super::acknowledged::{Acknowledged, DOUBTED_MAX};
use super::link::{Link, Log};
use super::servers::{FeedError, Stored, Way, Which};
use super::store::is_from;
use myriad_broker::Anchor;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Entries that were stored further apart than this: in between, a server without the last ones may have become the stream's leader.
/// NATS needs longer than that to elect one.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_NS: i128 = PAUSE.as_nanos() as i128;
/// Pauses whose entries wait to be looked for.
const READ_MAX: usize = 8;

/// Entries that were looked for, up to the first one that is still there, and when what stands in its place was stored.
#[derive(Debug)]
pub(super) struct Found(pub(super) Vec<(Anchor, Option<i128>)>);

impl Found {
    /// Whether another entry stands in the place of one.
    pub(super) fn has_other(&self) -> bool {
        let mut found = self.0.iter();
        found.any(|(anchor, stored_ns)| stored_ns.is_some_and(|ns| ns != anchor.stored_ns))
    }
}

/// The first message from a place on.
pub(super) async fn look_from(
    link: &Link,
    log: &Log,
    sequence: u64,
) -> Result<Option<Stored>, FeedError> {
    let which = Which::From(sequence);
    link.servers.look(Way::Reading, log, which).await
}

/// The message at a place; none if it has gone, or if there never was one.
async fn look_at(link: &Link, log: &Log, sequence: u64) -> Result<Option<Stored>, FeedError> {
    let next = look_from(link, log, sequence).await?;
    Ok(next.filter(|next| next.sequence == sequence))
}

/// Whether another message stands where one of this node was stored. One that has gone says nothing: the stream may have dropped it for
/// later ones of its channel, or because of its age. A stream that ends before that place has lost it, or its leader is new
/// ([`FeedError::Short`]).
async fn has_other_in_our_place(
    link: &Link,
    log: &Log,
    message: Acknowledged,
) -> Result<bool, FeedError> {
    let Some(found) = look_from(link, log, message.sequence).await? else {
        if link.servers.extent(log).await?.last < message.sequence {
            return Err(FeedError::Short(message.sequence));
        }
        return Ok(false);
    };
    let stands_there = found.sequence == message.sequence;
    Ok(stands_there && !is_from(&found, &link.node, message.serial))
}

/// Looks for entries, until one of them is still there: those before it are the same if it is.
pub(super) async fn look_for(
    link: &Link,
    log: &Log,
    anchors: &[Anchor],
) -> Result<Found, FeedError> {
    let mut found = Vec::new();
    for anchor in anchors {
        let entry = look_at(link, log, anchor.sequence).await?;
        let stored_ns = entry.map(|entry| entry.stored_ns);
        found.push((*anchor, stored_ns));
        if stored_ns.is_some() {
            break;
        }
    }
    Ok(Found(found))
}

/// Whether an entry was stored long after the newest one that is known. The last ones are looked at again then: if a server without the
/// stream's end leads it since, what was stored meanwhile has places that this node has read, and what comes now looks as if nothing were
/// missing. By the servers' clock, because this node may have stood still.
pub(super) fn is_pause(newest: Anchor, stored_ns: i128) -> bool {
    stored_ns - newest.stored_ns > PAUSE_NS
}

/// What may be another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The last entries that were read before a pause; the newest first.
    Read(Vec<Anchor>),
    /// A message of this node.
    Acknowledged(Acknowledged),
}

impl Doubt {
    /// Whether another entry stands in its place.
    pub(super) async fn has_other(&self, link: &Link, log: &Log) -> Result<bool, FeedError> {
        match self {
            Self::Read(anchors) => Ok(look_for(link, log, anchors).await?.has_other()),
            Self::Acknowledged(message) => has_other_in_our_place(link, log, *message).await,
        }
    }
}

/// A question for what is in doubt.
struct Check {
    doubt: Doubt,
    answer: JoinHandle<Result<bool, FeedError>>,
}

/// What was read and acknowledged before each pause, and may be something else now. It is looked for, one after the other.
#[derive(Default)]
pub(super) struct Doubts {
    waiting: VecDeque<Doubt>,
    check: Option<Check>,
}

impl Doubts {
    /// Entries are in doubt; the newest is the first. The oldest few wait: a fault of the servers began where they could not be looked for.
    pub(super) fn push(&mut self, anchors: Vec<Anchor>) {
        let are_read = |doubt: &&Doubt| matches!(doubt, Doubt::Read(_));
        if self.waiting.iter().filter(are_read).count() < READ_MAX {
            self.waiting.push_back(Doubt::Read(anchors));
        }
    }

    /// Takes the messages of this node that are in doubt, as long as few of them wait here. The others stay where they are.
    pub(super) fn take_from(&mut self, log: &Log) {
        let is_acknowledged = |doubt: &&Doubt| matches!(doubt, Doubt::Acknowledged(_));
        let count = self.waiting.iter().filter(is_acknowledged).count();
        for _ in count..DOUBTED_MAX {
            let Some(message) = log.take_doubted() else {
                return;
            };
            let doubt = Doubt::Acknowledged(message);
            // The one that is asked about now does not count: its answer may be older than this doubt.
            if !self.waiting.contains(&doubt) {
                self.waiting.push_back(doubt);
            }
        }
    }

    /// All that is not known to be the same.
    pub(super) fn all(&self) -> impl Iterator<Item = &Doubt> {
        let asked = self.check.iter().map(|check| &check.doubt);
        asked.chain(&self.waiting)
    }

    /// Whether another entry is in the place of one that was looked for. Asks for the next ones, unless an answer is still to come.
    ///
    /// # Errors
    /// The stream ends before what is in doubt. It is still in doubt: opening the stream shows what that means.
    pub(super) async fn check(
        &mut self,
        link: &Arc<Link>,
        log: &Arc<Log>,
    ) -> Result<bool, FeedError> {
        let is_answered = |check: &mut Check| check.answer.is_finished();
        if let Some(check) = self.check.take_if(is_answered) {
            match check.answer.await {
                Ok(Ok(true)) => return Ok(true),
                Ok(Ok(false)) => {}
                Ok(Err(error @ FeedError::Short(_))) => {
                    self.waiting.push_front(check.doubt);
                    return Err(error);
                }
                Ok(Err(_)) | Err(_) => self.waiting.push_front(check.doubt),
            }
        }
        if self.check.is_none()
            && let Some(doubt) = self.waiting.pop_front()
        {
            let (link, log) = (Arc::clone(link), Arc::clone(log));
            let asked = doubt.clone();
            let answer = tokio::spawn(async move { asked.has_other(&link, &log).await });
            self.check = Some(Check { doubt, answer });
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_few_pauses_wait() {
        let anchors = |sequence| {
            vec![Anchor {
                sequence,
                stored_ns: 0,
            }]
        };
        let mut doubts = Doubts::default();
        for sequence in 1..=20 {
            doubts.push(anchors(sequence));
        }
        let oldest = (1..=READ_MAX as u64).map(|sequence| Doubt::Read(anchors(sequence)));
        assert!(doubts.all().cloned().eq(oldest));
    }
}

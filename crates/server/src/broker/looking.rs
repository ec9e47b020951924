//! Whether a stream still has what was read of it.

use super::link::{Acknowledged, Link, Log};
use super::servers::{FeedError, Stored, Way, Which};
use super::store::is_from;
use myriad_broker::Anchor;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Entries that were stored further apart than this: in between, a server without the last ones may have become the stream's leader.
/// NATS needs longer than that to elect one.
const PAUSE_NS: i128 = 1_000_000_000;

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

/// Whether no other message stands where one of this node was stored. One that has gone says nothing: the stream may have dropped it for
/// later ones of its channel, or because of its age.
pub(super) async fn has_no_others_in_our_places(
    link: &Link,
    log: &Log,
    messages: &[Acknowledged],
) -> Result<bool, FeedError> {
    for message in messages {
        let found = look_at(link, log, message.sequence).await?;
        let is_other = found.is_some_and(|found| !is_from(&found, &link.node, message.serial));
        if is_other {
            return Ok(false);
        }
    }
    Ok(true)
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

/// A question for entries that were read.
struct Check {
    /// The newest first.
    anchors: Vec<Anchor>,
    answer: JoinHandle<Result<Found, FeedError>>,
}

/// The last entries before each pause, which may be others now. They are looked at one after the other.
#[derive(Default)]
pub(super) struct Doubts {
    waiting: VecDeque<Vec<Anchor>>,
    check: Option<Check>,
}

impl Doubts {
    /// Entries are in doubt; the newest is the first.
    pub(super) fn push(&mut self, anchors: Vec<Anchor>) {
        self.waiting.push_back(anchors);
    }

    /// All that are not known to be the same.
    pub(super) fn all(&self) -> impl Iterator<Item = &Vec<Anchor>> {
        let asked = self.check.iter().map(|check| &check.anchors);
        asked.chain(&self.waiting)
    }

    /// Whether another entry is in the place of one that was looked for. Asks for the next ones, unless an answer is still to come.
    pub(super) async fn check(&mut self, link: &Arc<Link>, log: &Arc<Log>) -> bool {
        let is_answered = |check: &mut Check| check.answer.is_finished();
        if let Some(check) = self.check.take_if(is_answered) {
            match check.answer.await {
                Ok(Ok(found)) if found.has_other() => return true,
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => self.waiting.push_front(check.anchors),
            }
        }
        if self.check.is_none()
            && let Some(anchors) = self.waiting.pop_front()
        {
            let (link, log) = (Arc::clone(link), Arc::clone(log));
            let asked = anchors.clone();
            let answer = tokio::spawn(async move { look_for(&link, &log, &asked).await });
            self.check = Some(Check { anchors, answer });
        }
        false
    }
}

//! The beat of a stream: a message about no channel, which says whose entries these are.
//!
//! The epoch lives in the stream's own data: `created` stays the same when servers come back without what they had. Whoever finds no
//! beat, or that entries are gone which it has read, writes a beat with another epoch. Each beat names the one before it, so of two
//! nodes that write at once one loses and reads again. A beat is written when none has come for a while, too: by it a node knows that it
//! still hears the stream.
//!
//! A message has the epoch of the beat before it. Each beat but the first of its epoch says where that first one stands. So one beat shows
//! which messages before it are of its epoch.

use super::fault::Fault;
use super::link::{Link, Log};
use super::looking::look_from;
use super::remarks::Remark;
use super::servers::{FeedError, NotStored, ToStore, Way, Which};
use myriad_shard::Epoch;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// A beat is written when none has come for so long.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(10);
/// A node that has heard no beat for so long no longer hears the stream.
pub(super) const BEAT_TIMEOUT: Duration = Duration::from_secs(25);
/// A node that has not heard its own beat so long after it was stored hears a copy of the stream that has lost the others.
const STORED_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node waits until its beat is stored.
const BEAT_PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to write a beat: the first one has to be heard.
const BEAT_PAUSE: Duration = Duration::from_secs(1);
/// How long a node that comes waits for a beat behind a message that is none, before it gives the stream another epoch. Nodes that know
/// the epoch write one within a second.
const RUBBISH_TIMEOUT: Duration = Duration::from_secs(5);
const RUBBISH_PAUSE: Duration = Duration::from_millis(200);
/// Nodes that write at once: each attempt one of them succeeds.
const ATTEMPTS_MAX: usize = 1_000;

/// The last message where beats stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastBeat {
    /// None if it is no beat: somebody else wrote it.
    pub(super) epoch: Option<Epoch>,
    pub(super) sequence: u64,
    /// Where its epoch began; if it is no beat, its own place.
    pub(super) since: u64,
}

/// A beat that this node has written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) epoch: Epoch,
    pub(super) sequence: u64,
    /// Where its epoch began.
    pub(super) since: u64,
    /// When it was stored, by the servers' clock: ns since 1970.
    pub(super) stored_ns: i128,
}

/// Why no beat was read or written.
#[derive(Debug, Error)]
pub(super) enum BeatError {
    #[error("reading the beat: {0}")]
    Read(#[from] FeedError),
    #[error("writing the beat: {0}")]
    Write(#[from] NotStored),
    #[error("others write beats without end")]
    Crowded,
    #[error("the beat that was just written is not there")]
    Gone,
    #[error("the kernel has no random number")]
    Random,
}

/// The text of a beat.
#[derive(Serialize, Deserialize)]
struct Text<'a> {
    epoch: &'a str,
    /// The place of the epoch's first beat; none in that one, and in those of older nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

/// What a beat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    pub(super) epoch: Epoch,
    /// Where the epoch began.
    pub(super) since: u64,
}

/// Reads the beat that stands there; none if it is none.
pub(super) fn parse(payload: &[u8], sequence: u64) -> Option<Beat> {
    let text: Text<'_> = serde_json::from_slice(payload).ok()?;
    Some(Beat {
        epoch: Epoch::parse(text.epoch)?,
        since: text.since.map_or(sequence, |since| since.min(sequence)),
    })
}

/// The beats that stand in one stream: reads and writes them.
#[derive(Debug)]
pub(super) struct StoredBeats<'a> {
    pub(super) link: &'a Link,
    pub(super) log: &'a Log,
    pub(super) subject: &'a str,
}

impl StoredBeats<'_> {
    /// The last beat, as the stream's leader has it; none if there is none.
    pub(super) async fn last(&self, way: Way) -> Result<Option<LastBeat>, BeatError> {
        let which = Which::LastOf(self.subject);
        let last = self.link.servers.look(way, self.log, which).await?;
        Ok(last.map(|message| {
            let sequence = message.sequence;
            let beat = parse(&message.payload, sequence);
            LastBeat {
                epoch: beat.map(|beat| beat.epoch),
                sequence,
                since: beat.map_or(sequence, |beat| beat.since),
            }
        }))
    }

    /// A node that knows the epoch writes a beat behind what is none. Waits for that, as long as nodes may need.
    async fn last_behind_rubbish(&self) -> Result<Option<LastBeat>, BeatError> {
        let deadline = Instant::now() + RUBBISH_TIMEOUT;
        loop {
            let last = self.last(Way::Reading).await?;
            if !is_rubbish(last) || Instant::now() >= deadline {
                return Ok(last);
            }
            sleep(RUBBISH_PAUSE).await;
        }
    }

    /// Writes a beat of an epoch that began there (none: with it), behind the message at `behind` (0: none). None if another one came
    /// first.
    pub(super) async fn write(
        &self,
        epoch: Epoch,
        since: Option<u64>,
        behind: u64,
    ) -> Result<Option<u64>, BeatError> {
        let text = Text {
            epoch: epoch.as_str(),
            since,
        };
        let payload = serde_json::to_vec(&text).expect("a string can be written");
        let message = ToStore {
            subject: self.subject.to_owned(),
            payload: payload.into(),
            behind: Some(behind),
            ..ToStore::default()
        };
        let servers = &self.link.servers;
        match servers.store(self.log, message).await {
            Ok(ack) => Ok(Some(ack.sequence)),
            Err(NotStored::Overtaken) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a beat of the epoch that `choose` makes of the last one, or of a new epoch. Behind a message that is no beat, too: the
    /// next node that opens the stream finds ours.
    pub(super) async fn mark(
        &self,
        choose: impl Fn(Option<LastBeat>) -> Option<Epoch>,
    ) -> Result<Mark, BeatError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut last = self.last(Way::Reading).await?;
            if is_rubbish(last) && choose(last).is_none() {
                last = self.last_behind_rubbish().await?;
            }
            let epoch = match choose(last) {
                Some(epoch) => epoch,
                None => Epoch::new((self.link.random)().ok_or(BeatError::Random)?),
            };
            let behind = last.map_or(0, |beat| beat.sequence);
            let of_epoch = last.filter(|beat| beat.epoch == Some(epoch));
            let since = of_epoch.map(|beat| beat.since);
            if let Some(sequence) = self.write(epoch, since, behind).await? {
                // The time of this beat, and not of one that another node has written since: the node knows it by place and time.
                let written = look_from(self.link, self.log, sequence).await?;
                let written = written.filter(|written| written.sequence == sequence);
                let stored_ns = written.ok_or(BeatError::Gone)?.stored_ns;
                return Ok(Mark {
                    epoch,
                    sequence,
                    since: since.unwrap_or(sequence),
                    stored_ns,
                });
            }
        }
        Err(BeatError::Crowded)
    }
}

/// Whether the last message where beats stand is none.
fn is_rubbish(last: Option<LastBeat>) -> bool {
    last.is_some_and(|beat| beat.epoch.is_none())
}

/// Keeps a stream's beat going, and knows whether this node still hears it.
#[derive(Debug)]
pub(super) struct BeatKeeper {
    /// Where beats stand.
    pub(super) subject: String,
    is_in_order: bool,
    /// When the last beat was heard, or the log opened.
    heard: Instant,
    /// The last message that is known to stand there.
    last: u64,
    /// Where the epoch of the last beat began.
    since: u64,
    /// Another message stands where the last beat stood: a node that comes finds no epoch.
    is_hidden: bool,
    /// When this node had tried to write a beat.
    tried: Instant,
    /// A beat that is being written.
    writing: Option<Writing>,
    /// When a beat of this node was stored that has not come.
    stored: Option<Instant>,
}

/// What becomes of a beat.
type Writing = JoinHandle<Result<Option<u64>, BeatError>>;

impl BeatKeeper {
    /// `is_in_order`: everything comes that is stored, in its order. Otherwise a beat may be lost on its way.
    pub(super) fn new(subject: String, is_in_order: bool) -> Self {
        Self {
            subject,
            is_in_order,
            heard: Instant::now(),
            last: 0,
            since: 0,
            is_hidden: false,
            tried: Instant::now(),
            writing: None,
            stored: None,
        }
    }

    /// The log was opened: this node has written a beat there.
    pub(super) fn begin(&mut self, mark: &Mark) {
        self.heard = Instant::now();
        self.last = mark.sequence;
        self.since = mark.since;
        self.stored = None;
        if let Some(writing) = self.writing.take() {
            writing.abort();
        }
    }

    /// A message stands where beats do. Returns its epoch, if it is a beat. The next beat is written behind it, whatever it says.
    pub(super) fn hear(
        &mut self,
        link: &Link,
        sequence: u64,
        payload: &[u8],
        is_new: bool,
    ) -> Option<Epoch> {
        let beat = parse(payload, sequence);
        if let Some(beat) = beat
            && sequence >= self.last
        {
            self.since = beat.since;
        }
        self.last = self.last.max(sequence);
        self.stored = None;
        self.is_hidden = beat.is_none();
        if beat.is_none() {
            link.state.counts.count_unreadable();
            if link.remarks.may(Remark::Unreadable) {
                let subject = &self.subject;
                tracing::warn!(
                    "message {sequence} of {subject} is no beat; only nodes may write there"
                );
            }
        } else if is_new {
            self.heard = Instant::now();
        }
        beat.map(|beat| beat.epoch)
    }

    /// Whether no beat has come for too long, or one does not come that is stored.
    pub(super) fn is_silent(&self) -> bool {
        let is_late = |stored: Instant| stored.elapsed() > STORED_TIMEOUT;
        self.heard.elapsed() > BEAT_TIMEOUT || self.stored.is_some_and(is_late)
    }

    /// Writes a beat when none has come for a while, if this node has read the log to its end. The log is read meanwhile.
    ///
    /// # Errors
    /// No beat comes, or none may be written.
    pub(super) async fn keep(
        &mut self,
        link: &Arc<Link>,
        log: &Arc<Log>,
        epoch: Epoch,
        is_live: bool,
        jitter: Duration,
    ) -> Result<(), Fault> {
        if self.is_silent() {
            return Err(Fault::Silent);
        }
        if let Some(writing) = self.writing.take_if(|writing| writing.is_finished()) {
            self.tried = Instant::now();
            match writing.await {
                // If nobody knows whether it is stored, it comes or it does not: the stream is read by another connection.
                Ok(Ok(Some(place))) if self.is_in_order && place > self.last => {
                    self.stored = Some(Instant::now());
                }
                Ok(Ok(_) | Err(BeatError::Write(NotStored::Unknown(_)))) | Err(_) => {}
                Ok(Err(error)) => return Err(error.into()),
            }
        }
        let is_late = self.heard.elapsed() >= BEAT_INTERVAL + jitter;
        let is_due = (is_late || self.is_hidden) && self.tried.elapsed() >= BEAT_PAUSE;
        if is_due && is_live && self.writing.is_none() {
            self.writing = Some(self.write(Arc::clone(link), Arc::clone(log), epoch));
        }
        Ok(())
    }

    /// Writes a beat behind the last one. If another node was first, its beat comes; if nothing comes, the silence grows.
    fn write(&self, link: Arc<Link>, log: Arc<Log>, epoch: Epoch) -> Writing {
        let (subject, behind) = (self.subject.clone(), self.last);
        let since = Some(self.since).filter(|since| *since > 0);
        tokio::spawn(async move {
            let beats = StoredBeats {
                link: &link,
                log: &log,
                subject: &subject,
            };
            let written = timeout(BEAT_PATIENCE, beats.write(epoch, since, behind)).await;
            written.unwrap_or_else(|_| Err(NotStored::Unknown("no answer".to_owned()).into()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_says_its_epoch_and_where_that_began() {
        let epoch = Epoch::parse("abcdefgh").expect("an epoch");
        for (text, since) in [
            (r#"{"epoch":"abcdefgh"}"#, 9),
            (r#"{"epoch":"abcdefgh","since":7}"#, 7),
            (r#"{"epoch":"abcdefgh","since":12}"#, 9),
            (r#"{"epoch":"abcdefgh","since":7,"more":1}"#, 7),
        ] {
            let beat = parse(text.as_bytes(), 9);
            assert_eq!(beat, Some(Beat { epoch, since }), "{text}");
        }
        for text in ["", "{}", "7", r#"{"epoch":"ABC"}"#, r#"{"epoch":7}"#] {
            assert_eq!(parse(text.as_bytes(), 9), None, "{text}");
        }
    }
}

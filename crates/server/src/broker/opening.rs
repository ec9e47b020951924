//! Opens a stream, at first and again after each fault, and looks whether it is still what was read of it.

use super::beat::{BeatKeeper, Mark, StoredBeats};
use super::fault::Fault;
use super::link::{Link, Log, ReadUpTo};
use super::looking::{Doubt, Doubts, Found, is_pause, look_for};
use super::servers::{FeedError, Part};
use myriad_broker::{Anchor, Anchors, Extent};
use myriad_shard::Epoch;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Opening a log takes a few requests.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two attempts to open a log.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A server that has answered nothing for so long is left.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// The pauses between attempts to open a log: each is twice as long as the one before it, until an attempt lasts.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(RETRY_MIN)
    }

    /// The pause after an attempt that has lasted for so long.
    pub(super) fn after(&mut self, lasted: Duration) -> Duration {
        self.0 = if lasted > RETRY_MAX {
            RETRY_MIN
        } else {
            (self.0 * 2).min(RETRY_MAX)
        };
        self.0
    }
}

/// When a server is left that says nothing.
///
/// One that has lost its cluster takes connections and keeps them. Without a leader nobody answers either, but an election is over in 9 s.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Since when nobody has answered who was asked to open the log.
    unanswered: Option<Instant>,
}

impl Leaving {
    /// The log was opened.
    pub(super) fn note_opened(&mut self) {
        self.unanswered = None;
    }

    /// The log was not opened, or is not heard any more.
    pub(super) fn handle_fault(&mut self, fault: &Fault, link: &Link, log: &Log) {
        match fault.silence() {
            None => {}
            Some(Part::Feed) => link.servers.leave_server(log, Part::Feed),
            Some(Part::Questions) => {
                let now = Instant::now();
                let since = *self.unanswered.get_or_insert(now);
                if since.elapsed() >= UNANSWERED_MAX {
                    self.unanswered = Some(now);
                    link.servers.leave_server(log, Part::Questions);
                }
            }
        }
    }
}

/// What comes of opening a log, unless that takes too long.
///
/// # Errors
/// As those of `opening`, or it took too long.
pub(super) async fn in_time<T>(
    opening: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let opened = timeout(OPEN_TIMEOUT, opening).await;
    opened.map_err(|_| Fault::Slow(OPEN_TIMEOUT.as_secs()))?
}

/// What a node has read of a stream.
pub(super) struct Known {
    /// None before the stream was opened.
    pub(super) epoch: Option<Epoch>,
    /// The last place; 0: none.
    pub(super) position: u64,
    /// The last entries, the newest first.
    pub(super) anchors: Vec<Anchor>,
}

/// Opens one log.
#[derive(Default)]
pub(super) struct Opening {
    doubts: Doubts,
    /// The stream is not what this node has read.
    has_changed: bool,
}

impl Opening {
    /// Opens the stream, and writes a mark at its end.
    ///
    /// # Errors
    /// The servers do not let us, or do not answer.
    pub(super) async fn open(
        &mut self,
        link: &Link,
        log: &Log,
        beat: &mut BeatKeeper,
        known: &Known,
    ) -> Result<Mark, Fault> {
        // Before the stream says how far it goes: what is acknowledged later may stand behind that.
        log.doubt_acknowledged(0);
        self.doubts.take_from(log);
        let before = log.known_up_to();
        let mark = self.mark(link, log, &beat.subject, known, before).await?;
        // Another server leads the stream than the one that was looked at, and it does not have the end.
        if before.epoch == Some(mark.epoch) && mark.sequence <= before.position {
            self.has_changed = true;
            return Err(Fault::Changed);
        }
        // An acknowledgement may have shown a loss behind the looks that found none: then the epoch must not stay.
        if log.is_suspect() && known.epoch == Some(mark.epoch) {
            return Err(Fault::Changed);
        }
        *self = Self::default();
        log.note_opened(&mark);
        beat.begin(&mark);
        if known.epoch.is_some_and(|known| known != mark.epoch) {
            let (stream, epoch, since) = (link.stream_of(log), mark.epoch.as_str(), mark.since);
            tracing::warn!("stream {stream} has epoch {epoch} from place {since} on");
        }
        Ok(mark)
    }

    async fn mark(
        &self,
        link: &Link,
        log: &Log,
        subject: &str,
        known: &Known,
        before: ReadUpTo,
    ) -> Result<Mark, Fault> {
        let mut extent = link.servers.open(log).await?;
        let beats = StoredBeats { link, log, subject };
        if extent.last < before.position && before.epoch == known.epoch {
            // A new leader answers before it has applied all that it has, and stores nothing until then. So a beat shows which it is.
            let settled = beats.mark(|beat| beat?.epoch.or(known.epoch)).await?;
            if settled.sequence > before.position {
                extent = link.servers.extent(log).await?;
            }
        }
        let is_same = !self.has_changed
            && !log.is_suspect()
            && self.still_has(link, log, extent, known).await?;
        let mark = beats.mark(|beat| {
            // If the last message there is no beat, what this node has read is of the epoch that it knows.
            let epoch = beat?.epoch.or(known.epoch)?;
            // Another node may have given it another epoch already.
            (is_same || known.epoch != Some(epoch)).then_some(epoch)
        });
        Ok(mark.await?)
    }

    /// Whether the stream still has what was read, and what it has acknowledged.
    async fn still_has(
        &self,
        link: &Link,
        log: &Log,
        extent: Extent,
        known: &Known,
    ) -> Result<bool, Fault> {
        // What was read since may all be of the stream as it is now.
        for doubt in self.doubts.all() {
            if is_lost(link, log, extent, doubt).await? {
                return Ok(false);
            }
        }
        let Found(found) = look_for(link, log, &known.anchors).await?;
        let has_read = known.position > 0;
        Ok(!has_read || Anchors::still_hold(known.position, extent, found))
    }

    /// An entry comes that was stored then, after these were read; the newest is the first. Whether there was a pause in between, so that
    /// they are in doubt, and so is what was acknowledged behind them.
    pub(super) fn note_pause(
        &mut self,
        log: &Log,
        anchors: impl FnOnce() -> Vec<Anchor>,
        newest: Option<Anchor>,
        stored_ns: i128,
    ) -> bool {
        let before = newest.filter(|newest| is_pause(*newest, stored_ns));
        if let Some(newest) = before {
            self.doubts.push(anchors());
            log.doubt_acknowledged(newest.sequence);
        }
        before.is_some()
    }

    /// The stream has another epoch: its nodes know that it has lost something, and what was in doubt says nothing more.
    pub(super) fn forget_doubts(&mut self) {
        self.doubts = Doubts::default();
    }

    /// Looks at what is in doubt.
    ///
    /// # Errors
    /// Another entry is in the place of one that was read, or acknowledged; or the stream ends before that.
    pub(super) async fn check(&mut self, link: &Arc<Link>, log: &Arc<Log>) -> Result<(), Fault> {
        self.doubts.take_from(log);
        if self.doubts.check(link, log).await? {
            self.has_changed = true;
            return Err(Fault::Changed);
        }
        Ok(())
    }
}

/// Whether a stream of this extent has lost what is in doubt.
async fn is_lost(link: &Link, log: &Log, extent: Extent, doubt: &Doubt) -> Result<bool, FeedError> {
    if let Doubt::Acknowledged(message) = doubt {
        if message.sequence > extent.last {
            return Ok(true);
        }
        // It has gone because of its age, or for later ones. Nobody can tell any more.
        if message.sequence < extent.first {
            return Ok(false);
        }
    }
    doubt.has_other(link, log).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_an_attempt_lasts() {
        let mut backoff = Backoff::new();
        let mut after = |seconds| backoff.after(Duration::from_secs(seconds)).as_millis();
        assert_eq!([0, 0, 0, 0].map(&mut after), [500, 1_000, 2_000, 2_000]);
        assert_eq!([3, 0].map(&mut after), [250, 500]);
    }
}

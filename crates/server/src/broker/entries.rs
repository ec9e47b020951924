//! What the messages of a stream say to channels.

use super::beat::Mark;
use super::homes::Homes;
use super::link::{Link, Log};
use super::live::{self, Taken};
use super::remarks::Remark;
use super::servers::Stored;
use myriad_shard::{LogEntry, LogEvent};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Why a message whose headers cannot be parsed is left out.
pub(super) const SPOILED: &str = "its headers are no headers of NATS";

/// The servers' clock, as far as it is needed to tell how old a message is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The time of the last mark.
    pub(super) stored_ns: i128,
    /// When it was known here that the mark is stored.
    at: Instant,
    /// A time before the mark was stored.
    before: Instant,
}

impl Clock {
    /// Of a mark that was stored since `before`.
    pub(super) fn of(mark: &Mark, before: Instant) -> Self {
        Self {
            stored_ns: mark.stored_ns,
            at: Instant::now(),
            before,
        }
    }

    /// How old a message is, by the servers' clocks alone: those of nodes may be wrong.
    pub(super) fn age(self, stored_ns: i128) -> Duration {
        self.age_since(self.at, stored_ns)
    }

    /// A message is not older than that.
    pub(super) fn age_max(self, stored_ns: i128) -> Duration {
        self.age_since(self.before, stored_ns)
    }

    fn age_since(self, mark: Instant, stored_ns: i128) -> Duration {
        let elapsed = i128::try_from(mark.elapsed().as_nanos()).unwrap_or(i128::MAX);
        let age = self.stored_ns.saturating_add(elapsed) - stored_ns;
        u64::try_from(age).map_or(Duration::ZERO, Duration::from_nanos)
    }
}

/// What homes are told of a log itself, whatever they have read of it.
pub(super) fn of_log(log: &Log, offset: u64, event: LogEvent) -> LogEntry {
    LogEntry {
        log: log.id,
        channel: None,
        offset,
        event,
    }
}

/// Reads the messages of one log for the homes of this node.
pub(super) struct Entries {
    pub(super) link: Arc<Link>,
    pub(super) homes: Arc<dyn Homes>,
    pub(super) log: Arc<Log>,
}

impl Entries {
    /// The channel of a stored message; none if this log does not order it. Strangers may write to our subjects, and to the stream of
    /// another namespace than the channel's.
    pub(super) fn channel_of(&self, subject: &str) -> Option<String> {
        let subjects = &self.link.subjects;
        let channel = subjects.channel_of_stored(&self.log.class, subject)?;
        if self
            .link
            .log_of(&channel)
            .is_some_and(|log| log.id == self.log.id)
        {
            return Some(channel);
        }
        self.link.state.counts.count_unreadable();
        if self.link.remarks.may(Remark::Misplaced) {
            let stream = subjects.stream(&self.log.class);
            tracing::warn!(
                "a message in stream {stream} is left out: channel {channel:?} is not of its namespace, or has too long a name"
            );
        }
        None
    }

    /// What a message says to its channel.
    pub(super) async fn event_of(
        &self,
        channel: String,
        message: &Stored,
        age: Duration,
    ) -> LogEvent {
        if message.is_spoiled {
            return self.unreadable(Some(channel), &SPOILED);
        }
        let envelope = match message.envelope() {
            Ok(envelope) => envelope,
            Err(error) => return self.unreadable(Some(channel), &error),
        };
        if envelope.content.is_none() {
            return LogEvent::Removed {
                channel: channel.into(),
                behind: envelope.behind,
            };
        }
        match live::take_in(&*self.homes, &self.link.node, channel, envelope).await {
            Taken::Submission(submission) => LogEvent::Publication(submission, age),
            Taken::TooLarge(channel) => LogEvent::LostIn(channel.into()),
        }
    }

    /// What a message that cannot be read says to its channel, if it is known.
    pub(super) fn unreadable(
        &self,
        channel: Option<String>,
        why: &dyn std::fmt::Display,
    ) -> LogEvent {
        self.link.state.counts.count_unreadable();
        if self.link.remarks.may(Remark::Unreadable) {
            let stream = self.link.stream_of(&self.log);
            let of = channel.as_deref().unwrap_or("no channel");
            tracing::warn!("a message in stream {stream} of {of:?} is left out: {why}");
        }
        channel.map_or(LogEvent::Passed, |channel| LogEvent::LostIn(channel.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_come_from_the_servers_clock() {
        let now = Instant::now();
        let clock = Clock {
            stored_ns: 10_000_000_000,
            at: now,
            before: now,
        };
        let age = clock.age(4_000_000_000);
        assert!(age >= Duration::from_secs(6));
        assert!(clock.age_max(4_000_000_000) >= age);
        assert_eq!(clock.age(i128::MAX / 2), Duration::ZERO);
    }
}

//! The debug log: what happens to single connections, and what is published.
//!
//! Shards note events in the mesh, and the control plane writes them here, up to [`EVERY`] later: shard threads
//! may not log (see `mailbox.rs`). Both sides are bounded by an [`EventBudget`], and what goes past it is counted in a line.

use crate::shards::monotonic_now;
use myriad_shard::{
    ClientPublication, ConnectionEvent, ConnectionName, Event, EventBudget, EventKind, Mesh,
    Payload, Position, PublishRefused, RefusedCommand,
};
use myriad_units::counted;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Whether there is a debug log. Decides whether shards note events at all.
pub(crate) fn is_on() -> bool {
    tracing::enabled!(target: "myriad::connections", tracing::Level::DEBUG)
}

/// Writes the events of all shards, and how many lines were left out.
pub(crate) struct DebugLog {
    mesh: Mesh,
    publishes: Arc<PublishLog>,
    /// Lines of connections left out, by shard, which no line has said yet.
    suppressed: Vec<BTreeMap<EventKind, u64>>,
    /// Calls of [`DebugLog::write`] since the last line about suppressed ones.
    unreported: u32,
    /// When to write; none without a debug log.
    ticks: Option<Interval>,
}

/// How often events are written.
const EVERY: Duration = Duration::from_millis(100);

/// Calls of [`DebugLog::write`] between two lines about suppressed ones: those of a second.
const REPORT_EVERY: u32 = 10;

impl DebugLog {
    /// A log of what `mesh` notes; call it inside the runtime.
    pub(crate) fn new(mesh: Mesh, publishes: Arc<PublishLog>) -> Self {
        Self {
            suppressed: vec![BTreeMap::new(); mesh.shard_count()],
            mesh,
            publishes,
            unreported: 0,
            ticks: is_on().then(|| {
                let mut ticks = interval(EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks
            }),
        }
    }

    /// Waits until [`DebugLog::write`] is due: for ever without a debug log.
    pub(crate) async fn due(&mut self) {
        match &mut self.ticks {
            Some(ticks) => {
                ticks.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Writes what the shards have noted since the last call.
    pub(crate) fn write(&mut self) {
        for shard in 0..self.mesh.shard_count() {
            let events = self.mesh.take_events(shard);
            for event in events.kept {
                match event {
                    Event::Connection(name, event) => write_event(shard, name, event),
                    Event::Published(published) => write_published(&published),
                }
            }
            for (kind, count) in events.suppressed {
                *self.suppressed[shard].entry(kind).or_default() += count;
            }
        }
        self.unreported += 1;
        if self.unreported >= REPORT_EVERY {
            self.report();
        }
    }

    fn report(&mut self) {
        self.unreported = 0;
        self.publishes.report();
        for (shard, suppressed) in self.suppressed.iter_mut().enumerate() {
            if let Some(sentence) = suppressed_sentence(&std::mem::take(suppressed)) {
                tracing::debug!(target: "myriad::connections", "shard {shard}: {sentence}");
            }
        }
    }
}

impl Drop for DebugLog {
    /// Writes the rest.
    fn drop(&mut self) {
        self.write();
        self.report();
    }
}

fn write_event(shard: usize, name: Option<ConnectionName>, event: ConnectionEvent) {
    let name = name.map_or_else(
        || format!("shard {shard}: connection beyond the limit"),
        |name| format!("connection {name}"),
    );
    match event {
        ConnectionEvent::Accepted => {
            tracing::debug!(target: "myriad::connections", "{name} accepted");
        }
        ConnectionEvent::Upgraded {
            path,
            channels,
            compressed,
        } => {
            let channels = counted(channels as u64, "channel");
            let compression = if compressed { "on" } else { "off" };
            tracing::debug!(
                target: "myriad::connections",
                "{name} upgraded: {path}, {channels}, compression {compression}"
            );
        }
        ConnectionEvent::Refused {
            status,
            label,
            address,
        } => {
            let from = address.map_or_else(String::new, |address| format!(" (from {address})"));
            tracing::debug!(target: "myriad::connections", "{name} refused: {status} {label}{from}");
        }
        ConnectionEvent::CommandRefused(refused) => {
            let what = refused_sentence(&refused);
            tracing::debug!(target: "myriad::connections", "{name}: {what}");
        }
        ConnectionEvent::Closed(reason) => {
            tracing::debug!(target: "myriad::connections", "{name} closed: {}", reason.label());
        }
    }
}

/// The command, its channel, the code and the reason, and who the client is.
fn refused_sentence(refused: &RefusedCommand) -> String {
    let RefusedCommand {
        client,
        user,
        command,
        channel,
        code,
        reason,
    } = refused;
    // Quoted with escapes: names may hold line feeds.
    let channel = match &**channel {
        "" => String::new(),
        channel => format!(" {channel:?}"),
    };
    let user = match user {
        None => "anonymous".to_owned(),
        Some(user) => format!("user {user:?}"),
    };
    format!("{command}{channel} refused: {code} {reason} (client {client}, {user})")
}

fn write_published(published: &ClientPublication) {
    let ClientPublication {
        channel,
        client,
        offset,
        bytes,
    } = published;
    let bytes = counted(*bytes as u64, "byte");
    tracing::debug!(
        target: "myriad::publications",
        "published to {channel:?}: offset {offset}, {bytes}, by client {client}"
    );
}

/// What was left out, by kind; none when it was nothing.
fn suppressed_sentence(suppressed: &BTreeMap<EventKind, u64>) -> Option<String> {
    let total: u64 = suppressed.values().sum();
    if total == 0 {
        return None;
    }
    let mut sentence = format!("{} suppressed:", counted(total, "line"));
    for (nth, ((kind, label), count)) in suppressed.iter().enumerate() {
        let comma = if nth == 0 { "" } else { "," };
        let _ = write!(sentence, "{comma} {} {kind}", myriad_units::count(*count));
        if !label.is_empty() {
            let _ = write!(sentence, " ({label})");
        }
    }
    Some(sentence)
}

/// What is published, by the API and by announcements.
#[derive(Debug, Default)]
pub(crate) struct PublishLog(Mutex<Publishes>);

#[derive(Debug, Default)]
struct Publishes {
    budget: EventBudget,
    suppressed: u64,
}

impl PublishLog {
    /// The bytes that a client of `/raw` gets: of a JSON string its content. 0 without a debug log, because escapes
    /// would be read for nothing.
    pub(crate) fn bytes_shown(payload: &Payload) -> usize {
        if Self::is_on() {
            payload.raw().len()
        } else {
            0
        }
    }

    fn is_on() -> bool {
        tracing::enabled!(target: "myriad::publications", tracing::Level::DEBUG)
    }

    /// A publication has its position.
    pub(crate) fn published(&self, channel: &str, bytes: usize, position: &Position) {
        if self.spend() {
            // Quoted with escapes: a channel's name may hold line feeds.
            let (bytes, offset) = (counted(bytes as u64, "byte"), position.offset);
            tracing::debug!(
                target: "myriad::publications",
                "published to {channel:?}: offset {offset}, {bytes}"
            );
        }
    }

    /// A publication was sent to its channel's home, and nobody waits for its position.
    pub(crate) fn announced(&self, channel: &str, bytes: usize) {
        if self.spend() {
            let bytes = counted(bytes as u64, "byte");
            tracing::debug!(target: "myriad::publications", "announced to {channel:?}: {bytes}");
        }
    }

    /// The mesh did not take a publication.
    pub(crate) fn refused(&self, channel: &str, bytes: usize, refused: PublishRefused) {
        if self.spend() {
            let bytes = counted(bytes as u64, "byte");
            // No name that is too long is repeated.
            let shown = &channel[..channel.floor_char_boundary(Mesh::CHANNEL_BYTES_MAX)];
            tracing::debug!(
                target: "myriad::publications",
                "publication to {shown:?} refused: {refused:?}, {bytes}"
            );
        }
    }

    /// Whether there is to be a line.
    fn spend(&self) -> bool {
        if !Self::is_on() {
            return false;
        }
        let mut publishes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = publishes.budget.spend(monotonic_now());
        publishes.suppressed += u64::from(!may);
        may
    }

    /// Writes how many lines were left out since the last call.
    fn report(&self) {
        let mut publishes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = std::mem::take(&mut publishes.suppressed);
        drop(publishes);
        if suppressed > 0 {
            let lines = counted(suppressed, "line");
            tracing::debug!(target: "myriad::publications", "{lines} suppressed: publications");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_counted_by_kind() {
        assert_eq!(suppressed_sentence(&BTreeMap::new()), None);
        let suppressed = BTreeMap::from([
            (("accepted", ""), 1_200),
            (("closed", "client"), 7),
            (("closed", "full"), 1),
        ]);
        assert_eq!(
            suppressed_sentence(&suppressed).unwrap(),
            "1,208 lines suppressed: 1,200 accepted, 7 closed (client), 1 closed (full)"
        );
    }
}

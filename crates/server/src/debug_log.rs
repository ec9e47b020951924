//! The debug log: what happens to single connections, and what is published. Without it, whom the server refuses.
//!
//! Shards note events in the mesh, and the control plane writes them here, up to [`EVERY`] later: shard threads
//! may not log (see `mailbox.rs`). Both sides are bounded by an [`EventBudget`], and what goes past it is counted in a line.

use crate::shards::monotonic_now;
use myriad_shard::{
    ClientPublication, CloseReason, ConnectionEvent, ConnectionName, Event, EventBudget, EventKind,
    Mesh, NotedDefect, Now, Payload, Position, PublishRefused, RefusedCommand, TlsRefusal, Who,
};
use myriad_units::counted;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

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
    /// When the last line about suppressed ones was due.
    reported_at: Instant,
    written_at: Instant,
}

/// How often events are written.
const EVERY: Duration = Duration::from_millis(100);

/// How often suppressed lines are told. Without a debug log, how often refusals are written.
const REPORT_EVERY: Duration = Duration::from_secs(1);

impl DebugLog {
    /// A log of what `mesh` notes; call it inside the runtime.
    pub(crate) fn new(mesh: Mesh, publishes: Arc<PublishLog>) -> Self {
        Self {
            suppressed: vec![BTreeMap::new(); mesh.shard_count()],
            mesh,
            publishes,
            reported_at: Instant::now(),
            written_at: Instant::now(),
        }
    }

    /// Waits until [`DebugLog::write`] is due. A reload may switch the debug log on or off in the meantime.
    pub(crate) async fn due(&self) {
        let every = if is_on() { EVERY } else { REPORT_EVERY };
        sleep_until(self.written_at + every).await;
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
        self.write_refusals(monotonic_now());
        self.write_defects(monotonic_now());
        self.written_at = Instant::now();
        if self.written_at >= self.reported_at + REPORT_EVERY {
            self.report();
        }
    }

    /// Without a debug log, an operator sees whom the server refuses all the same: a line a second for each reason.
    fn write_refusals(&self, now: Now) {
        for shard in 0..self.mesh.shard_count() {
            let refusals = self.mesh.take_refusals(shard, now);
            for (name, event) in refusals.kept {
                write_refusal(shard, name, event);
            }
            for ((kind, reason), count) in refusals.left_out {
                let times = counted(count, "time");
                tracing::info!(target: "myriad::refusals", "shard {shard}: {kind} ({reason}) {times} more");
            }
            if refusals.beyond > 0 {
                let times = counted(refusals.beyond, "time");
                tracing::info!(target: "myriad::refusals", "shard {shard}: refused for other reasons {times} more");
            }
        }
    }

    /// Faults of this program that ended a connection or a channel.
    fn write_defects(&self, now: Now) {
        for shard in 0..self.mesh.shard_count() {
            let defects = self.mesh.take_defects(shard, now);
            for defect in defects.kept {
                tracing::error!(target: "myriad::defects", "shard {shard}: {}", defect_sentence(&defect));
            }
            for ((file, line), count) in defects.left_out {
                let times = counted(count, "time");
                tracing::error!(target: "myriad::defects", "shard {shard}: the defect at {file}:{line} {times} more");
            }
            if defects.beyond > 0 {
                let times = counted(defects.beyond, "time");
                tracing::error!(target: "myriad::defects", "shard {shard}: other defects {times} more");
            }
        }
    }

    fn report(&mut self) {
        self.reported_at = Instant::now();
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
        // What the second under way has left out is told as well: there is no later one.
        self.write_refusals(Now(u64::MAX));
        self.write_defects(Now(u64::MAX));
        self.report();
    }
}

/// What was wrong, what was going on, what ended, and what to do.
fn defect_sentence(defect: &NotedDefect) -> String {
    let NotedDefect {
        scope,
        statement,
        at: (file, line),
        circumstances,
    } = defect;
    let ended = match *scope {
        "connection" => "the connection was ended, and its client told to come back",
        "channel" => "the channel's subscriptions on this shard were ended, to be made anew",
        "home" => {
            "the channel was forgotten, and all its subscriptions were ended, to be made anew"
        }
        _ => "a message was dropped",
    };
    format!(
        "a defect of this server: not true that {statement:?} ({file}:{line}), {circumstances}: {ended}. Please report it"
    )
}

/// Refused connections are warnings, because their clients see nothing of the server. Commands are the clients' errors.
fn write_refusal(shard: usize, name: Option<ConnectionName>, event: ConnectionEvent) {
    let name = name.map_or_else(
        || format!("shard {shard}"),
        |name| format!("connection {name}"),
    );
    match event {
        ConnectionEvent::Refused {
            status,
            label,
            cause,
            address,
        } => {
            let more = refused_more(cause, address);
            tracing::warn!(target: "myriad::refusals", "{name} refused: {status} {label}{more}");
        }
        ConnectionEvent::TlsRefused { why, address } => {
            let what = tls_sentence(&why, address);
            tracing::info!(target: "myriad::refusals", "{name} {what}");
        }
        ConnectionEvent::CommandRefused(refused) => {
            let what = refused_sentence(&refused);
            tracing::info!(target: "myriad::refusals", "{name}: {what}");
        }
        ConnectionEvent::Closed { reason, who } => {
            let what = closed_sentence(reason, who.as_deref());
            tracing::info!(target: "myriad::refusals", "{name} {what}");
        }
        ConnectionEvent::Accepted
        | ConnectionEvent::HandedBack
        | ConnectionEvent::Upgraded { .. }
        | ConnectionEvent::Connected(_)
        | ConnectionEvent::Subscribed { .. } => unreachable!("no refusals"),
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
        ConnectionEvent::HandedBack => {
            tracing::debug!(target: "myriad::connections", "{name} handed back");
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
            cause,
            address,
        } => {
            let more = refused_more(cause, address);
            tracing::debug!(target: "myriad::connections", "{name} refused: {status} {label}{more}");
        }
        ConnectionEvent::TlsRefused { why, address } => {
            let what = tls_sentence(&why, address);
            tracing::debug!(target: "myriad::connections", "{name} {what}");
        }
        ConnectionEvent::CommandRefused(refused) => {
            let what = refused_sentence(&refused);
            tracing::debug!(target: "myriad::connections", "{name}: {what}");
        }
        ConnectionEvent::Connected(who) => {
            let who = who_sentence(&who);
            tracing::debug!(target: "myriad::connections", "{name} connected: {who}");
        }
        ConnectionEvent::Subscribed { client, channel } => {
            tracing::debug!(target: "myriad::connections", "{name} subscribed to {channel:?} (client {client})");
        }
        ConnectionEvent::Closed { reason, who } => {
            let what = closed_sentence(reason, who.as_deref());
            tracing::debug!(target: "myriad::connections", "{name} {what}");
        }
    }
}

/// Why a request was refused, if its client is not told all, and where it came from.
fn refused_more(cause: Option<&'static str>, address: Option<IpAddr>) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let from = address.map_or_else(String::new, |address| format!(" (from {address})"));
    format!("{cause}{from}")
}

/// Why TLS could not go on with a client, and where the client is.
fn tls_sentence(why: &TlsRefusal, address: Option<IpAddr>) -> String {
    let TlsRefusal { label, words } = why;
    let from = address.map_or_else(String::new, |address| format!(" (from {address})"));
    format!("TLS refused: {label}: {words}{from}")
}

/// Who a client is. Quoted with escapes: ids may hold line feeds.
fn who_sentence(who: &Who) -> String {
    let client = who.client;
    match &who.user {
        None => format!("client {client}, anonymous"),
        Some(user) => format!("client {client}, user {user:?}"),
    }
}

/// Why a connection ended, with the code that its client was told, and who the client is.
fn closed_sentence(reason: CloseReason, who: Option<&Who>) -> String {
    let label = reason.label();
    let code = match reason.code() {
        code @ 3000.. => format!(" {code}"),
        _ => String::new(),
    };
    let who = who.map_or_else(String::new, |who| format!(" ({})", who_sentence(who)));
    format!("closed: {label}{code}{who}")
}

/// How many connections ended in this run, by reason; none if nothing ended.
pub(crate) fn run_sentence(mesh: &Mesh) -> Option<String> {
    let shards = mesh.metrics();
    let mut closes: Vec<(u64, &str)> = CloseReason::ALL
        .iter()
        .map(|reason| {
            let counts = shards
                .iter()
                .map(|shard| shard.closes[*reason as usize].value());
            (counts.sum(), reason.label())
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    closes.sort_unstable_by(|one, other| other.cmp(one));
    let total: u64 = closes.iter().map(|(count, _)| count).sum();
    let each = closes
        .iter()
        .map(|(count, label)| format!("{} {label}", myriad_units::count(*count)));
    let each: Vec<_> = each.collect();
    (total > 0).then(|| {
        format!(
            "{} ended in this run: {}",
            counted(total, "connection"),
            each.join(", ")
        )
    })
}

/// The command, its channel, the code and the reason, and who the client is.
fn refused_sentence(refused: &RefusedCommand) -> String {
    let RefusedCommand {
        who,
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
    let who = who_sentence(who);
    format!("{command}{channel} refused: {code} {reason} ({who})")
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
    use myriad_shard::DefectScope;

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

    #[test]
    fn a_defect_says_what_was_going_on_and_what_ended() {
        let defect = |scope| NotedDefect {
            scope,
            statement: "the connection has a session",
            at: ("crates/hub/src/hub/sessions.rs", 72),
            circumstances: "in Messages of a turn".to_owned(),
        };
        let sentence = defect_sentence(&defect("connection"));
        assert_eq!(
            sentence,
            "a defect of this server: not true that \"the connection has a session\" (crates/hub/src/hub/sessions.rs:72), \
             in Messages of a turn: the connection was ended, and its client told to come back. Please report it"
        );
        let ends = DefectScope::LABELS.map(|scope| defect_sentence(&defect(scope)));
        let distinct: std::collections::BTreeSet<_> = ends.iter().collect();
        assert_eq!(distinct.len(), ends.len());
    }
}

//! Stores one message in its stream, again and again with the same id until its deadline.
//!
//! A publication with a version is stored only behind the message that was looked at: no other node may have stored one in between. So
//! whether it is left out is decided once, and not by what each home remembers. The version of a channel is that of its last message;
//! a removal takes it over. Whoever publishes without a version in between begins anew.

use super::acknowledged::Acknowledged;
use super::answers::Waiter;
use super::counts::Outcome;
use super::link::{Link, Log};
use super::remarks::Remark;
use super::servers::{FeedError, NotStored, Stored, ToStore, Way, Which};
use bytes::Bytes;
use myriad_broker::{Envelope, Version, version_behind};
use myriad_shard::Permit;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The first attempt: what was on its way to a leader that steps down is answered by nobody, and an acknowledgement takes some
/// milliseconds. Each attempt has twice as long as the one before it, so that servers that are slow do not get ever more to do.
const ATTEMPT_MIN: Duration = Duration::from_millis(300);
const ATTEMPT_MAX: Duration = Duration::from_millis(1_500);
/// Between two attempts: JetStream has no leader, or is still storing the first.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// The header of a message that takes the place of all others of its subject.
pub(super) const ROLLUP: &str = "Nats-Rollup";
/// What a message depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Any,
    /// The version of the message before it.
    Versioned,
    /// It takes the version of the message before it over, and the place of all messages of its channel.
    Removal,
}

/// A publication on its way to its stream.
pub(super) struct Pending {
    pub(super) log: Arc<Log>,
    pub(super) subject: String,
    pub(super) envelope: Envelope,
    /// Of two messages with one id the stream takes one.
    pub(super) id: String,
    /// Whether another publication may have the same id, also on another node.
    pub(super) shares_id: bool,
    pub(super) order: Order,
    pub(super) waiter: Option<Waiter>,
    pub(super) deadline: Instant,
    /// Released when the stream has it.
    pub(super) _permit: Option<Permit>,
}

/// Where a message with an order goes.
enum Place {
    /// Behind this message of its channel, 0 if there is none.
    Behind {
        sequence: u64,
        /// The version that it gets.
        version: Version,
        /// The last publication of the channel, also of one whose history was removed; none if nobody said it.
        publication: Option<u64>,
    },
    /// It stands there, or is left out because of what does.
    Taken { sequence: u64, is_ours: bool },
}

/// What became of an attempt.
enum Attempt {
    /// What was to be stored stands there: this message, or one that another node may have stored in its stead.
    Stored {
        sequence: u64,
        is_ours: bool,
    },
    Again,
    Refused(String),
}

/// Stores a message. Returns its place.
///
/// # Errors
/// It was not stored in time, or never will be.
pub(super) async fn store(link: &Link, channel: &str, pending: &Pending) -> Result<u64, Outcome> {
    let before = pending.log.known_up_to();
    // The message behind which an attempt was to be stored whose end is not known.
    let mut tried = None;
    let mut patience = ATTEMPT_MIN;
    loop {
        let now = Instant::now();
        if now >= pending.deadline || !link.servers.can_store() {
            return Err(Outcome::Unavailable);
        }
        let until = pending.deadline.min(now + patience);
        patience = (2 * patience).min(ATTEMPT_MAX);
        match timeout_at(until, attempt(link, pending, &mut tried)).await {
            Ok(Attempt::Stored { sequence, is_ours }) => {
                let origin = pending.envelope.origin.as_ref().filter(|_| is_ours);
                if let Some(serial) = origin.map(|origin| origin.serial) {
                    let acknowledged = Acknowledged { sequence, serial };
                    let log = &pending.log;
                    log.note_acknowledged(acknowledged, now, before, Instant::now());
                }
                return Ok(sequence);
            }
            Ok(Attempt::Refused(error)) => {
                if link.remarks.may(Remark::Refused) {
                    tracing::warn!(
                        "a publication in channel {channel:?} was refused by NATS: {error}"
                    );
                }
                return Err(Outcome::Refused);
            }
            Ok(Attempt::Again) => {
                // From now on: the connection may have been lost long after the attempt began, and is soon made again.
                let over = Instant::now() + ATTEMPT_PAUSE;
                sleep_until(pending.deadline.min(over)).await;
            }
            Err(_) => {}
        }
    }
}

async fn attempt(link: &Link, pending: &Pending, tried: &mut Option<u64>) -> Attempt {
    let mut envelope = pending.envelope.clone();
    let mut behind = None;
    if pending.order != Order::Any {
        match place(link, pending, *tried).await {
            Ok(Place::Behind {
                sequence,
                version,
                publication,
            }) => {
                envelope.version = version;
                envelope.behind = publication.filter(|_| pending.order == Order::Removal);
                behind = Some(sequence);
                *tried = behind;
            }
            Ok(Place::Taken { sequence, is_ours }) => {
                return Attempt::Stored { sequence, is_ours };
            }
            Err(_) => return Attempt::Again,
        }
    }
    let mut headers = envelope.headers();
    if pending.order == Order::Removal {
        headers.push((ROLLUP, "sub".to_owned()));
    }
    let message = ToStore {
        subject: pending.subject.clone(),
        headers,
        payload: Bytes::copy_from_slice(envelope.data()),
        id: Some(pending.id.clone()),
        behind,
    };
    let servers = &link.servers;
    match servers.store(&pending.log, message).await {
        Ok(ack) => Attempt::Stored {
            sequence: ack.sequence,
            // If it was there before, an attempt of ours has stored it, or another publication with the same key.
            is_ours: ack.is_new || !pending.shares_id,
        },
        Err(NotStored::Refused(why)) => Attempt::Refused(why),
        Err(NotStored::Overtaken | NotStored::Unknown(_)) => Attempt::Again,
    }
}

/// Looks where a message with an order goes. `tried` is where an attempt before was to go: it may have been stored.
async fn place(link: &Link, pending: &Pending, tried: Option<u64>) -> Result<Place, FeedError> {
    let look = |which| link.servers.look(Way::Publishing, &pending.log, which);
    let subject = &pending.subject;
    if let Some(behind) = tried {
        let next = look(Which::OfFrom(subject, behind + 1)).await?;
        if let Some(next) = next.filter(|next| is_ours(next, pending)) {
            return Ok(Place::Taken {
                sequence: next.sequence,
                is_ours: true,
            });
        }
    }
    let last = look(Which::LastOf(subject)).await?;
    let said = last.as_ref().and_then(envelope_in);
    let sequence = last.as_ref().map_or(0, |last| last.sequence);
    let publication = match &said {
        Some(said) if said.content.is_none() => said.behind,
        _ => Some(sequence),
    };
    let version = said.map_or((0, "".into()), |said| said.version);
    let behind = |version| Place::Behind {
        sequence,
        version,
        publication,
    };
    if pending.order == Order::Removal {
        return Ok(behind(version));
    }
    Ok(match version_behind(&version, &pending.envelope.version) {
        Some(version) => behind(version),
        None => Place::Taken {
            sequence,
            is_ours: false,
        },
    })
}

fn envelope_in(stored: &Stored) -> Option<Envelope> {
    let is_whole = !stored.is_spoiled;
    is_whole.then(|| stored.envelope().ok()).flatten()
}

/// Whether a node sent a stored message, and with this serial.
pub(super) fn is_from(stored: &Stored, node: &str, serial: u64) -> bool {
    let origin = envelope_in(stored).and_then(|envelope| envelope.origin);
    origin.is_some_and(|origin| *origin.node == *node && origin.serial == serial)
}

fn is_ours(stored: &Stored, pending: &Pending) -> bool {
    let origin = pending.envelope.origin.as_ref();
    origin.is_some_and(|origin| is_from(stored, &origin.node, origin.serial))
}

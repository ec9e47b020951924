//! Publications that no history keeps: by core NATS, at most once.

use super::homes::Homes;
use super::link::Link;
use super::remarks::Remark;
use crate::nats::Messages;
use async_nats::{Client, HeaderMap, Message, Subject};
use myriad_broker::{Envelope, MESSAGE_OVERHEAD};
use myriad_shard::{Mesh, PublishRefused, Submission};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Bytes of messages that wait until this node has room for them. Those that come then are lost, as no history keeps them.
const QUEUE_BYTES_MAX: u32 = 32 << 20;

/// Bytes of publications in flight come back within a few of these.
const ROOM_INTERVAL: Duration = Duration::from_millis(1);

/// What became of a message that comes into this node.
pub(super) enum Taken {
    /// It may be given to a home.
    Submission(Box<Submission>),
    /// This node has less room for publications than the one it was published on. With the channel.
    TooLarge(String),
}

/// Gives a message its share of the limit of publication bytes: waits for it, so that nothing is lost where this node delivers more
/// slowly than others publish.
pub(super) async fn take_in(
    homes: &dyn Homes,
    node: &str,
    channel: String,
    envelope: Envelope,
) -> Taken {
    let Some(content) = envelope.content else {
        return Taken::TooLarge(channel);
    };
    let permit = loop {
        match homes.take_in(&content) {
            Ok(permit) => break permit,
            Err(PublishRefused::Busy) => sleep(ROOM_INTERVAL).await,
            Err(_) => {
                tracing::error!(
                    "a publication in channel {channel:?} has {} bytes, and all in flight may have fewer here; \
                     give this node as much memory as the others",
                    content.bytes()
                );
                return Taken::TooLarge(channel);
            }
        }
    };
    let ours = envelope.origin.filter(|origin| *origin.node == *node);
    let (version, version_epoch) = envelope.version;
    Taken::Submission(Box::new(Submission {
        channel: channel.into(),
        content,
        permit,
        asker: None,
        sender: ours.and_then(|origin| origin.sender),
        idempotency_key: envelope.key,
        delta: envelope.delta,
        skip_history: false,
        version,
        version_epoch,
    }))
}

/// A message that waits, with its share of the queue.
type Waiting = (Message, OwnedSemaphorePermit);

/// Delivers what comes, for ever.
pub(super) async fn run(link: Arc<Link>, client: Client, mesh: Mesh) {
    let (queue, waiting) = unbounded_channel();
    tokio::join!(
        receive(Arc::clone(&link), client, queue),
        deliver_all(link, mesh, waiting)
    );
}

/// Puts what comes in the queue, as long as there is room: the library's own queue counts messages, and each may have a megabyte.
async fn receive(link: Arc<Link>, client: Client, queue: UnboundedSender<Waiting>) {
    let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX as usize));
    let subject = link.subjects.live_of_all();
    let mut messages = Messages::of(&client, subject, "publications without history").await;
    loop {
        let message = messages.next().await;
        let share = share_of(message.length);
        match Arc::clone(&room).try_acquire_many_owned(share) {
            Ok(permit) => drop(queue.send((message, permit))),
            Err(_) => link.state.counts.count_live_dropped(),
        }
    }
}

/// Bytes of the queue that a message takes.
fn share_of(length: usize) -> u32 {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    length.saturating_add(MESSAGE_OVERHEAD).min(QUEUE_BYTES_MAX)
}

async fn deliver_all(link: Arc<Link>, mesh: Mesh, mut waiting: UnboundedReceiver<Waiting>) {
    while let Some((message, _share)) = waiting.recv().await {
        deliver(&link, &mesh, &message).await;
    }
}

/// Delivers a message.
async fn deliver(link: &Link, mesh: &Mesh, message: &Message) {
    let Some(channel) = channel_of(link, &message.subject) else {
        return;
    };
    let headers = message.headers.iter().flat_map(HeaderMap::iter);
    let headers =
        headers.filter_map(|(name, values)| Some((name.as_ref(), values.first()?.as_str())));
    let envelope = match Envelope::read(headers, &message.payload) {
        Ok(envelope) => envelope,
        Err(error) => {
            link.state.counts.count_unreadable();
            if link.remarks.may(Remark::Unreadable) {
                tracing::warn!("a message for channel {channel:?} is left out: {error}");
            }
            return;
        }
    };
    let has_log = link.log_of(&channel).is_some();
    let taken = take_in(mesh, &link.node, channel, envelope).await;
    if let Taken::Submission(mut submission) = taken {
        submission.skip_history = has_log;
        mesh.deliver_live(*submission);
    }
}

/// The channel of a live subject; none if it is no channel's of this server.
fn channel_of(link: &Link, subject: &Subject) -> Option<String> {
    let channel = link.subjects.channel_of_live(subject)?;
    let is_name = !channel.is_empty() && channel.len() <= Mesh::CHANNEL_BYTES_MAX;
    is_name.then_some(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_fits_into_an_empty_queue() {
        assert_eq!(share_of(0), MESSAGE_OVERHEAD);
        assert_eq!(share_of(usize::MAX), QUEUE_BYTES_MAX);
        assert!((QUEUE_BYTES_MAX as usize) < Semaphore::MAX_PERMITS);
    }
}

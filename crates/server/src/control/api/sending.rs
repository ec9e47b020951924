//! Publications of one request on their way to the homes of their channels.
//!
//! All of a request's publications are sent before the first answer is waited for, so that a batch costs one wait and no task for
//! each of them.

use super::super::Control;
use super::fault::Fault;
use super::publication::Publication;
use super::reply::{Json, Reply};
use crate::answers::Wait;
use myriad_shard::{NotPublished, Position, RequestId};
use std::borrow::Cow;
use std::fmt::Write;
use tokio::time::Instant;

/// Publications that were sent, by their places; waits for their positions.
pub(super) struct Sending<'c, 'a> {
    control: &'c Control,
    wait: Wait<'c, Result<Position, NotPublished>>,
    sent: Vec<Sent<'a>>,
    deadline: Instant,
}

/// A publication that its home has, or will have.
struct Sent<'a> {
    channel: Cow<'a, str>,
    bytes_shown: usize,
    /// Whether its position is told: history keeps it. Or why it was not sent.
    is_kept: Result<bool, Fault>,
}

impl<'c, 'a> Sending<'c, 'a> {
    /// None yet.
    pub(super) fn new(control: &'c Control) -> Self {
        Self {
            control,
            wait: control.api.positions.begin(),
            sent: Vec::new(),
            deadline: Control::answers_deadline(),
        }
    }

    /// Sends a publication to its channel.
    pub(super) fn send(&mut self, channel: Cow<'a, str>, publication: &Publication) {
        let bytes_shown = publication.bytes_shown();
        let id = self.wait.ask();
        let is_kept = self
            .submit(id, &channel, publication, bytes_shown)
            .inspect_err(|_| self.wait.give_up(id));
        self.sent.push(Sent {
            channel,
            bytes_shown,
            is_kept,
        });
    }

    /// A publication of the request that cannot be one. It has its place among the replies.
    pub(super) fn refuse(&mut self, channel: Cow<'a, str>, fault: Fault) {
        self.wait.give_up(self.wait.ask());
        self.sent.push(Sent {
            channel,
            bytes_shown: 0,
            is_kept: Err(fault),
        });
    }

    /// Hands it to the mesh. Returns whether history keeps it.
    fn submit(
        &self,
        id: RequestId,
        channel: &str,
        publication: &Publication,
        bytes_shown: usize,
    ) -> Result<bool, Fault> {
        let has_history = publication.check(self.control, channel)?;
        let (content, options) = (publication.content.clone(), publication.options.clone());
        let is_kept = has_history && !options.skip_history;
        let mesh = &self.control.mesh;
        mesh.publish_content(channel, content, options, Some(id))
            .map_err(|refused| {
                let log = &self.control.publish_log;
                log.refused(channel, bytes_shown, refused);
                Fault::of_publication(refused, channel)
            })?;
        Ok(is_kept)
    }

    /// Waits for the positions of all. Their answers are in the order in which they were sent.
    pub(super) async fn replies(self) -> Vec<Reply> {
        let Self {
            control,
            wait,
            sent,
            deadline,
        } = self;
        let positions = wait.until(deadline).await;
        let replies = sent.into_iter().zip(positions);
        replies
            .map(|(sent, position)| sent.reply(control, position))
            .collect()
    }
}

impl Sent<'_> {
    /// `position` is none without an answer.
    fn reply(self, control: &Control, position: Option<Result<Position, NotPublished>>) -> Reply {
        let is_kept = self.is_kept?;
        let position = position.ok_or_else(Fault::unanswered)?;
        let position = position.map_err(|not| Fault::not_published(not, &self.channel))?;
        let log = &control.publish_log;
        log.published(&self.channel, self.bytes_shown, &position);
        Ok(if is_kept {
            written(position)
        } else {
            Json::empty()
        })
    }
}

/// A position as a result.
fn written(position: Position) -> Json {
    let mut json = String::with_capacity(48);
    let Position { epoch, offset } = position;
    write!(json, r#"{{"offset":{offset},"epoch":"{epoch}"}}"#).expect("a String takes everything");
    Json(json)
}

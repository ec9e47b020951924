//! `publish`.

use super::asks::Asking;
use super::lines::mark_of;
use super::refused::Act;
use super::{Asked, Failure};
use crate::access::PublishGrant;
use crate::asks::Question;
use crate::mesh::{Message, NotPublished, PublishOptions, PublishRefused};
use crate::shard::Shard;
use myriad_hub::{Asker, Content, DataFormat, Now, Payload, Submission, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Data, ErrorCode, PublishRequest, is_json};
use std::sync::Arc;

/// A client's data, to be kept.
pub(super) fn payload_of(data: Data<'_>) -> Payload {
    match data {
        Data::Json(json) => Payload::Json(json.into()),
        // Bytes of a protobuf client that are JSON can be read by JSON clients too.
        Data::Binary(bytes) => match str::from_utf8(bytes) {
            Ok(text) if is_json(bytes) => Payload::Json(text.into()),
            _ => Payload::Binary(bytes.into()),
        },
    }
}

/// What a client's data is as a publication; an error if the channel does not take it.
fn payload(data: Data<'_>, format: DataFormat) -> Result<Payload, Failure> {
    let payload = payload_of(data);
    if format.takes(&payload) {
        return Ok(payload);
    }
    Err(Failure::Caused(
        ErrorCode::BadRequest,
        match format {
            DataFormat::Json => "the data is no JSON (publication_data_format = \"json\")",
            DataFormat::JsonObject => {
                "the data is no JSON object (publication_data_format = \"json_object\")"
            }
            DataFormat::NonEmpty | DataFormat::Binary => {
                "there is no data, and its namespace lacks publication_data_format = \"binary\""
            }
        },
    ))
}

/// The application answers with tags that its own publications may not have.
const TAGS_TOO_LARGE: &str = "the application's tags have more bytes than client.tags_bytes_limit";

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_publish(
        &mut self,
        key: Key,
        id: u32,
        request: &PublishRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        let options = self.options_of(channel)?;
        if request.kind != 0 {
            let cause = "publications with a type are for maps, which are not there";
            return Err(Failure::Caused(ErrorCode::PermissionDenied, cause));
        }
        let payload = payload(request.data, options.data_format)?;
        if self.waits_behind(key, channel, text)? {
            return Ok(());
        }
        if let Some(proxy) = &options.proxies.publish {
            let asking = Asking {
                command: id,
                channel: Some(channel),
                text,
                question: Question::Publish {
                    channel: channel.into(),
                    data: payload,
                    proxy: Arc::clone(proxy),
                },
            };
            return self.ask_control_plane(key, asking, now);
        }
        // Where the application is asked, it decides. Otherwise no right opens what the channel's name keeps from this user.
        let (_, is_subscribed) = self.check_seen(key, channel)?;
        self.check_may(key, Act::Publish, options.publish, is_subscribed)?;
        self.submit(key, id, channel, payload, PublishGrant::default(), now)
    }

    /// The application allows a publication, and may have changed it.
    pub(super) fn publish_granted(
        &mut self,
        key: Key,
        id: u32,
        request: &PublishRequest<'_>,
        mut grant: PublishGrant,
        now: Now,
    ) -> Result<(), Failure> {
        let data = grant.data.take();
        let data = data.unwrap_or_else(|| payload_of(request.data));
        self.submit(key, id, &request.channel, data, grant, now)
    }

    /// Sends a client's publication to the channel's home.
    fn submit(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        payload: Payload,
        grant: PublishGrant,
        now: Now,
    ) -> Result<(), Failure> {
        let options = self.options_of(channel)?;
        let subscription = self.hub.find_subscription(key.index, channel);
        let content = Content {
            publisher: Some(Arc::new(self.client_info(key, subscription))),
            tags: grant.tags.into(),
            ..Content::new(payload)
        };
        if content.tag_bytes() > self.settings.client.tags_bytes_limit as usize {
            return Err(Failure::Explained(ErrorCode::Internal, TAGS_TOO_LARGE));
        }
        if self.hub.refuses_publications(channel) {
            let cause =
                "deliveries of the channel are behind, so clients wait before they publish more";
            return Err(Failure::Caused(ErrorCode::TooManyRequests, cause));
        }
        self.check_channel_rate(channel, now)?;
        let ticket = Ticket {
            mark: mark_of(channel),
            ..self.open_ticket(key, id)?
        };
        let bytes = content.bytes();
        let sender = options.exclude_sender.then_some(ticket);
        let submission = self.mesh.submission(
            channel,
            content.into(),
            PublishOptions {
                idempotency_key: grant.idempotency_key,
                delta: grant.delta,
                skip_history: grant.skip_history,
                version: grant.version,
                version_epoch: grant.version_epoch,
            },
            Some(Asker::Session(ticket)),
            sender,
        );
        let sent = submission.and_then(|submission| self.send_publication(submission));
        if let Err(refused) = sent {
            self.close_ticket(ticket);
            let (code, cause) = match refused {
                PublishRefused::Channel => {
                    (ErrorCode::BadRequest, "the channel's name is too long")
                }
                PublishRefused::TooLarge => (ErrorCode::BadRequest, "the publication is too large"),
                PublishRefused::Busy => (
                    ErrorCode::TooManyRequests,
                    "as many bytes of publications are in flight as may be",
                ),
                PublishRefused::Draining => (ErrorCode::Internal, "the server drains"),
            };
            return Err(Failure::Caused(code, cause));
        }
        self.sessions.lines.begin_publication(ticket);
        // Only now: what was refused does not count against other clients.
        self.hub.note_taken(channel, bytes);
        Ok(())
    }

    /// Sends a publication to its channel's home, behind everything that was sent there before.
    fn send_publication(&mut self, submission: Submission) -> Result<(), PublishRefused> {
        if self.mesh.has_broker() {
            self.mesh.submit_to_broker(submission);
            return Ok(());
        }
        let home = self.mesh.home_of(&submission.channel);
        let message = Message::Publish(Box::new(submission));
        if home == self.index {
            self.send_message(home, message);
            return Ok(());
        }
        // A shard ends only in a drain.
        let sent = self.mesh.try_send(home, message);
        sent.map_err(|_| PublishRefused::Draining)
    }

    /// The home has given a client's publication its position.
    pub(crate) fn handle_published(&mut self, ticket: Ticket, now: Now) {
        self.end_publication(ticket);
        if let Some(key) = self.close_ticket(ticket) {
            self.answer(key, now, |writer| writer.publish(ticket.command));
        }
    }

    /// A client's publication has no position: its channel is a stream that is closed, or the broker did not answer, or refuses it.
    pub(crate) fn handle_not_published(&mut self, ticket: Ticket, why: NotPublished, now: Now) {
        self.end_publication(ticket);
        if let Some(key) = self.close_ticket(ticket) {
            let refused = match why {
                NotPublished::Closed => (ErrorCode::NotAvailable, "the stream is closed"),
                NotPublished::Refused => {
                    (ErrorCode::BadRequest, "the broker refuses the publication")
                }
                // Temporary: the client may try again.
                NotPublished::DiskFull => (
                    ErrorCode::TooManyRequests,
                    "the disk of the history is full",
                ),
                NotPublished::DiskFailed => {
                    (ErrorCode::Internal, "the disk of the history has failed")
                }
                NotPublished::Unavailable => (ErrorCode::Internal, "the broker has not answered"),
                NotPublished::Ended => (ErrorCode::Internal, "the home of the channel has ended"),
            };
            self.answer_caused(key, ticket, || Asked::command("publish", ""), refused, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DataFormat, payload};
    use myriad_hub::Payload;
    use myriad_wire::centrifuge::Data;

    #[test]
    fn a_channel_takes_the_data_that_its_format_allows() {
        let (json, object) = (Data::Json("[1]"), Data::Json(" {}"));
        let (bytes, text) = (Data::Binary(&[0, 255]), Data::Binary(b"{\"a\":1}"));
        for (format, taken) in [
            (DataFormat::NonEmpty, [true, true, true, true, false]),
            (DataFormat::Json, [true, true, false, true, false]),
            (DataFormat::JsonObject, [false, true, false, true, false]),
            (DataFormat::Binary, [true, true, true, true, true]),
        ] {
            let data = [json, object, bytes, text, Data::default()];
            assert_eq!(
                data.map(|data| payload(data, format).is_ok()),
                taken,
                "{format:?}"
            );
        }
        let read = payload(text, DataFormat::NonEmpty);
        assert_eq!(read, Ok(Payload::Json("{\"a\":1}".into())));
    }
}

//! `broadcast`: one publication in many channels.

use super::super::Control;
use super::fault::Fault;
use super::method::{Request, Scope};
use super::publication::{Publication, publication_request};
use super::reply::{self, Json, Reply};
use super::sending::Sending;
use std::borrow::Cow;

/// Channels of one request.
pub(super) const CHANNELS_MAX: usize = 10_000;

publication_request! {
    /// The request, borrowed from its bytes.
    Broadcast<'a> {
        #[serde(borrow)]
        channels: Vec<Cow<'a, str>>,
    }
}

impl<'a> Broadcast<'a> {
    /// Channels that it names.
    pub(super) fn count(&self) -> usize {
        self.channels.len()
    }

    /// Sends it to every channel.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(super) fn send(mut self, sending: &mut Sending<'_, 'a>) -> Result<(), Fault> {
        match self.channels.len() {
            0 => return Err(Fault::bad(r#"field "channels" has no channel"#)),
            1..=CHANNELS_MAX => {}
            count => {
                return Err(Fault::bad(format!(
                    "field \"channels\" has {count} channels; send at most {CHANNELS_MAX}"
                )));
            }
        }
        let publication = Publication::try_from(self.fields())?;
        for channel in self.channels {
            sending.send(channel, &publication);
        }
        Ok(())
    }
}

/// The result: what became of it in each channel.
pub(super) fn result(replies: &[Reply]) -> Json {
    let mut json = String::with_capacity(16 + 64 * replies.len());
    json.push_str("{\"responses\":[");
    for (index, one) in replies.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        reply::write(one, &mut json);
    }
    json.push_str("]}");
    Json(json)
}

impl<'a> Request<'a> for Broadcast<'a> {
    const FORM: &'static str = r#"send {"channels": ["name", ..], "data": any JSON}, or "b64data": "base64" instead of "data""#;

    fn scope(&self) -> Scope<'_> {
        Scope::Channels(Box::new(self.channels.iter().map(|channel| &**channel)))
    }

    async fn answer(self, control: &Control) -> Reply {
        let mut sending = Sending::new(control);
        self.send(&mut sending)?;
        Ok(result(&sending.replies().await))
    }
}

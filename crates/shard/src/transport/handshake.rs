//! The request head: which transport it asks for, or what is wrong with it. Changes `inputs` and `hub`.

use crate::input::Input;
use crate::marks::{Happening, hit};
use crate::mesh::{Mesh, Message};
use crate::shard::Shard;
use myriad_hub::{Chunk, CloseReason, Compression, Now, Subscribed, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::deflate::Window;
use myriad_wire::handshake::check_upgrade;
use myriad_wire::http::{HeadLimits, RequestHead, parse_request, query_pairs, write_response};

/// Bytes a client may send behind its request before the 101.
const EARLY_BYTES_MAX: usize = 16 * 1024;

/// Seconds a client is asked to stay away when there is no room.
const RETRY_AFTER_S: &str = "5";

/// An HTTP answer that ends the connection.
pub(crate) struct Refused {
    status: u16,
    label: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    sentence: String,
    reason: CloseReason,
}

impl Refused {
    fn new(status: u16, label: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            status,
            label,
            headers: Vec::new(),
            sentence: sentence.into(),
            reason: CloseReason::Refused,
        }
    }

    fn unavailable(label: &'static str, reason: CloseReason, sentence: &str) -> Self {
        Self {
            headers: vec![("retry-after", RETRY_AFTER_S)],
            reason,
            ..Self::new(503, label, sentence)
        }
    }

    pub(crate) fn handshake_timeout() -> Self {
        let sentence =
            "The request head did not come in time: send it whole right after connecting.";
        Self {
            reason: CloseReason::HandshakeTimeout,
            ..Self::new(408, "handshake_timeout", sentence)
        }
    }

    /// The shards that the channels are at home on were asked, and are too busy to answer.
    pub(crate) fn join_timeout() -> Self {
        let sentence = "The server is too busy to subscribe you: reconnect after a pause.";
        Self::unavailable("join_timeout", CloseReason::Overloaded, sentence)
    }

    pub(crate) fn draining() -> Self {
        let sentence = "The server is shutting down: reconnect.";
        Self::unavailable("draining", CloseReason::Drain, sentence)
    }

    fn full() -> Self {
        let sentence = "The server is full: reconnect after a pause.";
        Self::unavailable("full", CloseReason::Full, sentence)
    }

    /// The budget of what is buffered for all is spent.
    fn overloaded() -> Self {
        let sentence = "The server has no memory to spare: reconnect after a pause.";
        Self::unavailable("overloaded", CloseReason::Overloaded, sentence)
    }
}

/// What a request head asks for.
enum Route {
    Stream {
        response: Vec<u8>,
        /// What was agreed to of compression.
        window: Option<Window>,
        stream: Stream,
    },
    ControlPlane,
}

enum Stream {
    Raw { channels: Vec<String> },
    Echo,
}

impl<R: Reactor> Shard<R> {
    /// Bytes of a connection whose request head is not whole.
    pub(crate) fn handle_head_bytes(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        match self.inputs.take(&mut self.hub, key.index) {
            Input::Head(mut head) => {
                hit!(HeadInPieces);
                head.extend_from_slice(bytes);
                self.handle_request(key, &mut head, now);
            }
            _ => self.handle_request(key, bytes, now),
        }
    }

    fn handle_request(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let limits = HeadLimits {
            bytes_max: self.settings.head_bytes_max,
            headers_max: self.settings.headers_max,
        };
        let (route, head_bytes) = match parse_request(bytes, limits) {
            Ok(Some(head)) => (
                self.route(&head, self.hub.connection(key.index).is_surplus()),
                head.head_bytes(),
            ),
            Ok(None) => {
                if !self
                    .inputs
                    .keep(&mut self.hub, key.index, Input::Head(bytes.to_vec()))
                {
                    self.note_happening(key.index, Happening::Overloaded);
                    self.refuse(key, Refused::overloaded(), now);
                }
                return;
            }
            Err(error) => (
                Err(Refused::new(
                    error.status(),
                    error.label(),
                    error.sentence(),
                )),
                bytes.len(),
            ),
        };
        match route {
            Ok(Route::Stream {
                response,
                window,
                stream,
            }) => {
                self.hub.connection_mut(key.index).set_window(window);
                let early = &mut bytes[head_bytes..];
                match stream {
                    Stream::Raw { channels } => self.join(key, response, &channels, early, now),
                    Stream::Echo => self.admit(key, Transport::Echo, response, early, now),
                }
            }
            Ok(Route::ControlPlane) => self.begin_handover(key, bytes, now),
            Err(refused) => self.refuse(key, refused, now),
        }
    }

    fn route(&self, head: &RequestHead<'_>, surplus: bool) -> Result<Route, Refused> {
        let echo = match head.path() {
            "/raw" => false,
            "/echo" if self.settings.echo => true,
            _ if self.settings.hands_over => return Ok(Route::ControlPlane),
            _ => {
                let sentence = "Nothing is here: streams are at /raw?channel=NAME. The API has an address of its own.";
                return Err(Refused::new(404, "path", sentence));
            }
        };
        let upgrade = check_upgrade(head).map_err(|refusal| Refused {
            headers: refusal.headers().to_vec(),
            ..Refused::new(refusal.status(), refusal.label(), refusal.sentence())
        })?;
        if self.admission.drain.is_some() {
            return Err(Refused::draining());
        }
        if surplus {
            return Err(Refused::full());
        }
        if !self.settings.anonymous {
            let sentence = "Anonymous clients are not let in here: start the server with --dev or --anonymous.";
            return Err(Refused::new(401, "anonymous", sentence));
        }
        let stream = if echo {
            Stream::Echo
        } else {
            let channels = self.channels_of(head.query().unwrap_or_default())?;
            Stream::Raw { channels }
        };
        let deflate = match self.settings.compression {
            Compression::Off => None,
            Compression::Shared => upgrade.deflate(),
        };
        let mut response = Vec::with_capacity(256);
        upgrade.write_response(None, deflate.as_ref(), &mut response);
        Ok(Route::Stream {
            response,
            window: deflate.map(|deflate| deflate.window()),
            stream,
        })
    }

    fn channels_of(&self, query: &str) -> Result<Vec<String>, Refused> {
        let mut channels = Vec::new();
        for pair in query_pairs(query) {
            let (name, value) = pair
                .map_err(|error| Refused::new(error.status(), error.label(), error.sentence()))?;
            if name == "channel" && !channels.iter().any(|known| *known == value) {
                channels.push(value.into_owned());
            }
        }
        let max = (self.settings.subscriptions_max as usize).min(usize::from(u8::MAX));
        if channels.is_empty() {
            return Err(Refused::new(
                400,
                "channel",
                "No channel: name at least one, as in /raw?channel=news.",
            ));
        }
        if channels.len() > max {
            return Err(Refused::new(
                400,
                "channel",
                format!("{} channels: at most {max} a connection.", channels.len()),
            ));
        }
        if channels
            .iter()
            .any(|name| name.is_empty() || name.len() > Mesh::CHANNEL_BYTES_MAX)
        {
            let sentence = format!(
                "A channel's name has 1 to {} bytes of UTF-8.",
                Mesh::CHANNEL_BYTES_MAX
            );
            return Err(Refused::new(400, "channel", sentence));
        }
        Ok(channels)
    }

    /// Subscribes a `raw` connection, and answers 101 when every channel's home has confirmed: a publication that is
    /// accepted after the client has seen the 101 reaches it.
    fn join(
        &mut self,
        key: Key,
        response: Vec<u8>,
        channels: &[String],
        early: &mut [u8],
        now: Now,
    ) {
        let mut pending = false;
        for channel in channels {
            match self.hub.subscribe(key.index, channel) {
                Subscribed::Ready { .. } | Subscribed::Already(_) => {}
                Subscribed::Pending => pending = true,
                Subscribed::Ask { name, serial } => {
                    pending = true;
                    // A leave of the same channel in this turn must arrive before this join.
                    self.send_leaves();
                    let (shard, home) = (self.index, self.mesh.home_of(&name));
                    hit!(AskSelf if home == shard);
                    hit!(AskOther if home != shard);
                    self.send_message(
                        home,
                        Message::Join {
                            channel: name,
                            shard,
                            serial,
                        },
                    );
                }
            }
        }
        if !pending {
            hit!(JoinAtOnce);
            return self.admit(key, Transport::Raw, response, early, now);
        }
        self.hub.begin_joining(key.index, now);
        let input = Input::Joining {
            response: response.into(),
            early: early.to_vec(),
        };
        if !self.inputs.keep(&mut self.hub, key.index, input) {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded(), now);
        }
    }

    /// Bytes that come behind the request, before the 101 has left.
    pub(crate) fn handle_early_bytes(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let Input::Joining {
            response,
            mut early,
        } = self.inputs.take(&mut self.hub, key.index)
        else {
            unreachable!("a connection that joins has its response waiting");
        };
        if early.len() + bytes.len() > EARLY_BYTES_MAX {
            hit!(EarlyTooMuch);
            let sentence = "Too much behind the request: wait for the 101 before you send frames.";
            return self.refuse(key, Refused::new(400, "body", sentence), now);
        }
        hit!(EarlyBytes);
        early.extend_from_slice(bytes);
        if !self
            .inputs
            .keep(&mut self.hub, key.index, Input::Joining { response, early })
        {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded(), now);
        }
    }

    /// All channels of a joining connection are confirmed.
    pub(crate) fn admit_joined(&mut self, key: Key, now: Now) {
        let Input::Joining {
            response,
            mut early,
        } = self.inputs.take(&mut self.hub, key.index)
        else {
            unreachable!("a connection that joins has its response waiting");
        };
        self.admit(key, Transport::Raw, response.into(), &mut early, now);
    }

    fn admit(
        &mut self,
        key: Key,
        transport: Transport,
        response: Vec<u8>,
        early: &mut [u8],
        now: Now,
    ) {
        self.hub.admit(key.index, now);
        let connection = self.hub.connection_mut(key.index);
        connection.set_transport(transport);
        let compresses = connection.window().is_some();
        let response = Chunk::Response(response.into());
        if self.hub.enqueue(key.index, response).is_err() {
            // No 101: a close frame would be no answer to a request.
            hit!(ResponseTooMuch);
            return self.refuse(key, Refused::overloaded(), now);
        }
        self.metrics().upgrades.add(1);
        self.metrics()
            .compressed_upgrades
            .add(u64::from(compresses));
        if !early.is_empty() {
            hit!(EarlyWithRequest);
            self.handle_frames(key, early, now);
        }
    }

    /// Answers with an error, and lingers so that the answer is not eaten by a reset.
    pub(crate) fn refuse(&mut self, key: Key, refused: Refused, now: Now) {
        self.metrics().count_refusal(refused.label);
        let reason = refused.reason;
        hit!(RefusedFull if reason == CloseReason::Full);
        hit!(RefusedDraining if reason == CloseReason::Drain);
        let mut response = Vec::with_capacity(256);
        write_response(
            &mut response,
            refused.status,
            &refused.headers,
            &refused.sentence,
        );
        self.close_gracefully(key, refused.reason, response, now);
    }
}

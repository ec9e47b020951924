//! `GET /v1/stream/CHANNEL`: the request of a reader, and who may read. What becomes of it is in `reading`. Changes nothing.

use super::refusals::Refused;
use crate::access::{ConnectGrant, KeyFault, TokenFault, Verdict};
use crate::listening::ListenRefused;
use crate::reading::Reading;
use crate::shard::Shard;
use myriad_hub::{Bearer, NEVER, Now, ReadFrom, Variant};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::http::{
    HeadError, HostRefused, OriginRefused, RequestHead, check_origin, credentials,
};
use myriad_wire::reads::{
    HEADERS, Live, PAGE_HEADERS, Persistence, ReadError, ReadRequest, STREAM_PATH,
};
use myriad_wire::streams::StreamOffset;

/// The cookie that may have a reader's token.
const TOKEN_COOKIE: &str = "myriad_token";

/// Who reads.
enum Who {
    /// Somebody who may read; with whose token, if with one.
    Known(Option<Bearer>),
    /// Whoever this token names: its verification takes longer than a shard has.
    BearerOf(Box<str>),
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::new(error.status(), error.label(), error.sentence())
    }
}

impl Refused {
    /// The same as an answer about a stream, to a page that is let in or to another program.
    pub(crate) fn of_stream(self) -> Self {
        self.of_hidden_stream().with_headers(&PAGE_HEADERS)
    }

    /// The same to a page that is not let in: a browser tells it nothing.
    fn of_hidden_stream(self) -> Self {
        self.with_headers(&HEADERS)
            .with_headers(&[("cache-control", "no-store")])
            .with_json()
    }

    /// There is no such stream.
    pub(crate) fn no_stream() -> Self {
        let sentence = "There is no such stream: create it with PUT, or publish to a channel that keeps history.";
        Self::new(404, "stream", sentence).of_stream()
    }

    /// The reader's token was revoked after it had been verified.
    pub(crate) fn revoked() -> Self {
        bad_token(TokenFault::Revoked).of_stream()
    }

    /// History no longer has what follows the reader's offset. `earliest` is where it can go on.
    pub(crate) fn gone(earliest: String) -> Self {
        let sentence = "What follows this offset is no longer kept: something was missed. Go on from Stream-Next-Offset of this answer, or from -1.";
        Self::new(410, "gone", sentence)
            .of_stream()
            .with_next_offset(earliest)
    }

    /// The stream has not come as far as the reader's offset.
    pub(crate) fn future_offset() -> Self {
        let sentence = "The stream has not given out this offset: send -1, now, or Stream-Next-Offset of an earlier answer.";
        Self::new(400, "offset", sentence).of_stream()
    }

    /// This node of a cluster has not read as far as the reader. Another one has, or this one will have.
    pub(crate) fn behind() -> Self {
        let sentence = "This node has not read the stream as far as your offset: wait as long as Retry-After says, then ask again.";
        Self::new(503, "behind", sentence)
            .with_headers(&[("retry-after", "1")])
            .of_stream()
    }

    /// More requests wait behind one that is not answered than a connection may have.
    pub(crate) fn pipelined() -> Self {
        let sentence = "Too much waits behind a request that is not answered yet: read its answer before you send more.";
        Self::new(429, "pipelined", sentence).of_stream()
    }
}

/// What a reader without a token is advised whose channel is for some users only.
const OF_READERS: &str =
    "and without a token nobody knows who reads it: send the token of a user who may subscribe";

/// Whether a request reads a channel as a stream. Those that write are for the control plane, and so is HEAD.
pub(super) fn reads_stream(head: &RequestHead<'_>) -> bool {
    head.method() == "GET" && head.path().starts_with(STREAM_PATH)
}

impl<R: Reactor> Shard<R> {
    /// A request for a stream whose head breaks a rule: a page that is let in may read why.
    pub(super) fn refused_head(&self, head: &RequestHead<'_>, error: HeadError) -> Refused {
        let refused = Refused::from(error);
        if !head.path().starts_with(STREAM_PATH) {
            refused
        } else if self.check_page(head).is_ok() {
            refused.of_stream()
        } else {
            refused.of_hidden_stream()
        }
    }

    /// Whether the page that a request comes from is let in. Other programs come from none.
    pub(super) fn check_page(&self, head: &RequestHead<'_>) -> Result<(), OriginRefused> {
        let allowed = &self.settings.allowed_origins;
        check_origin(head.headers("origin"), head.header("host"), allowed)
    }

    /// Whether the host that a request asks for is this machine, where that matters.
    pub(super) fn check_host(&self, head: &RequestHead<'_>) -> Result<(), HostRefused> {
        let own = self.settings.own_hosts.as_ref();
        own.map_or(Ok(()), |own| own.check(head.header("host")))
    }

    /// What a request wants to read, if it may. With a token that takes longer to verify than a shard has: then the request may be
    /// answered once that is done.
    pub(super) fn route_read(
        &mut self,
        key: Key,
        head: &RequestHead<'_>,
        now: Now,
    ) -> Result<(Box<Reading>, Option<Box<str>>), Refused> {
        // A page that is not let in may not read that either.
        self.check_page(head)
            .map_err(|refused| Refused::from(refused).of_hidden_stream())?;
        self.judge_read(key, head, now).map_err(Refused::of_stream)
    }

    fn judge_read(
        &mut self,
        key: Key,
        head: &RequestHead<'_>,
        now: Now,
    ) -> Result<(Box<Reading>, Option<Box<str>>), Refused> {
        if self.admission.drain.is_some() {
            return Err(Refused::draining());
        }
        self.check_admission(key)?;
        let request = ReadRequest::of(head, TOKEN_COOKIE)?;
        let from = match request.offset.as_deref() {
            None | Some("-1") => ReadFrom::Start,
            Some("now") => ReadFrom::Now,
            Some(token) => ReadFrom::After(StreamOffset::parse(token).ok_or(ReadError::Offset)?),
        };
        // Before a signature is looked at, which takes longer. The application is no stranger, and whoever shows a key that is none
        // is refused, and its connection ends.
        if api_key_of(head).is_none() {
            self.charge_read(key, head, now)?;
        }
        let (bearer, token) = match self.check_reader(head, &request, now)? {
            Who::Known(bearer) => (bearer, None),
            Who::BearerOf(token) => (None, Some(token)),
        };
        // A client counts once, however often it asks.
        if !self.hub.connection(key.index).is_kept_alive() {
            self.take_connection(now)?;
        }
        let persistence = match request.live {
            Live::Events => Persistence::Close,
            _ => Persistence::of(head),
        };
        let reading = Box::new(Reading {
            serial: 0,
            channel: request.channel.as_ref().into(),
            from,
            live: request.live,
            comes_back: request.comes_back,
            cursor: request.cursor,
            if_none_match: request.if_none_match.map(Into::into),
            variant: Variant::new(persistence, head.minor_version() > 0),
            bearer,
            held_until: NEVER,
        });
        Ok((reading, token))
    }

    /// Who reads a stream, if he may: the application by a key, a user by a token, or everybody where clients may be anonymous.
    fn check_reader(
        &self,
        head: &RequestHead<'_>,
        request: &ReadRequest<'_>,
        now: Now,
    ) -> Result<Who, Refused> {
        let channel = &*request.channel;
        if let Some(presented) = api_key_of(head) {
            self.check_key(presented, channel)?;
            return Ok(Who::Known(None));
        }
        let Some(token) = request.token.as_deref() else {
            // As at the control plane, and as for clients with a session: the rights of namespaces bind them.
            let client = &self.settings.client;
            if !self.settings.anonymous && !client.allow_anonymous_connect_without_token {
                let sentence = "Reading needs a token: send Authorization: Bearer TOKEN, ?token=TOKEN or the cookie myriad_token. A key of the API will do, too: X-API-Key: KEY. Or start the server with --anonymous, or with --dev to try things.";
                return Err(Refused::new(401, "anonymous", sentence));
            }
            return self
                .check_open(channel, OF_READERS)
                .map(|()| Who::Known(None));
        };
        let Some(tokens) = &self.settings.access.tokens else {
            return Err(bad_token(TokenFault::Invalid(
                "no key for tokens is configured",
            )));
        };
        let bearer = self.bearer_of(channel, tokens.connection(token), now)?;
        Ok(match bearer {
            Some(bearer) => Who::Known(Some(bearer)),
            None => Who::BearerOf(token.into()),
        })
    }

    /// Whether the application may read by a key of the API.
    fn check_key(&self, presented: &[u8], channel: &str) -> Result<(), Refused> {
        // Where the API has an address of its own, its keys are good for nothing elsewhere.
        let keys = self.settings.access.keys.as_ref();
        let Some(keys) = keys.filter(|_| self.settings.hands_over) else {
            let sentence = "Keys of the API are not taken at this address: ask at the API's own, or send a token.";
            return Err(Refused::new(401, "token", sentence));
        };
        let named = self.settings.namespaces.check_name(channel);
        named.map_err(|error| forbidden(channel, ListenRefused::Name(error)))?;
        match keys.check_read(presented, channel) {
            Ok(()) => Ok(()),
            Err(KeyFault::Unknown) => {
                let sentence = "This is not a key of the API: send X-API-Key: KEY or Authorization: apikey KEY.";
                Err(Refused::new(401, "token", sentence))
            }
            Err(KeyFault::Forbidden(sentence)) => Err(Refused::new(403, "permission", sentence)),
        }
    }

    /// Who has shown a token, if he may read a channel; none if it is not verified.
    pub(crate) fn bearer_of(
        &self,
        channel: &str,
        verdict: Verdict<ConnectGrant>,
        now: Now,
    ) -> Result<Option<Bearer>, Refused> {
        let grant = match verdict {
            Verdict::Now(Ok(grant)) => grant,
            Verdict::Now(Err(fault)) => return Err(bad_token(fault)),
            Verdict::Later => return Ok(None),
        };
        self.check_user(channel, &grant)?;
        let expires_at = grant.expires_in.map_or(NEVER, |left| now.tick_after(left));
        Ok(Some(Bearer {
            user: grant.user,
            token: grant.token,
            expires_at,
        }))
    }

    /// Whether a token counts no more that was good when it was verified. A revocation is in force before its order comes: whoever
    /// begins to read behind the order is refused, and whoever began before it is ended by it.
    pub(crate) fn is_revoked(&self, bearer: &Bearer) -> bool {
        let user = bearer.user.as_deref().unwrap_or_default();
        match (&self.settings.access.tokens, &bearer.token) {
            (Some(tokens), Some(token)) => tokens.is_revoked(token, user),
            _ => false,
        }
    }

    /// Whether a user may read a channel.
    fn check_user(&self, channel: &str, grant: &ConnectGrant) -> Result<(), Refused> {
        if grant.user.is_none() && self.settings.access.disallow_anonymous_connection_tokens {
            let cause = "it names no user (client.disallow_anonymous_connection_tokens)";
            return Err(bad_token(TokenFault::Invalid(cause)));
        }
        let checked = self.settings.check_listener(channel, grant);
        checked.map_err(|refused| forbidden(channel, refused))
    }
}

/// The key of the HTTP API that a request shows.
fn api_key_of<'a>(head: &RequestHead<'a>) -> Option<&'a [u8]> {
    let of_scheme = || credentials(head.header("authorization")?, "apikey");
    head.header("x-api-key").or_else(of_scheme)
}

fn bad_token(fault: TokenFault) -> Refused {
    let sentence = format!(
        "The token {}: ask the application for another.",
        fault.told()
    );
    Refused::new(401, "token", sentence).caused_by(fault.cause())
}

fn forbidden(channel: &str, refused: ListenRefused) -> Refused {
    Refused::new(403, "permission", refused.sentence(channel))
}

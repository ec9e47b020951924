//! Who may do what to streams.
//!
//! A program with a key of the API may do what the key's rights to methods and namespaces say. A client with a token may do what its
//! namespace's rights say, as over WebSocket. Anybody may do the same where anonymous clients are let in, and everything where the
//! API is open.

use super::super::Control;
use super::super::api::Method;
use super::super::api::bodies::Sender;
use super::super::error::Refusal;
use super::super::key::Caller;
use super::headers;
use crate::auth::BearerFault;
use axum::http::request::Parts;
use axum::http::{self, HeaderMap, StatusCode, header};
use myriad_shard::{
    Appender, ChannelOptions, ConnectGrant, ListenRefused, NameError, Namespaces, Settings,
    TokenFault,
};
use myriad_wire::http::credentials;
use std::net::IpAddr;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Create, append.
    Write,
    /// The same, and close it or give it a time to live: without data to come, or at some time, it ends.
    WriteAndEnd,
    /// Delete it, with what it keeps.
    Delete,
    /// Look at it.
    Read,
}

impl Deed {
    /// Of a request; none if no request for a stream has this method.
    pub(super) fn of(head: &Parts) -> Option<Self> {
        // What cannot be read is refused later.
        let closes = || headers::closes(&head.headers).unwrap_or(true);
        let has = |name| head.headers.contains_key(name);
        let expires = has("stream-ttl") || has("stream-expires-at");
        match head.method {
            http::Method::PUT if expires || closes() => Some(Self::WriteAndEnd),
            http::Method::POST if closes() => Some(Self::WriteAndEnd),
            http::Method::PUT | http::Method::POST => Some(Self::Write),
            http::Method::DELETE => Some(Self::Delete),
            http::Method::HEAD | http::Method::GET => Some(Self::Read),
            _ => None,
        }
    }

    /// The API's methods that do the same.
    fn methods(self) -> &'static [Method] {
        match self {
            Self::Write => &[Method::Publish],
            Self::WriteAndEnd => &[Method::Publish, Method::HistoryRemove],
            Self::Delete => &[Method::HistoryRemove],
            Self::Read => &[Method::History],
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteAndEnd)
    }

    fn ends(self) -> bool {
        matches!(self, Self::WriteAndEnd | Self::Delete)
    }
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The application.
    Application,
    /// A client whose token is valid: limits on clients bind it.
    Client,
    /// An anonymous client: the same limits bind it.
    Stranger,
}

impl Writer {
    /// Whether limits on clients bind it.
    pub(super) fn is_client(self) -> bool {
        self != Self::Application
    }

    /// As whom it sends a body, from an address.
    pub(super) fn sender(self, address: IpAddr) -> Sender {
        match self {
            Self::Application => Sender::Application,
            Self::Client => Sender::Client(address),
            Self::Stranger => Sender::Stranger(address),
        }
    }
}

/// Who asks, if he may, and as whom he appends.
pub(super) async fn writer(
    control: &Control,
    head: &Parts,
    channel: &str,
    deed: Deed,
    namespaces: &Namespaces,
) -> Result<(Writer, Appender), Refusal> {
    let keys = control.keys.load();
    let bearer = bearer(&head.headers);
    // A token is looked at even where nobody needs one: whoever sends it wants to know whether it is good.
    if let Some(token) = bearer {
        let grant = grant_of(control, token).await?;
        check_client(control, channel, deed, namespaces, Some(&grant))?;
        let by = grant.user.as_deref().map(Into::into);
        return Ok((
            Writer::Client,
            by.map_or(Appender::Anonymous, Appender::User),
        ));
    }
    let caller = Caller::of(&keys, &head.headers, head.uri.query())?;
    if let Some(caller) = caller {
        for method in deed.methods() {
            caller.check_method(*method)?;
        }
        caller.check_channels(std::iter::once(channel))?;
        let by = Appender::Application(caller.name().into());
        return Ok((Writer::Application, by));
    }
    let settings = control.settings.load();
    if settings.anonymous || settings.client.allow_anonymous_connect_without_token {
        check_client(control, channel, deed, namespaces, None)?;
        return Ok((Writer::Stranger, Appender::Anonymous));
    }
    Err(Refusal::new(
        StatusCode::UNAUTHORIZED,
        "anonymous",
        "streams need a key or a token: send X-API-Key: KEY, Authorization: apikey KEY or Authorization: Bearer TOKEN",
    ))
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    str::from_utf8(credentials(value, "Bearer")?).ok()
}

/// What a token grants.
async fn grant_of(control: &Control, token: &str) -> Result<ConnectGrant, Refusal> {
    let invalid = |fault: TokenFault| {
        control.tokens.note_refused(fault);
        let sentence = format!(
            "the token {}; ask the application for another",
            fault.told()
        );
        Refusal::new(StatusCode::UNAUTHORIZED, "token", sentence)
    };
    let grant = match control.tokens.bearer(token).await {
        Ok(grant) => grant,
        Err(BearerFault::Token(fault)) => return Err(invalid(fault)),
        Err(BearerFault::Unavailable) => {
            return Err(Refusal::busy(
                "the token cannot be verified now; retry after a second",
            ));
        }
    };
    let settings = control.settings.load();
    if grant.user.is_none() && settings.access.disallow_anonymous_connection_tokens {
        let cause = "it names no user (client.disallow_anonymous_connection_tokens)";
        return Err(invalid(TokenFault::Invalid(cause)));
    }
    Ok(grant)
}

/// Whether a client may, as over WebSocket. `grant` is what its token grants; none without a token.
fn check_client(
    control: &Control,
    channel: &str,
    deed: Deed,
    namespaces: &Namespaces,
    grant: Option<&ConnectGrant>,
) -> Result<(), Refusal> {
    let settings = control.settings.load();
    let forbidden = |message| Refusal::new(StatusCode::FORBIDDEN, "permission", message);
    if deed == Deed::Read {
        let checked = match grant {
            Some(grant) => settings.check_listener(channel, grant),
            None => settings.check_stranger(channel),
        };
        return checked.map_err(|refused| forbidden(refused.sentence(channel)));
    }
    let Some(options) = namespaces.options_of(channel) else {
        return Ok(());
    };
    let user = grant.and_then(|grant| grant.user.as_deref());
    let mut granted = grant.iter().flat_map(|grant| grant.subscriptions.iter());
    let is_granted = granted.any(|(granted, _)| **granted == *channel);
    // Other mistakes in names are told where the name is read.
    if let Err(error @ (NameError::Private | NameError::OtherUsers)) =
        settings.check_visible(channel, user.unwrap_or_default(), is_granted)
    {
        return Err(forbidden(ListenRefused::Name(error).sentence(channel)));
    }
    let is_anonymous = user.is_none();
    let lacking = if deed.writes() && !may_write(&settings, options, is_anonymous) {
        lacking_to_write(options, is_anonymous)
    } else if deed.ends() && !may_end(&settings, options, is_anonymous) {
        lacking_to_end(is_anonymous)
    } else {
        return Ok(());
    };
    let who = if is_anonymous {
        "an anonymous client"
    } else {
        "the token's user"
    };
    Err(forbidden(format!(
        "{who} may not do this to channel {channel:?}; {lacking}"
    )))
}

fn may_write(settings: &Settings, options: &ChannelOptions, is_anonymous: bool) -> bool {
    // The application is asked about each publication: nobody asks it here.
    options.proxies.publish.is_none()
        && (settings.client.insecure || options.publish.allows(is_anonymous, false))
}

fn may_end(settings: &Settings, options: &ChannelOptions, is_anonymous: bool) -> bool {
    settings.client.insecure || options.stream_end.allows(is_anonymous, false)
}

fn lacking_to_write(options: &ChannelOptions, is_anonymous: bool) -> &'static str {
    if options.proxies.publish.is_some() {
        "the application decides who publishes there: publish by WebSocket, or with a key of the API"
    } else if is_anonymous {
        "its namespace needs allow_publish_for_client and allow_publish_for_anonymous for that"
    } else {
        "its namespace needs allow_publish_for_client for that"
    }
}

fn lacking_to_end(is_anonymous: bool) -> &'static str {
    if is_anonymous {
        "to close or delete a stream, or to give it a time to live, its namespace needs allow_stream_end_for_client and allow_stream_end_for_anonymous"
    } else {
        "to close or delete a stream, or to give it a time to live, its namespace needs allow_stream_end_for_client"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_shard::Right;

    #[test]
    fn clients_write_where_they_may_publish() {
        let settings = Settings::default();
        let options = |client, anonymous| ChannelOptions {
            publish: Right {
                client,
                subscriber: false,
                anonymous,
            },
            ..ChannelOptions::default()
        };
        for (options, is_anonymous, expected) in [
            (options(false, true), false, false),
            (options(true, false), false, true),
            (options(true, false), true, false),
            (options(true, true), true, true),
        ] {
            assert_eq!(may_write(&settings, &options, is_anonymous), expected);
        }
    }
}

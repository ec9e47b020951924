//! From the claims of a verified token to what it grants.

use super::claims::{Claims, Overrides, Subscription, Switch};
use super::rules::Rules;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use myriad_shard::{
    ConnectGrant, Mesh, OptionOverrides, Payload, SubscribeGrant, TokenFault, TokenIdentity,
};
use myriad_wire::centrifuge::is_json;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a token grants. A client with more refreshes its connection after it, which costs nobody anything.
const GRANT_MAX: Duration = Duration::from_hours(365 * 24);

/// Clients get no JSON that their parsers could fail on, from anybody.
const TOO_DEEP: &str = "info, data or meta is nested deeper than 128 arrays and objects";

/// Whose token it is.
pub(super) struct Bearer {
    pub(super) user: Box<str>,
    pub(super) identity: TokenIdentity,
}

/// What the token of a connect or refresh command grants. `now` is since 1970.
pub(super) fn connection(
    rules: &Rules,
    text: &str,
    now: Duration,
) -> Result<(Bearer, ConnectGrant), TokenFault> {
    let claims = Claims::read(text).map_err(TokenFault::Invalid)?;
    let bearer = rules.check(&claims, text, now)?;
    read_connection(&bearer, &claims, now).map(|grant| (bearer, grant))
}

fn read_connection(
    bearer: &Bearer,
    claims: &Claims<'_>,
    now: Duration,
) -> Result<ConnectGrant, TokenFault> {
    if !claims.channel().map_err(TokenFault::Invalid)?.is_empty() {
        return Err(TokenFault::Invalid(
            "the token has the claim channel: it is a subscription token, not a connection token",
        ));
    }
    let subscriptions: Vec<(Arc<str>, SubscribeGrant)> =
        match claims.subscriptions().map_err(TokenFault::Invalid)? {
            Some(subs) => {
                let mut subscriptions = subs
                    .into_iter()
                    .map(|(channel, options)| Ok((Arc::from(channel), options.grant()?)))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(TokenFault::Invalid)?;
                // The order of a table is random, and clients should be told the same each time.
                subscriptions.sort_by(|(one, _), (other, _)| Arc::cmp(one, other));
                subscriptions
            }
            None => {
                let channels = claims.channels().map_err(TokenFault::Invalid)?;
                let grant = |channel| (Arc::from(channel), SubscribeGrant::default());
                channels.into_iter().map(grant).collect()
            }
        };
    let is_no_name = |channel: &str| !(1..=Mesh::CHANNEL_BYTES_MAX).contains(&channel.len());
    if subscriptions.iter().any(|(channel, _)| is_no_name(channel)) {
        return Err(TokenFault::Invalid(
            "the claim channels or subs has a channel whose name is empty or longer than 255 bytes",
        ));
    }
    let b64info = claims.b64info().map_err(TokenFault::Invalid)?;
    Ok(ConnectGrant {
        user: Some(&*bearer.user)
            .filter(|user| !user.is_empty())
            .map(Arc::from),
        expires_in: expires_in(claims, now)?,
        info: information(claims.info, b64info.as_deref()).map_err(TokenFault::Invalid)?,
        data: None,
        subscriptions,
        meta: claims
            .meta
            .map(one_line)
            .transpose()
            .map_err(TokenFault::Invalid)?,
        token: Some(Arc::new(bearer.identity.clone())),
    })
}

/// What the token of a subscribe or sub_refresh command grants to this client.
pub(super) fn subscription(
    rules: &Rules,
    text: &str,
    channel: &str,
    user: &str,
    client: &str,
    now: Duration,
) -> Result<(Bearer, SubscribeGrant), TokenFault> {
    let claims = Claims::read(text).map_err(TokenFault::Invalid)?;
    let bearer = rules.check(&claims, text, now)?;
    let named = claims.channel().map_err(TokenFault::Invalid)?;
    if named.is_empty() {
        return Err(TokenFault::Invalid(
            "the token has no claim channel: it is no subscription token",
        ));
    }
    if named != channel {
        return Err(TokenFault::OtherChannel);
    }
    if *bearer.user != *user {
        return Err(TokenFault::OtherUser);
    }
    let named = claims.client().map_err(TokenFault::Invalid)?;
    if !named.is_empty() && named != client {
        return Err(TokenFault::OtherClient);
    }
    let options = Subscription {
        info: claims.info,
        b64info: claims.b64info().map_err(TokenFault::Invalid)?,
        data: claims.data,
        b64data: claims.b64data().map_err(TokenFault::Invalid)?,
        r#override: Some(claims.overrides().map_err(TokenFault::Invalid)?),
    };
    let mut grant = options.grant().map_err(TokenFault::Invalid)?;
    grant.expires_in = expires_in(&claims, now)?;
    grant.token = Some(Arc::new(bearer.identity.clone()));
    Ok((bearer, grant))
}

impl Subscription<'_> {
    fn grant(self) -> Result<SubscribeGrant, &'static str> {
        Ok(SubscribeGrant {
            expires_in: None,
            info: information(self.info, self.b64info.as_deref())?,
            data: payload(self.data, self.b64data.as_deref())?,
            overrides: self.r#override.unwrap_or_default().into(),
            token: None,
        })
    }
}

impl From<Overrides> for OptionOverrides {
    fn from(overrides: Overrides) -> Self {
        let value = |switch: Option<Switch>| switch.map(|switch| switch.value);
        Self {
            presence: value(overrides.presence),
            join_leave: value(overrides.join_leave),
            force_push_join_leave: value(overrides.force_push_join_leave),
            force_positioning: value(overrides.force_positioning),
            force_recovery: value(overrides.force_recovery),
            cache_recover: None,
        }
    }
}

/// A grant whose time is over is as good as an expired token: the client should bring another one.
fn expires_in(claims: &Claims<'_>, now: Duration) -> Result<Option<Duration>, TokenFault> {
    let Some(expires) = claims.grant_expires().map_err(TokenFault::Invalid)? else {
        return Ok(None);
    };
    match expires.checked_sub(now) {
        None | Some(Duration::ZERO) => Err(TokenFault::Expired),
        Some(left) => Ok(Some(left.min(GRANT_MAX))),
    }
}

fn information(
    info: Option<&RawValue>,
    b64info: Option<&str>,
) -> Result<Option<Arc<[u8]>>, &'static str> {
    match b64info.filter(|text| !text.is_empty()) {
        Some(text) => {
            let bytes = BASE64_STANDARD.decode(text);
            bytes
                .map(|bytes| Some(bytes.into()))
                .map_err(|_| "b64info is not standard base64")
        }
        None => info.map(one_line).transpose(),
    }
}

fn payload(
    data: Option<&RawValue>,
    b64data: Option<&str>,
) -> Result<Option<Payload>, &'static str> {
    let Some(text) = b64data.filter(|text| !text.is_empty()) else {
        return match data.map(RawValue::get) {
            Some(data) if !is_json(data.as_bytes()) => Err(TOO_DEEP),
            data => Ok(data.map(|data| Payload::Json(data.into()))),
        };
    };
    let bytes = BASE64_STANDARD
        .decode(text)
        .map_err(|_| "b64data is not standard base64")?;
    // Clients that read JSON can read bytes that happen to be JSON.
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) if is_json(text.as_bytes()) => Payload::Json(text.into()),
        Ok(text) => Payload::Binary(text.into_bytes().into()),
        Err(error) => Payload::Binary(error.into_bytes().into()),
    }))
}

/// JSON without line breaks, which separate the messages of the protocol. In JSON they can only stand between values.
fn one_line(raw: &RawValue) -> Result<Arc<[u8]>, &'static str> {
    let text = raw.get();
    if !is_json(text.as_bytes()) {
        return Err(TOO_DEEP);
    }
    Ok(if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], " ").into_bytes().into()
    } else {
        text.as_bytes().into()
    })
}

//! Results of answers: what the application grants, call by call.

use super::answer::{AnswerFault, Object, Said, read, read_answer, read_result_only};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_shard::{
    ConnectGrant, ErrorCode, Namespaces, OptionOverrides, Payload, PublishGrant, RefreshGrant,
    Refreshed, SubscribeGrant,
};
use myriad_wire::centrifuge::{is_json, is_nested_too_deep, json_without_line_breaks};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Server-side subscriptions of one answer. No connection may have as many.
const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Tags of a publication.
const TAGS_MAX: usize = 64;
/// Bytes of an idempotency key, and of a version's epoch.
const KEY_BYTES_MAX: usize = 255;
/// Bytes of a user's id. The API takes no longer ones.
const USER_BYTES_MAX: usize = 255;
/// The longest time until an expiry. A later one is taken as this.
const EXPIRY_MAX: Duration = Duration::from_hours(365 * 24);

/// What answers are read against.
#[derive(Clone, Copy)]
pub(super) struct Against<'a> {
    /// Seconds since 1970.
    pub(super) now_s: u64,
    /// The namespaces that channels may have.
    pub(super) namespaces: &'a Namespaces,
}

/// What is granted has expired already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past;

impl From<Past> for ErrorCode {
    fn from(Past: Past) -> Self {
        Self::Expired
    }
}

impl Against<'_> {
    /// The time until an expiry. Neither 0 nor nothing is one.
    fn time_left(self, expire_at: Option<u64>) -> Result<Option<Duration>, Past> {
        match expire_at {
            None | Some(0) => Ok(None),
            Some(at) if at <= self.now_s => Err(Past),
            Some(at) => Ok(Some(Duration::from_secs(at - self.now_s).min(EXPIRY_MAX))),
        }
    }

    /// The rules of names bind clients. The application may name every channel of a namespace that there is.
    fn check_channel(self, channel: &str) -> Result<(), String> {
        if channel.is_empty() {
            Err("a channel has no name".into())
        } else if channel.len() > self.namespaces.name_bytes_max() {
            let max = self.namespaces.name_bytes_max();
            Err(format!("a channel's name has more than {max} bytes"))
        } else if self.namespaces.options_of(channel).is_none() {
            Err(format!(
                "the namespace of channel {channel:?} is not configured"
            ))
        } else {
            Ok(())
        }
    }
}

/// Data in its two forms, of which base64 is taken where both are there.
#[derive(Clone, Copy)]
struct Forms<'a> {
    name: &'static str,
    json: Option<&'a RawValue>,
    base64_name: &'static str,
    base64: Option<&'a str>,
}

impl<'a> Forms<'a> {
    fn data(json: Option<&'a RawValue>, base64: Option<&'a String>) -> Self {
        Self {
            name: "data",
            json,
            base64_name: "b64data",
            base64: base64.map(|text| &**text).filter(|text| !text.is_empty()),
        }
    }

    fn info(json: Option<&'a RawValue>, base64: Option<&'a String>) -> Self {
        Self {
            name: "info",
            base64_name: "b64info",
            ..Self::data(json, base64)
        }
    }

    fn meta(json: Option<&'a RawValue>) -> Self {
        Self {
            name: "meta",
            ..Self::data(json, None)
        }
    }

    fn bytes(self) -> Result<Option<Vec<u8>>, AnswerFault> {
        let decoded = self.base64.map(|text| STANDARD.decode(text));
        decoded
            .transpose()
            .map_err(|error| AnswerFault::new(self.base64_name, format!("is not base64: {error}")))
    }

    fn json(self) -> Result<Option<&'a str>, AnswerFault> {
        match self.json.map(RawValue::get) {
            Some(json) if is_nested_too_deep(json) => Err(AnswerFault::new(
                self.name,
                "is nested deeper than 128 levels",
            )),
            json => Ok(json),
        }
    }

    fn payload(self) -> Result<Option<Payload>, AnswerFault> {
        match self.bytes()? {
            // Bytes that are JSON can be read by clients of both protocols.
            Some(bytes) if is_json(&bytes) => Ok(String::from_utf8(bytes)
                .ok()
                .map(|text| Payload::Json(text.into()))),
            Some(bytes) => Ok(Some(Payload::Binary(bytes.into()))),
            None => Ok(self.json()?.map(|json| Payload::Json(json.into()))),
        }
    }

    /// JSON without line breaks, because information is told within messages that these separate.
    fn shared(self) -> Result<Option<Arc<[u8]>>, AnswerFault> {
        if let Some(bytes) = self.bytes()? {
            return Ok(Some(bytes.into()));
        }
        let json = self.json()?.map(json_without_line_breaks);
        Ok(json.map(|json| json.as_bytes().into()))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConnectFields<'a> {
    user: Option<String>,
    expire_at: Option<u64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    channels: Option<Vec<String>>,
    #[serde(borrow)]
    subs: Option<BTreeMap<String, Object<SubscribeFields<'a>>>>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

/// Of a subscribe, and of an entry of a connect's `subs`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SubscribeFields<'a> {
    expire_at: Option<u64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    #[serde(rename = "override")]
    overrides: Option<Object<OverrideFields>>,
    cache_recover: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OverrideFields {
    presence: Option<Object<Override>>,
    join_leave: Option<Object<Override>>,
    force_push_join_leave: Option<Object<Override>>,
    force_positioning: Option<Object<Override>>,
    force_recovery: Option<Object<Override>>,
}

#[derive(Deserialize)]
struct Override {
    value: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RefreshFields<'a> {
    expired: Option<bool>,
    expire_at: Option<u64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PublishFields<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    skip_history: Option<bool>,
    tags: Option<BTreeMap<Box<str>, Box<str>>>,
    idempotency_key: Option<Box<str>>,
    delta: Option<bool>,
    version: Option<u64>,
    version_epoch: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RpcFields<'a> {
    #[serde(borrow, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
}

/// `null` is a value that a method may return. Elsewhere it is no value.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The answer to a connect.
pub(super) fn read_connect(
    body: &[u8],
    against: Against<'_>,
) -> Result<Said<Result<ConnectGrant, Past>>, AnswerFault> {
    read_answer(body, |result| {
        let fields: ConnectFields<'_> = read(result)?;
        let info = Forms::info(fields.info, fields.b64info.as_ref()).shared()?;
        let data = Forms::data(fields.data, fields.b64data.as_ref()).payload()?;
        let meta = Forms::meta(fields.meta).shared()?;
        let subscriptions = subscriptions(
            fields.subs.unwrap_or_default(),
            fields.channels.unwrap_or_default(),
            against,
        )?;
        let user = fields.user.filter(|user| !user.is_empty());
        if user
            .as_ref()
            .is_some_and(|user| user.len() > USER_BYTES_MAX)
        {
            let cause = format!("has more than {USER_BYTES_MAX} bytes");
            return Err(AnswerFault::new("user", cause));
        }
        let expires_in = against.time_left(fields.expire_at);
        Ok(expires_in.and_then(|expires_in| {
            Ok(ConnectGrant {
                user: user.map(Into::into),
                expires_in,
                info,
                data,
                subscriptions: subscriptions?,
                meta,
                token: None,
            })
        }))
    })
}

type Subscriptions = Vec<(Arc<str>, SubscribeGrant)>;

/// The subscriptions of a connect: those with options, and those that are only named.
fn subscriptions(
    subs: BTreeMap<String, Object<SubscribeFields<'_>>>,
    channels: Vec<String>,
    against: Against<'_>,
) -> Result<Result<Subscriptions, Past>, AnswerFault> {
    for (field, count) in [("subs", subs.len()), ("channels", channels.len())] {
        if count > SUBSCRIPTIONS_MAX {
            let cause = format!("has {count} channels; at most {SUBSCRIPTIONS_MAX} are read");
            return Err(AnswerFault::new(field, cause));
        }
    }
    let check = |field: &str, channel: &str| {
        let checked = against.check_channel(channel);
        checked.map_err(|cause| AnswerFault::new(field, cause))
    };
    let mut named = BTreeSet::new();
    for channel in channels {
        check("channels", &channel)?;
        if !subs.contains_key(&channel) {
            named.insert(channel);
        }
    }
    let mut granted = Ok(Vec::with_capacity(subs.len() + named.len()));
    for (channel, Object(fields)) in subs {
        check("subs", &channel)?;
        let grant = subscribe_grant(fields, against);
        let grant = grant.map_err(|fault| fault.below(&channel).below("subs"))?;
        match (grant, &mut granted) {
            (Ok(grant), Ok(granted)) => granted.push((channel.into(), grant)),
            (Err(past), _) => granted = Err(past),
            (Ok(_), Err(_)) => {}
        }
    }
    if let Ok(granted) = &mut granted {
        let named = named.into_iter();
        granted.extend(named.map(|channel| (channel.into(), SubscribeGrant::default())));
    }
    Ok(granted)
}

fn subscribe_grant(
    fields: SubscribeFields<'_>,
    against: Against<'_>,
) -> Result<Result<SubscribeGrant, Past>, AnswerFault> {
    let info = Forms::info(fields.info, fields.b64info.as_ref()).shared()?;
    let data = Forms::data(fields.data, fields.b64data.as_ref()).payload()?;
    let overrides = fields.overrides.map(|Object(overrides)| overrides);
    let overrides = overrides.unwrap_or_default();
    let value = |wish: Option<Object<Override>>| wish.map(|Object(wish)| wish.value);
    let expires_in = against.time_left(fields.expire_at);
    Ok(expires_in.map(|expires_in| SubscribeGrant {
        expires_in,
        info,
        data,
        overrides: OptionOverrides {
            presence: value(overrides.presence),
            join_leave: value(overrides.join_leave),
            force_push_join_leave: value(overrides.force_push_join_leave),
            force_positioning: value(overrides.force_positioning),
            force_recovery: value(overrides.force_recovery),
            cache_recover: fields.cache_recover,
        },
        token: None,
    }))
}

/// The answer to a subscribe.
pub(super) fn read_subscribe(
    body: &[u8],
    against: Against<'_>,
) -> Result<Said<Result<SubscribeGrant, Past>>, AnswerFault> {
    read_answer(body, |result| subscribe_grant(read(result)?, against))
}

/// The answer to a refresh or a sub_refresh. Without a result it is over.
pub(super) fn read_refresh(body: &[u8], against: Against<'_>) -> Result<RefreshGrant, AnswerFault> {
    let grant = read_result_only(body, |result| {
        let fields: RefreshFields<'_> = read(result)?;
        let refreshed = match against.time_left(fields.expire_at) {
            Ok(left) if !fields.expired.unwrap_or(false) => Refreshed::For(left),
            Ok(_) | Err(Past) => Refreshed::Expired,
        };
        Ok(RefreshGrant {
            refreshed,
            info: Forms::info(fields.info, fields.b64info.as_ref()).shared()?,
            meta: Forms::meta(fields.meta).shared()?,
        })
    })?;
    Ok(grant.unwrap_or(RefreshGrant {
        refreshed: Refreshed::Expired,
        info: None,
        meta: None,
    }))
}

/// The answer to a publish.
pub(super) fn read_publish(body: &[u8]) -> Result<Said<PublishGrant>, AnswerFault> {
    read_answer(body, |result| {
        let fields: PublishFields<'_> = read(result)?;
        let tags = fields.tags.unwrap_or_default();
        if tags.len() > TAGS_MAX {
            let cause = format!("has {} tags; at most {TAGS_MAX} are read", tags.len());
            return Err(AnswerFault::new("tags", cause));
        }
        let key = fields.idempotency_key.filter(|key| !key.is_empty());
        let version_epoch = fields.version_epoch.unwrap_or_default();
        for (field, text) in [
            ("idempotency_key", key.as_deref().unwrap_or_default()),
            ("version_epoch", &*version_epoch),
        ] {
            if text.len() > KEY_BYTES_MAX {
                let cause = format!("has more than {KEY_BYTES_MAX} bytes");
                return Err(AnswerFault::new(field, cause));
            }
        }
        Ok(PublishGrant {
            data: Forms::data(fields.data, fields.b64data.as_ref()).payload()?,
            skip_history: fields.skip_history.unwrap_or(false),
            tags: tags.into_iter().collect(),
            idempotency_key: key,
            delta: fields.delta.unwrap_or(false),
            version: fields.version.unwrap_or(0),
            version_epoch,
        })
    })
}

/// The answer to an RPC; none where the method returns nothing.
pub(super) fn read_rpc(body: &[u8]) -> Result<Said<Option<Payload>>, AnswerFault> {
    read_answer(body, |result| {
        let fields: RpcFields<'_> = read(result)?;
        Forms::data(fields.data, fields.b64data.as_ref()).payload()
    })
}

//! The fields that publications of every method have, and what they mean.

use super::super::Control;
use super::fault::{Code, Fault};
use crate::debug_log::PublishLog;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use myriad_shard::{
    ChannelOptions, Content, DataFormat, Mesh, Namespaces, Payload, PublishOptions,
};
use myriad_wire::centrifuge::is_nested_too_deep;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tags of a publication.
pub(super) const TAGS_MAX: usize = 64;
/// Bytes of an idempotency key, and of the epoch of a version.
pub(super) const KEY_BYTES_MAX: usize = 255;

/// Standard alphabet; padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Defines a request with the fields of a publication and its own. Of a flattened structure serde would not know the fields.
macro_rules! publication_request {
    ($(#[$meta:meta])* $name:ident<$life:lifetime> { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, serde::Deserialize)]
                pub(crate) struct $name<$life> {
            $($(#[$field_meta])* $field: $type,)*
            #[serde(borrow, default, deserialize_with = "super::publication::present")]
            data: Option<&$life serde_json::value::RawValue>,
            #[serde(borrow, default)]
            b64data: Option<std::borrow::Cow<$life, str>>,
            #[serde(borrow, default)]
            tags: Option<std::collections::BTreeMap<std::borrow::Cow<$life, str>, std::borrow::Cow<$life, str>>>,
            #[serde(borrow, default)]
            idempotency_key: Option<std::borrow::Cow<$life, str>>,
            #[serde(default)]
            skip_history: Option<bool>,
            #[serde(default)]
            delta: Option<bool>,
            #[serde(default)]
            version: Option<u64>,
            #[serde(borrow, default)]
            version_epoch: Option<std::borrow::Cow<$life, str>>,
        }

        impl<$life> $name<$life> {
            /// What it wants published, apart from where.
            fn fields(&mut self) -> super::publication::Fields<$life> {
                super::publication::Fields {
                    data: self.data,
                    b64data: self.b64data.take(),
                    tags: self.tags.take().unwrap_or_default(),
                    idempotency_key: self.idempotency_key.take().unwrap_or_default(),
                    skip_history: self.skip_history.unwrap_or_default(),
                    delta: self.delta.unwrap_or_default(),
                    version: self.version.unwrap_or_default(),
                    version_epoch: self.version_epoch.take().unwrap_or_default(),
                }
            }
        }
    };
}
pub(super) use publication_request;

/// A field that is there has a value, `null` as any other: plain `Option` would take `"data": null` for no data.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The fields of a publication, as sent. A field that is `null` counts as left out, except for `data`.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) data: Option<&'a RawValue>,
    pub(super) b64data: Option<Cow<'a, str>>,
    pub(super) tags: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    pub(super) idempotency_key: Cow<'a, str>,
    pub(super) skip_history: bool,
    pub(super) delta: bool,
    pub(super) version: u64,
    pub(super) version_epoch: Cow<'a, str>,
}

/// What is to be published, in one channel or in many.
#[derive(Debug)]
pub(in super::super) struct Publication {
    pub(in super::super) content: Arc<Content>,
    pub(in super::super) options: PublishOptions,
}

impl TryFrom<Fields<'_>> for Publication {
    type Error = Fault;

    fn try_from(fields: Fields<'_>) -> Result<Self, Fault> {
        let payload = match (fields.data, fields.b64data) {
            // Clients that must send a "data" send both.
            (_, Some(encoded)) => binary(&encoded)?,
            (Some(data), None) => json(data)?,
            (None, None) => {
                return Err(Fault::bad(r#"field "data" or "b64data" is missing"#));
            }
        };
        if fields.tags.len() > TAGS_MAX {
            return Err(Fault::bad(format!(
                "field \"tags\" has {} tags; send at most {TAGS_MAX}",
                fields.tags.len()
            )));
        }
        for (name, text) in [
            ("idempotency_key", &fields.idempotency_key),
            ("version_epoch", &fields.version_epoch),
        ] {
            if text.len() > KEY_BYTES_MAX {
                return Err(Fault::bad(format!(
                    "field \"{name}\" has {} bytes; send at most {KEY_BYTES_MAX}",
                    text.len()
                )));
            }
        }
        let (key, tags) = (fields.idempotency_key, fields.tags.into_iter());
        let content = Content {
            tags: tags
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..Content::new(payload)
        };
        Ok(Self {
            content: Arc::new(content),
            options: PublishOptions {
                idempotency_key: (!key.is_empty()).then(|| key.into()),
                delta: fields.delta,
                skip_history: fields.skip_history,
                version: fields.version,
                version_epoch: fields.version_epoch.into(),
            },
        })
    }
}

impl Publication {
    /// Bytes for the debug log.
    pub(super) fn bytes_shown(&self) -> usize {
        PublishLog::bytes_shown(&self.content.payload)
    }

    /// Checks that a channel takes it. Returns whether the channel has a history.
    pub(super) fn check(&self, control: &Control, channel: &str) -> Result<bool, Fault> {
        let namespaces = control.namespaces.load();
        let options = options_of(&namespaces, channel)?;
        let tag_bytes = self.content.tag_bytes();
        let tag_bytes_max = control.settings.load().client.tags_bytes_limit;
        if tag_bytes > tag_bytes_max as usize {
            return Err(Fault::bad(format!(
                "field \"tags\" has {tag_bytes} bytes of names and values; send at most {tag_bytes_max} (client.tags_bytes_limit)"
            )));
        }
        let format = options.data_format;
        if format.takes(&self.content.payload) {
            return Ok(options.has_history());
        }
        let (written, advice) = match format {
            DataFormat::NonEmpty | DataFormat::Binary => ("", "send at least one byte"),
            DataFormat::Json => ("json", "send JSON as \"data\", not \"b64data\""),
            DataFormat::JsonObject => ("json_object", "send an object as \"data\""),
        };
        Err(Fault::bad(format!(
            "channel {channel:?} does not take this data (publication_data_format = {written:?}); {advice}"
        )))
    }
}

/// A channel's options, if there can be a channel of this name.
pub(crate) fn options_of<'n>(
    namespaces: &'n Namespaces,
    channel: &str,
) -> Result<&'n Arc<ChannelOptions>, Fault> {
    if channel.is_empty() || channel.len() > Mesh::CHANNEL_BYTES_MAX {
        return Err(Fault::channel_length(channel));
    }
    namespaces.options_of(channel).ok_or_else(|| {
        let namespace = Namespaces::name_of(channel).unwrap_or_default();
        Fault::new(
            Code::UnknownChannel,
            format!(
                "channel {channel:?} is of the namespace {namespace:?}, which is not configured; add it to [[channel.namespaces]] in the config file, or use a name without a colon"
            ),
        )
    })
}

/// JSON is published as it was sent. `raw` clients get the content of a string, which must be text then.
pub(super) fn json(data: &RawValue) -> Result<Payload, Fault> {
    if data.get().starts_with('"') {
        // A string can be valid JSON and no text: half of a surrogate pair (RFC 8259 section 8.2).
        serde_json::from_str::<String>(data.get()).map_err(|error| {
            Fault::bad(format!(
                "field \"data\": the string is not valid Unicode: {error}"
            ))
        })?;
    }
    if is_nested_too_deep(data.get()) {
        return Err(Fault::bad(
            r#"field "data" is nested deeper than 128 arrays and objects"#,
        ));
    }
    Ok(Payload::Json(data.get().into()))
}

/// Decodes a field of base64.
pub(super) fn binary(encoded: &str) -> Result<Payload, Fault> {
    let bytes = BASE64.decode(encoded).map_err(|error| {
        Fault::bad(format!("field \"b64data\" is not standard base64: {error}"))
    })?;
    Ok(Payload::of_bytes(bytes))
}

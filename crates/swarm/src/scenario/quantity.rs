//! Values of a scenario that are written as the command line's are: `10k`, `25s`, `5k/s`, a URL, a condition.

use crate::config::{CrowdSize, Endpoint, Think};
use crate::engine::sources::SourceRanges;
use crate::measure::threshold::Threshold;
use crate::target::Target;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// How a value is read from its text.
trait Written: Sized {
    /// What the value is, for whoever wrote something else.
    const WANTED: &'static str;

    fn read(text: &str) -> Result<Self, String>;
}

/// Takes a text, or a number as its text.
struct Reading<T>(PhantomData<T>);

impl<T: Written> Visitor<'_> for Reading<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WANTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! written {
    ($name:ident($inner:ty), $types:tt, $wanted:literal, $example:literal, $read:expr) => {
        #[doc = concat!("Written as ", $wanted, ".")]
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $inner);

        impl Written for $name {
            const WANTED: &'static str = $wanted;

            fn read(text: &str) -> Result<Self, String> {
                $read(text).map(Self).map_err(|error| error.to_string())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Reading(PhantomData))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": $types, "examples": [$example] })
            }
        }
    };
}

written!(
    Count(u64),
    ["string", "integer"],
    "a count such as 250, 50k or 1m",
    "10k",
    myriad_units::parse::count
);
written!(
    Time(Duration),
    "string",
    "a duration such as 250ms, 10s, 5m or 1h30m",
    "30s",
    myriad_units::parse::duration
);
written!(
    Size(u64),
    ["string", "integer"],
    "a size such as 32, 16KiB or 1MiB",
    "1KiB",
    myriad_units::parse::bytes
);
impl Size {
    /// Of something in memory. What does not fit there is refused by the checks of a run, as is all that is too large.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

written!(
    Rate(f64),
    ["string", "number"],
    "a rate such as 500, 50k or 50k/s",
    "5k/s",
    myriad_units::parse::rate
);
written!(
    ShareRate(f64),
    "string",
    "a share and a time, such as 1%/m",
    "1%/m",
    myriad_units::parse::share_rate
);
written!(
    Share(f64),
    "string",
    "a share such as 50%",
    "50%",
    myriad_units::parse::share
);
written!(
    StageSize(CrowdSize),
    ["string", "integer"],
    "a count such as 10k, or a share such as 50%",
    "50%",
    CrowdSize::parse
);
written!(
    ThinkTime(Think),
    "string",
    "a time such as 2s, a range such as 1s..5s, or exp(2s)",
    "1s..5s",
    Think::parse
);
written!(
    TimeRange((Duration, Duration)),
    "string",
    "a time or a range of times, such as 60s or 30s..90s",
    "30s..90s",
    time_range
);
written!(
    TargetUrl(Target),
    "string",
    "a URL such as ws://127.0.0.1:8000/raw?channel=news",
    "ws://127.0.0.1:8000/raw?channel=news",
    Target::parse
);
written!(
    EndpointUrl(Endpoint),
    "string",
    "a URL such as http://127.0.0.1:8000/api/publish",
    "http://127.0.0.1:8000/api/publish",
    Endpoint::parse
);
written!(
    Sources(SourceRanges),
    "string",
    "addresses such as 127.0.0.2-127.0.0.9",
    "127.0.0.2-127.0.0.9",
    SourceRanges::parse
);
written!(
    Condition(Threshold),
    "string",
    "a condition such as reach>=100%",
    "reach>=100%",
    Threshold::parse
);
written!(
    Position((String, u64)),
    "string",
    "a position such as kXb2fQ9a:50",
    "kXb2fQ9a:50",
    position
);

/// The shorter and the longer of two times, or one time twice: `60s`, `30s..90s`.
///
/// # Errors
/// One of them is no time, or the longer one comes first.
pub fn time_range(text: &str) -> Result<(Duration, Duration), String> {
    let time =
        |text: &str| myriad_units::parse::duration(text.trim()).map_err(|error| error.to_string());
    let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
    let (shortest, longest) = (time(shortest)?, time(longest)?);
    if shortest > longest {
        return Err("the shorter time comes first, as in 30s..90s".to_owned());
    }
    Ok((shortest, longest))
}

/// The epoch and the offset of a position in a channel: `kXb2fQ9a:50`.
///
/// # Errors
/// The colon or the epoch is missing, or the offset is no number.
pub fn position(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once(':').filter(|(epoch, _)| !epoch.is_empty());
    let (epoch, offset) = parts
        .ok_or_else(|| "a position has the form EPOCH:OFFSET, such as kXb2fQ9a:50".to_owned())?;
    let offset = offset
        .parse()
        .map_err(|_| format!("the offset '{offset}' is no number from 0 on"))?;
    Ok((epoch.to_owned(), offset))
}

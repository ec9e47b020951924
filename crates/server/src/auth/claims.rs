//! What a token says, once its signature is verified.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

/// Times after the year 9999 are mistakes, such as milliseconds instead of seconds.
const SECONDS_MAX: f64 = 253_402_300_799.0;

/// The claims that we know, as text. A known name that is there twice is refused: whoever reads the first one and whoever reads
/// the last one would believe in different tokens.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claims<'a> {
    #[serde(borrow)]
    sub: Option<&'a RawValue>,
    #[serde(borrow)]
    exp: Option<&'a RawValue>,
    #[serde(borrow)]
    nbf: Option<&'a RawValue>,
    #[serde(borrow)]
    iat: Option<&'a RawValue>,
    #[serde(borrow)]
    jti: Option<&'a RawValue>,
    #[serde(borrow)]
    aud: Option<&'a RawValue>,
    #[serde(borrow)]
    iss: Option<&'a RawValue>,
    #[serde(borrow)]
    expire_at: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) info: Option<&'a RawValue>,
    #[serde(borrow)]
    b64info: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    b64data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) meta: Option<&'a RawValue>,
    #[serde(borrow)]
    channels: Option<&'a RawValue>,
    #[serde(borrow)]
    subs: Option<&'a RawValue>,
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    client: Option<&'a RawValue>,
    #[serde(borrow)]
    r#override: Option<&'a RawValue>,
}

/// One of the claim `subs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Subscription<'a> {
    #[serde(borrow)]
    pub(super) info: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) b64info: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) b64data: Option<Cow<'a, str>>,
    pub(super) r#override: Option<Overrides>,
}

/// The claim `override`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Overrides {
    pub(super) presence: Option<Switch>,
    pub(super) join_leave: Option<Switch>,
    pub(super) force_push_join_leave: Option<Switch>,
    pub(super) force_positioning: Option<Switch>,
    pub(super) force_recovery: Option<Switch>,
}

/// An option with a value.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Switch {
    pub(super) value: bool,
}

type Cause = &'static str;

impl<'a> Claims<'a> {
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn read(text: &'a str) -> Result<Self, Cause> {
        // A tuple is read from a list too, a structure as well: only an object is meant.
        if !text.trim_start().starts_with('{') {
            return Err("the claims are not a JSON object");
        }
        serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                "a claim is written twice"
            } else {
                "the claims are not valid JSON"
            }
        })
    }

    /// The claim `sub`; empty if it is absent.
    pub(super) fn subject(&self) -> Result<Cow<'a, str>, Cause> {
        text(self.sub, "the claim sub is not text").map(Option::unwrap_or_default)
    }

    /// When the token's time is over.
    pub(super) fn expires(&self) -> Result<Option<Duration>, Cause> {
        time(
            self.exp,
            "the claim exp is not a time in seconds since 1970",
        )
    }

    /// When the token's time begins.
    pub(super) fn begins(&self) -> Result<Option<Duration>, Cause> {
        time(
            self.nbf,
            "the claim nbf is not a time in seconds since 1970",
        )
    }

    pub(super) fn issued(&self) -> Result<Option<Duration>, Cause> {
        time(
            self.iat,
            "the claim iat is not a time in seconds since 1970",
        )
    }

    pub(super) fn id(&self) -> Result<Option<Cow<'a, str>>, Cause> {
        text(self.jti, "the claim jti is not text")
    }

    pub(super) fn issuer(&self) -> Result<Option<Cow<'a, str>>, Cause> {
        text(self.iss, "the claim iss is not text")
    }

    /// One audience or several.
    pub(super) fn audiences(&self) -> Result<Vec<Cow<'a, str>>, Cause> {
        const CAUSE: Cause = "the claim aud is neither text nor a list of texts";
        let Some(raw) = self.aud else {
            return Ok(Vec::new());
        };
        if raw.get().starts_with('[') {
            let list: Vec<Text<'a>> = parsed(raw).ok_or(CAUSE)?;
            return Ok(list.into_iter().map(|text| text.0).collect());
        }
        text(Some(raw), CAUSE).map(|one| one.into_iter().collect())
    }

    /// The expiry of what is granted: what `expire_at` says, or else `exp`.
    pub(super) fn grant_expires(&self) -> Result<Option<Duration>, Cause> {
        const CAUSE: Cause = "the claim expire_at is not a time in seconds since 1970";
        match time(self.expire_at, CAUSE)? {
            Some(Duration::ZERO) => Ok(None),
            Some(time) => Ok(Some(time)),
            None => self.expires(),
        }
    }

    pub(super) fn b64info(&self) -> Result<Option<Cow<'a, str>>, Cause> {
        text(self.b64info, "the claim b64info is not text")
    }

    pub(super) fn b64data(&self) -> Result<Option<Cow<'a, str>>, Cause> {
        text(self.b64data, "the claim b64data is not text")
    }

    /// The channel of a subscription token; empty if it is absent.
    pub(super) fn channel(&self) -> Result<Cow<'a, str>, Cause> {
        text(self.channel, "the claim channel is not text").map(Option::unwrap_or_default)
    }

    /// The connection of a subscription token; empty if it is absent.
    pub(super) fn client(&self) -> Result<Cow<'a, str>, Cause> {
        text(self.client, "the claim client is not text").map(Option::unwrap_or_default)
    }

    pub(super) fn overrides(&self) -> Result<Overrides, Cause> {
        const CAUSE: Cause =
            r#"the claim override is not an object such as {"presence": {"value": true}}"#;
        self.r#override
            .map_or(Ok(Overrides::default()), |raw| parsed(raw).ok_or(CAUSE))
    }

    /// Server-side subscriptions; none if the claim `subs` is absent.
    pub(super) fn subscriptions(
        &self,
    ) -> Result<Option<HashMap<Cow<'a, str>, Subscription<'a>>>, Cause> {
        const CAUSE: Cause = "the claim subs is not an object of channels with options";
        let Some(raw) = self.subs else {
            return Ok(None);
        };
        let Once(subscriptions) = parsed(raw).ok_or(CAUSE)?;
        Ok(Some(subscriptions))
    }

    /// Server-side channels.
    pub(super) fn channels(&self) -> Result<Vec<Cow<'a, str>>, Cause> {
        const CAUSE: Cause = "the claim channels is not a list of texts";
        let list: Vec<Text<'a>> = self
            .channels
            .map_or(Ok(Vec::new()), |raw| parsed(raw).ok_or(CAUSE))?;
        Ok(list.into_iter().map(|text| text.0).collect())
    }
}

/// A text that is borrowed where it has no escapes; a list of `Cow`s would always copy.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn parsed<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn text<'a>(raw: Option<&'a RawValue>, cause: Cause) -> Result<Option<Cow<'a, str>>, Cause> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    let text: Text<'a> = parsed(raw).ok_or(cause)?;
    Ok(Some(text.0))
}

/// Fractions are allowed: RFC 7519 has them, and some libraries write them.
fn time(raw: Option<&RawValue>, cause: Cause) -> Result<Option<Duration>, Cause> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    let seconds: f64 = parsed(raw).ok_or(cause)?;
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        Ok(Some(Duration::from_secs_f64(seconds)))
    } else {
        Err(cause)
    }
}

/// An object whose names are there once each.
struct Once<'a, T>(HashMap<Cow<'a, str>, T>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Once<'a, T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<'a, T>(std::marker::PhantomData<(&'a (), T)>);

        impl<'de: 'a, 'a, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<'a, T> {
            type Value = Once<'a, T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut found = HashMap::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    if found.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a name is there twice"));
                    }
                }
                Ok(Once(found))
            }
        }

        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

/// A claim with a name of the operator's, as text: a string, or a whole number as it is written.
pub(super) fn custom(claims: &str, name: &str) -> Result<Option<String>, Cause> {
    const CAUSE: Cause = "the claim of user_id_claim is neither text nor a whole number";
    let Once(claims): Once<'_, &RawValue> =
        serde_json::from_str(claims).map_err(|_| "a claim is written twice")?;
    let Some(raw) = claims.get(name).map(|raw| raw.get()) else {
        return Ok(None);
    };
    if raw == "null" {
        return Ok(None);
    }
    if raw.parse::<i64>().is_ok() {
        return Ok(Some(raw.to_owned()));
    }
    let text: String = serde_json::from_str(raw).map_err(|_| CAUSE)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_the_wrong_type_are_named() {
        for (claims, cause) in [
            ("[]", "not a JSON object"),
            ("", "not a JSON object"),
            ("{", "not valid JSON"),
            (r#"{"sub":"a"} x"#, "not valid JSON"),
            (r#"{"sub":"a","sub":"b"}"#, "written twice"),
            (r#"{"sub":42}"#, "sub"),
            (r#"{"sub":["42"]}"#, "sub"),
            (r#"{"exp":"1"}"#, "exp"),
            (r#"{"exp":-1}"#, "exp"),
            (r#"{"exp":1e400}"#, "exp"),
            (r#"{"exp":1e18}"#, "exp"),
            (r#"{"exp":[1]}"#, "exp"),
            (r#"{"exp":true}"#, "exp"),
            (r#"{"nbf":{}}"#, "nbf"),
            (r#"{"iat":-5}"#, "iat"),
            (r#"{"jti":1}"#, "jti"),
            (r#"{"iss":{}}"#, "iss"),
            (r#"{"aud":1}"#, "aud"),
            (r#"{"aud":["a",1]}"#, "aud"),
            (r#"{"expire_at":"never"}"#, "expire_at"),
            (r#"{"b64info":1}"#, "b64info"),
            (r#"{"b64data":[]}"#, "b64data"),
            (r#"{"channel":1}"#, "channel"),
            (r#"{"channels":"a"}"#, "channels"),
            (r#"{"channels":[1]}"#, "channels"),
            (r#"{"subs":[]}"#, "subs"),
            (r#"{"subs":{"a":1}}"#, "subs"),
            (r#"{"subs":{"a":{},"a":{}}}"#, "subs"),
            (r#"{"client":1}"#, "client"),
            (r#"{"override":{"presence":true}}"#, "override"),
        ] {
            let found = everything(claims).expect_err(claims);
            assert!(found.contains(cause), "{claims}: {found}");
        }
    }

    fn everything(text: &str) -> Result<(), Cause> {
        let claims = Claims::read(text)?;
        claims.subject()?;
        claims.expires()?;
        claims.begins()?;
        claims.issued()?;
        claims.id()?;
        claims.issuer()?;
        claims.audiences()?;
        claims.grant_expires()?;
        claims.b64info()?;
        claims.b64data()?;
        claims.channel()?;
        claims.client()?;
        claims.overrides()?;
        claims.subscriptions()?;
        claims.channels()?;
        Ok(())
    }

    #[test]
    fn absent_claims_and_null_are_the_same() {
        for text in [
            "{}",
            r#"{"sub":null,"exp":null,"aud":null,"subs":null,"override":null,"channels":null}"#,
            r#"{"unknown":1,"unknown":2}"#,
        ] {
            everything(text).expect(text);
            let claims = Claims::read(text).unwrap();
            assert_eq!(claims.subject().unwrap(), "");
            assert_eq!(claims.expires().unwrap(), None);
            assert!(claims.subscriptions().unwrap().is_none());
        }
    }

    #[test]
    fn an_expiry_of_its_own_stands_over_the_tokens() {
        let expiry = |text| Claims::read(text).unwrap().grant_expires().unwrap();
        assert_eq!(expiry(r#"{"exp":5}"#), Some(Duration::from_secs(5)));
        assert_eq!(expiry(r#"{"exp":5.5}"#), Some(Duration::from_millis(5_500)));
        assert_eq!(
            expiry(r#"{"exp":5,"expire_at":9}"#),
            Some(Duration::from_secs(9))
        );
        assert_eq!(expiry(r#"{"exp":5,"expire_at":0}"#), None);
        assert_eq!(expiry("{}"), None);
    }

    #[test]
    fn a_claim_of_the_operators_is_text_or_a_whole_number() {
        let read = |text| custom(text, "uid");
        assert_eq!(read(r#"{"uid":"a\n"}"#).unwrap().as_deref(), Some("a\n"));
        assert_eq!(read(r#"{"uid":42}"#).unwrap().as_deref(), Some("42"));
        assert_eq!(read(r#"{"sub":"x"}"#).unwrap(), None);
        assert_eq!(read(r#"{"uid":null}"#).unwrap(), None);
        for text in [
            r#"{"uid":1.5}"#,
            r#"{"uid":{}}"#,
            r#"{"uid":"a","uid":"b"}"#,
        ] {
            read(text).expect_err(text);
        }
    }
}

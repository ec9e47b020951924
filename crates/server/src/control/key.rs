//! The API's keys: made, presented, compared, and what each may do.

use super::Control;
use super::api::{Command, Method, Scope};
use super::error::Refusal;
use crate::config::{ApiAccess, ApiKey, NamedKey, digest_of};
use crate::hex::hex;
use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use myriad_shard::{ApiKeys, KeyFault, Namespaces};
use myriad_wire::http::{credentials, query_pairs};
use rustix::rand::{GetRandomFlags, getrandom};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;

/// Bytes of a generated key: 128 bits cannot be guessed.
const KEY_BYTES: usize = 16;

const ADVICE: &str = "send it as the header X-API-Key: KEY, or Authorization: apikey KEY";

/// The key to ask for; none when the API is open, or has only keys with names.
pub(crate) fn decide(configured: &ApiKey) -> io::Result<Option<Arc<str>>> {
    match configured {
        ApiKey::Open | ApiKey::None => Ok(None),
        ApiKey::Configured(key) => Ok(Some(Arc::from(&**key))),
        ApiKey::Generated => generate().map(Some),
    }
}

fn generate() -> io::Result<Arc<str>> {
    let mut bytes = [0; KEY_BYTES];
    // Requests of up to 256 bytes are answered whole (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(hex(&bytes).into())
}

/// What a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Methods that it may call; none: all.
    pub(crate) methods: Option<Vec<Method>>,
    /// Namespaces of the channels that it may use, `""` for channels without one; none: all, and the whole server.
    pub(crate) namespaces: Option<Vec<Box<str>>>,
}

/// Who may call the API.
#[derive(Debug)]
pub(crate) struct Keys {
    /// None: the API is open.
    keys: Option<Vec<Arc<NamedKey>>>,
}

impl Keys {
    /// `lone` is the key that [`decide`] has decided on.
    pub(crate) fn new(access: &ApiAccess, lone: Option<&str>) -> Self {
        if access.lone == ApiKey::Open {
            return Self { keys: None };
        }
        let lone = lone.map(NamedKey::lone);
        let keys = lone.into_iter().chain(access.keys.iter().cloned());
        Self {
            keys: Some(keys.map(Arc::new).collect()),
        }
    }

    /// This key alone.
    #[cfg(test)]
    pub(super) fn lone(key: &str) -> Self {
        Self {
            keys: Some(vec![Arc::new(NamedKey::lone(key))]),
        }
    }

    /// Nobody needs a key.
    pub(crate) fn is_open(&self) -> bool {
        self.keys.is_none()
    }

    /// The key with this text. Takes the same time for every text: all keys are compared, and only their digests.
    pub(super) fn find(&self, presented: &[u8]) -> Option<&Arc<NamedKey>> {
        let digest = digest_of(presented);
        let mut found = None;
        for key in self.keys.iter().flatten() {
            if verify_slices_are_equal(&key.digest, &digest).is_ok() {
                found = Some(key);
            }
        }
        found
    }
}

/// The keys as shards know them: those of the last reload.
#[derive(Debug)]
pub(super) struct KeysOfShards(pub(super) Arc<ArcSwap<Keys>>);

impl ApiKeys for KeysOfShards {
    fn is_open(&self) -> bool {
        self.0.load().is_open()
    }

    fn check_read(&self, presented: &[u8], channel: &str) -> Result<(), KeyFault> {
        let keys = self.0.load();
        if keys.is_open() {
            return Ok(());
        }
        let key = keys.find(presented).ok_or(KeyFault::Unknown)?;
        let caller = Caller(Some(Arc::clone(key)));
        let checked = caller.check_method(Method::History);
        checked
            .and_then(|()| caller.check_channels(std::iter::once(channel)))
            .map_err(|refusal| KeyFault::Forbidden(refusal.message().to_owned()))
    }
}

/// Who calls: the name of its key. An open API has callers without one.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Arc<NamedKey>>);

impl Caller {
    /// Who presents a key, or anybody if the API is open. None: nobody has presented one.
    ///
    /// # Errors
    /// It is no key of the API.
    pub(super) fn of(
        keys: &Keys,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Option<Self>, Refusal> {
        if keys.is_open() {
            return Ok(Some(Self(None)));
        }
        let header = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let Some(presented) = presented(header, query) else {
            return Ok(None);
        };
        let key = keys
            .find(&presented)
            .ok_or_else(|| Refusal::unauthorized(format!("this is not the API's key: {ADVICE}")))?;
        Ok(Some(Self(Some(Arc::clone(key)))))
    }

    /// What metrics call it, and as whom it appends to streams.
    pub(super) fn name(&self) -> &str {
        self.0.as_ref().map_or("", |key| &key.name)
    }

    /// Whether it may carry out any request of a method.
    pub(super) fn check_method(&self, method: Method) -> Result<(), Refusal> {
        let Some(key) = &self.0 else {
            return Ok(());
        };
        match &key.rights.methods {
            Some(methods) if !methods.contains(&method) => Err(Refusal::forbidden(format!(
                "the key {:?} may not call {name}; add {name:?} to its methods in [[http_api.keys]]",
                key.name,
                name = method.name(),
            ))),
            _ => Ok(()),
        }
    }

    /// Whether it may carry out this request.
    pub(super) fn check(&self, command: &Command<'_>) -> Result<(), Refusal> {
        self.check_method(command.method())?;
        let Some(key) = &self.0 else {
            return Ok(());
        };
        if key.rights.namespaces.is_none() {
            return Ok(());
        }
        match command.scope() {
            Scope::Channels(channels) => self.check_channels(channels),
            Scope::Server => Err(Refusal::forbidden(format!(
                "the key {:?} is for some namespaces, and {} is about the whole server; use a key without namespaces",
                key.name,
                command.method().name(),
            ))),
        }
    }

    /// Whether it may know of the whole server.
    pub(super) fn check_server(&self) -> Result<(), Refusal> {
        match &self.0 {
            Some(key) if key.rights.namespaces.is_some() => Err(Refusal::forbidden(format!(
                "the key {:?} is for some namespaces, and metrics are about the whole server; use a key without namespaces",
                key.name,
            ))),
            _ => Ok(()),
        }
    }

    /// Whether it may use these channels.
    pub(super) fn check_channels<'a>(
        &self,
        mut channels: impl Iterator<Item = &'a str>,
    ) -> Result<(), Refusal> {
        let Some(key) = &self.0 else {
            return Ok(());
        };
        let Some(allowed) = &key.rights.namespaces else {
            return Ok(());
        };
        let foreign = channels
            .by_ref()
            .map(|channel| Namespaces::name_of(channel).unwrap_or_default())
            .find(|namespace| !allowed.iter().any(|allowed| **allowed == **namespace));
        match foreign {
            None => Ok(()),
            Some(namespace) => {
                let shown = &namespace[..namespace.floor_char_boundary(100)];
                Err(Refusal::forbidden(format!(
                    "the key {:?} may not use channels of the namespace {shown:?}; add it to its namespaces in [[http_api.keys]]",
                    key.name
                )))
            }
        }
    }
}

/// Lets requests with a right key pass, and notes whose it is.
pub(crate) async fn require(
    State(control): State<Arc<Control>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let keys = control.keys.load();
    let caller = Caller::of(&keys, request.headers(), request.uri().query())?;
    let Some(caller) = caller else {
        return Err(Refusal::unauthorized(format!(
            "the API needs its key: {ADVICE}"
        )));
    };
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// The key that a request presents. `header` gives the first value of a header.
pub(super) fn presented<'a>(
    header: impl Fn(&str) -> Option<&'a [u8]>,
    query: Option<&'a str>,
) -> Option<Cow<'a, [u8]>> {
    if let Some(key) = header("x-api-key") {
        return Some(Cow::Borrowed(key));
    }
    let of_scheme = header("authorization").and_then(|value| credentials(value, "apikey"));
    if let Some(key) = of_scheme {
        return Some(Cow::Borrowed(key));
    }
    let mut pairs = query_pairs(query?).filter_map(Result::ok);
    let (_, key) = pairs.find(|(name, _)| name == "api_key")?;
    Some(match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
        Cow::Owned(key) => Cow::Owned(key.into_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{ErrorMode, Prefix};

    #[test]
    fn keys_are_presented_in_either_header_or_in_the_query() {
        let headers = |name: &'static str, value: &'static str| {
            presented(|wanted| (wanted == name).then_some(value.as_bytes()), None)
        };
        assert_eq!(*headers("x-api-key", "k1").unwrap(), *b"k1");
        assert_eq!(*headers("authorization", "apikey k1").unwrap(), *b"k1");
        assert_eq!(*headers("authorization", "ApiKey  k1").unwrap(), *b"k1");
        assert_eq!(headers("authorization", "Bearer k1"), None);
        assert_eq!(headers("authorization", "apikey"), None);
        let query = |query: &'static str| presented(|_| None, Some(query));
        assert_eq!(*query("a=b&api_key=k%2B1").unwrap(), *b"k+1");
        assert_eq!(query("api_keys=k1"), None);
        let both = presented(
            |name| (name == "x-api-key").then_some(b"k1"),
            Some("api_key=k2"),
        );
        assert_eq!(*both.unwrap(), *b"k1");
    }

    fn keys(lone: ApiKey, names: &[&str]) -> Keys {
        let named = |name: &&str| NamedKey {
            name: (*name).into(),
            ..NamedKey::lone(name)
        };
        let access = ApiAccess {
            lone,
            keys: names.iter().map(named).collect(),
            prefix: Prefix::default(),
            error_mode: ErrorMode::Body,
        };
        Keys::new(&access, Some("secret"))
    }

    #[test]
    fn only_a_key_is_a_key() {
        let keys = keys(ApiKey::Generated, &["a", "b"]);
        for (text, name) in [("secret", "default"), ("a", "a"), ("b", "b")] {
            assert_eq!(&*keys.find(text.as_bytes()).unwrap().name, name);
        }
        for other in [&b"secreT"[..], b"Secret", b"secre", b"secrets", b""] {
            assert!(keys.find(other).is_none());
        }
    }

    #[test]
    fn an_open_api_has_no_key() {
        let keys = keys(ApiKey::Open, &[]);
        assert!(keys.is_open() && keys.find(b"secret").is_none());
    }

    #[test]
    fn generated_keys_differ_and_can_be_configured() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 2 * KEY_BYTES);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}

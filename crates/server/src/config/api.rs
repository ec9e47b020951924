//! `[http_api]`: who may call the API, and how it tells errors.

use super::secrets::SecretText;
use super::{ApiKey, ConfigError, Options, refuse};
use crate::control::{ErrorMode, Method, Prefix, Rights};
use aws_lc_rs::digest::{SHA256, digest};
use myriad_shard::Namespaces;
use serde::Deserialize;
use std::collections::HashSet;

/// Keys of one configuration.
const KEYS_MAX: usize = 1_000;
/// Bytes of a key, and of a key's name.
const KEY_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
const KEY_ADVICE: &str = "choose 1 to 256 printable ASCII characters without spaces";

/// The name of the key that stands alone.
const LONE_NAME: &str = "default";

/// `[http_api]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpApiTable {
    /// `api-key` by its other name.
    pub key: SecretText,
    /// Everybody may call the API.
    pub insecure: bool,
    /// `transport`: errors are told by statuses, unless a request says otherwise.
    pub error_mode: String,
    /// The path in front of every method; none is `/api`.
    pub handler_prefix: Option<String>,
    /// More keys, with the rights of each.
    pub keys: Vec<ApiKeyTable>,
}

/// One of `[[http_api.keys]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeyTable {
    /// What metrics and refusals call it.
    pub name: String,
    /// The key itself,
    pub key: SecretText,
    /// or its SHA-256 in hexadecimal digits, so that the file does not have it.
    pub key_sha256: String,
    /// Methods that it may call; none listed: all.
    pub methods: Vec<String>,
    /// Namespaces of the channels that it may use, `""` for channels without one; none listed: all.
    pub namespaces: Vec<String>,
}

/// Who may call the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAccess {
    /// The key with all rights.
    pub(crate) lone: ApiKey,
    /// Keys with rights of their own.
    pub(crate) keys: Vec<NamedKey>,
    pub(crate) error_mode: ErrorMode,
    /// Where the methods are.
    pub(crate) prefix: Prefix,
}

/// A key of which only a digest is kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NamedKey {
    pub(crate) name: Box<str>,
    pub(crate) digest: [u8; 32],
    pub(crate) rights: Rights,
}

impl std::fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedKey")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

impl NamedKey {
    /// A key that may do everything.
    pub(crate) fn lone(key: &str) -> Self {
        Self {
            name: LONE_NAME.into(),
            digest: digest_of(key.as_bytes()),
            rights: Rights::default(),
        }
    }
}

/// What is compared instead of a key.
pub(crate) fn digest_of(key: &[u8]) -> [u8; 32] {
    let digest = digest(&SHA256, key);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl Options {
    /// Who may call the API.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn api_access(&self, namespaces: &Namespaces) -> Result<ApiAccess, ConfigError> {
        let none = HttpApiTable::default();
        let table = self.http_api.as_ref().unwrap_or(&none);
        let keys = table.keys(namespaces)?;
        Ok(ApiAccess {
            lone: self.lone_key(table, !keys.is_empty())?,
            keys,
            prefix: table.prefix()?,
            error_mode: match &*table.error_mode {
                "" => ErrorMode::Body,
                "transport" => ErrorMode::Transport,
                other => {
                    return Err(refuse(
                        "http_api.error_mode",
                        format!("{other:?}"),
                        "choose \"transport\", or leave it out",
                    ));
                }
            },
        })
    }

    fn lone_key(&self, table: &HttpApiTable, has_others: bool) -> Result<ApiKey, ConfigError> {
        let written = match (self.api_key.as_deref(), table.key.secret()) {
            (Some(_), Some(_)) => {
                let advice = "is the same as api-key, which is set too; keep one";
                return Err(refuse("http_api.key", "(hidden)", advice));
            }
            (Some(key), None) => Some(("api-key", key)),
            (None, Some(key)) => Some(("http_api.key", key)),
            (None, None) => None,
        };
        if table.insecure && (written.is_some() || has_others) {
            let advice = "does not go with keys: remove it, or remove the keys";
            return Err(refuse("http_api.insecure", true, advice));
        }
        match written {
            // A key that was written is asked for in development too: whoever wrote it meant it.
            Some((_, key)) if is_key(key) => Ok(ApiKey::Configured(key.into())),
            // The value is not repeated: logs are read by more people than keys are meant for.
            Some((name, _)) => Err(refuse(name, "(hidden)", KEY_ADVICE)),
            None if has_others => Ok(ApiKey::None),
            None if table.insecure || self.dev.unwrap_or(false) => Ok(ApiKey::Open),
            None => Ok(ApiKey::Generated),
        }
    }
}

fn is_key(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

impl HttpApiTable {
    /// These, but for what only a restart changes.
    pub(super) fn with_fixed_of(written: Option<Self>, running: Option<&Self>) -> Option<Self> {
        let handler_prefix = running.and_then(|table| table.handler_prefix.clone());
        if written.is_none() && handler_prefix.is_none() {
            return None;
        }
        Some(Self {
            handler_prefix,
            ..written.unwrap_or_default()
        })
    }

    /// Rights of keys that contradict each other: methods that are refused to every key with namespaces.
    pub(super) fn remarks(&self) -> Vec<String> {
        let remark = |(index, table): (usize, &ApiKeyTable)| {
            let methods = table
                .methods
                .iter()
                .filter(|_| !table.namespaces.is_empty());
            let idle = methods
                .filter(|name| Method::named(name).is_some_and(|method| !method.is_for_channels()));
            let idle: Vec<_> = idle.map(String::as_str).collect();
            (!idle.is_empty()).then(|| {
                format!(
                    "http_api.keys[{index}], the key {:?}: it has namespaces, and each request of {} is about the whole server and gets 403; take namespaces away, or these methods",
                    table.name,
                    idle.join(", ")
                )
            })
        };
        self.keys.iter().enumerate().filter_map(remark).collect()
    }

    fn prefix(&self) -> Result<Prefix, ConfigError> {
        let Some(text) = self.handler_prefix.as_deref() else {
            return Ok(Prefix::default());
        };
        Prefix::parse(text).ok_or_else(|| {
            refuse(
                "http_api.handler_prefix",
                format!("{text:?}"),
                "choose a path such as \"/api\" or \"/push/v1\": at most 100 letters, digits, - . _ ~ and /, without a / at the end, and no path of the server's own",
            )
        })
    }

    fn keys(&self, namespaces: &Namespaces) -> Result<Vec<NamedKey>, ConfigError> {
        if self.keys.len() > KEYS_MAX {
            let advice = format!("choose at most {KEYS_MAX} keys");
            return Err(refuse("http_api.keys", self.keys.len(), advice));
        }
        let (mut names, mut digests) = (HashSet::from([LONE_NAME]), HashSet::new());
        let mut keys = Vec::new();
        for (index, table) in self.keys.iter().enumerate() {
            let path = format!("http_api.keys[{index}]");
            let key = table.resolve(&path, namespaces)?;
            if !names.insert(&table.name) {
                let advice = "is the name of another key; choose another one";
                return Err(refuse(format!("{path}.name"), &table.name, advice));
            }
            if !digests.insert(key.digest) {
                let advice = "is the same as that of another name; choose another one";
                return Err(refuse(format!("{path}.key"), "(hidden)", advice));
            }
            keys.push(key);
        }
        Ok(keys)
    }
}

impl ApiKeyTable {
    fn resolve(&self, path: &str, namespaces: &Namespaces) -> Result<NamedKey, ConfigError> {
        let field = |name: &str| format!("{path}.{name}");
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len())
            || !self.name.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let advice = "choose 1 to 64 printable ASCII characters without spaces";
            return Err(refuse(field("name"), format!("{:?}", self.name), advice));
        }
        let digest = match (self.key.secret(), &*self.key_sha256) {
            (Some(key), "") if is_key(key) => digest_of(key.as_bytes()),
            (Some(_), "") => return Err(refuse(field("key"), "(hidden)", KEY_ADVICE)),
            (None, "") => {
                return Err(refuse(field("key"), "\"\"", "write it, or key_sha256"));
            }
            (None, digits) => parse_digest(digits).ok_or_else(|| {
                let advice = "write 64 hexadecimal digits: printf %s KEY | sha256sum";
                refuse(field("key_sha256"), "(hidden)", advice)
            })?,
            (Some(_), _) => {
                return Err(refuse(
                    field("key_sha256"),
                    "(hidden)",
                    "is beside key; keep one",
                ));
            }
        };
        Ok(NamedKey {
            name: self.name.as_str().into(),
            digest,
            rights: Rights {
                methods: self.methods(&field("methods"))?,
                namespaces: self.namespaces(&field("namespaces"), namespaces)?,
            },
        })
    }

    fn methods(&self, path: &str) -> Result<Option<Vec<Method>>, ConfigError> {
        if self.methods.is_empty() {
            return Ok(None);
        }
        let parse = |name: &String| {
            Method::named(name).ok_or_else(|| {
                let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
                refuse(
                    path.to_owned(),
                    format!("{name:?}"),
                    format!("choose among {}", names.join(", ")),
                )
            })
        };
        self.methods
            .iter()
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn namespaces(
        &self,
        path: &str,
        known: &Namespaces,
    ) -> Result<Option<Vec<Box<str>>>, ConfigError> {
        if self.namespaces.is_empty() {
            return Ok(None);
        }
        for name in self.namespaces.iter().filter(|name| !name.is_empty()) {
            if known.options_of(&format!("{name}:")).is_none() {
                return Err(refuse(
                    path.to_owned(),
                    format!("{name:?}"),
                    "is no namespace; add it to [[channel.namespaces]], or remove it here",
                ));
            }
        }
        let names = self.namespaces.iter().map(|name| name.as_str().into());
        Ok(Some(names.collect()))
    }
}

fn parse_digest(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Result<ApiAccess, String> {
        let options: Options = toml::from_str(text).map_err(|error| error.to_string())?;
        let namespaces = match &options.channel {
            Some(channel) => channel.resolve().expect("good namespaces"),
            None => Namespaces::default(),
        };
        options
            .api_access(&namespaces)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_lone_key_has_two_names_and_keys_may_stand_without_it() {
        assert_eq!(access("").unwrap().lone, ApiKey::Generated);
        assert_eq!(access("dev = true").unwrap().lone, ApiKey::Open);
        assert_eq!(
            access("[http_api]\ninsecure = true").unwrap().lone,
            ApiKey::Open
        );
        for text in ["api-key = \"k\"", "[http_api]\nkey = \"k\""] {
            assert_eq!(access(text).unwrap().lone, ApiKey::Configured("k".into()));
        }
        let named = access("dev = true\n[[http_api.keys]]\nname = \"ci\"\nkey = \"k\"").unwrap();
        assert_eq!((named.lone, named.keys.len()), (ApiKey::None, 1));
    }

    #[test]
    fn a_digest_is_as_good_as_its_key() {
        let digest = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a";
        let of_digest = format!("[[http_api.keys]]\nname = \"ci\"\nkey_sha256 = \"{digest}\"");
        let of_key = "[[http_api.keys]]\nname = \"ci\"\nkey = \"k\"";
        assert_eq!(access(&of_digest).unwrap(), access(of_key).unwrap());
        assert!(!format!("{:?}", access(of_key)).contains("82, "));
    }

    #[test]
    fn what_cannot_be_meant_is_named_without_the_key() {
        let key = |rest: &str| format!("[[http_api.keys]]\nname = \"ci\"\n{rest}");
        for (text, words) in [
            (
                "api-key = \"sesame\"\n[http_api]\nkey = \"sesame\"".to_owned(),
                "http_api.key",
            ),
            ("[http_api]\nkey = \"a sesame\"".to_owned(), "http_api.key"),
            (
                "[http_api]\nhandler_prefix = \"api/\"".to_owned(),
                "http_api.handler_prefix",
            ),
            (
                "api-key = \"sesame\"\n[http_api]\ninsecure = true".to_owned(),
                "http_api.insecure",
            ),
            (
                "[http_api]\nerror_mode = \"body\"".to_owned(),
                "choose \"transport\"",
            ),
            (key(""), "http_api.keys[0].key"),
            (key("key = \"sesame\"\nkey_sha256 = \"00\""), "keep one"),
            (key("key_sha256 = \"00\""), "64 hexadecimal digits"),
            (
                key("key = \"sesame\"\nmethods = [\"publsh\"]"),
                "choose among publish, broadcast",
            ),
            (
                key("key = \"sesame\"\nnamespaces = [\"nope\"]"),
                "is no namespace",
            ),
            (
                "[[http_api.keys]]\nname = \"default\"\nkey = \"sesame\"".to_owned(),
                "another key",
            ),
            (
                "[[http_api.keys]]\nkey = \"sesame\"".to_owned(),
                "http_api.keys[0].name",
            ),
            (
                format!(
                    "{}\n[[http_api.keys]]\nname = \"b\"\nkey = \"sesame\"",
                    key("key = \"sesame\"")
                ),
                "http_api.keys[1].key",
            ),
        ] {
            let error = access(&text).expect_err(&text);
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn methods_that_a_key_with_namespaces_may_never_call_are_named() {
        let remarks = |rights: &str| {
            let text = format!("[[http_api.keys]]\nname = \"ci\"\nkey = \"k\"\n{rights}");
            let options: Options = toml::from_str(&text).expect(&text);
            options.http_api.unwrap_or_default().remarks()
        };
        let namespaces = "namespaces = [\"\"]";
        let methods = "methods = [\"info\", \"publish\", \"connections\"]";
        let [found] = &remarks(&format!("{namespaces}\n{methods}"))[..] else {
            panic!("one remark");
        };
        assert!(
            found.contains("each request of info, connections is"),
            "{found}"
        );
        for rights in [
            methods,
            namespaces,
            &format!("{namespaces}\nmethods = [\"publish\", \"subscribe\"]"),
        ] {
            assert_eq!(remarks(rights), [""; 0], "{rights}");
        }
    }

    #[test]
    fn rights_are_read() {
        let text = "[[channel.namespaces]]\nname = \"chat\"\n[[http_api.keys]]\nname = \"ci\"\nkey = \"k\"\n\
            methods = [\"publish\", \"history\"]\nnamespaces = [\"chat\", \"\"]";
        let rights = &access(text).unwrap().keys[0].rights;
        assert_eq!(rights.methods, Some(vec![Method::Publish, Method::History]));
        assert_eq!(rights.namespaces, Some(vec!["chat".into(), "".into()]));
    }
}

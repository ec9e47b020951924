//! `[webhooks]`: who is told what happens, as written and as meant.

use super::secrets::{UrlText, shown_url};
use super::{ConfigError, SPAN_MAX, SecretText, refuse};
use myriad_shard::{NoticeKind, NoticeSettings};
use myriad_units::option::{Count, Span};
use reqwest::Url;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// `[webhooks]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhooksTable {
    /// How long a channel must be empty before it counts as vacated.
    pub vacated_delay: Option<Span>,
    /// Who is told.
    pub endpoints: Vec<WebhookEndpointTable>,
}

/// One of `[[webhooks.endpoints]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookEndpointTable {
    /// Its name in metrics and in the log.
    pub name: String,
    /// Where batches are posted.
    pub url: UrlText,
    /// What batches are signed with.
    pub secret: SecretText,
    /// The events it is told.
    pub events: Option<Vec<String>>,
    /// The channels whose events it is told.
    pub channels: Option<Vec<String>>,
    /// Events of one batch.
    pub batch_size: Option<Count>,
    /// How long an event may wait for others.
    pub batch_delay: Option<Span>,
    /// Time for an answer.
    pub timeout: Option<Span>,
    /// How long a batch is tried.
    pub retry_for: Option<Span>,
    /// Events that wait.
    pub queue_size: Option<Count>,
}

/// Who is told what happens; every value can be used.
#[derive(Clone, Debug, Default)]
pub struct Webhooks {
    /// How long a channel must be empty before it counts as vacated.
    pub vacated_delay: Duration,
    /// Who is told.
    pub endpoints: Vec<WebhookEndpoint>,
}

/// Somebody who is told.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// Its name in metrics and in the log.
    pub name: Arc<str>,
    /// Where batches are posted.
    pub url: Url,
    /// What batches are signed with; none: they are not.
    pub secret: SecretText,
    /// Whether it is told events of a kind, by [`NoticeKind`].
    pub events: [bool; NoticeKind::ALL.len()],
    /// The channels whose events it is told.
    pub channels: Vec<ChannelFilter>,
    /// Events of one batch.
    pub batch_size: usize,
    /// How long an event may wait for others.
    pub batch_delay: Duration,
    /// Time for an answer.
    pub timeout: Duration,
    /// How long a batch is tried.
    pub retry_for: Duration,
    /// Events that wait. Past it the oldest is dropped.
    pub queue_size: usize,
}

/// Without the URL, which may be secret.
impl fmt::Debug for WebhookEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookEndpoint")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Names of channels: one name, or with `*` at the end all that begin with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFilter {
    text: Box<str>,
    is_prefix: bool,
}

impl ChannelFilter {
    fn new(text: &str) -> Option<Self> {
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        (is_prefix || !text.is_empty()).then(|| Self {
            text: text.into(),
            is_prefix,
        })
    }

    /// Whether a channel is one of them.
    #[must_use]
    pub fn takes(&self, channel: &str) -> bool {
        if self.is_prefix {
            channel.starts_with(&*self.text)
        } else {
            *self.text == *channel
        }
    }
}

/// The name of an event, in the config file and in a batch.
#[must_use]
pub(crate) fn event_name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Occupied => "channel_occupied",
        NoticeKind::Vacated => "channel_vacated",
        NoticeKind::Connected => "client_connected",
        NoticeKind::Disconnected => "client_disconnected",
    }
}

const VACATED_DELAY_DEFAULT: Duration = Duration::from_secs(3);
const VACATED_DELAY_MAX: Duration = Duration::from_hours(1);
const BATCH_SIZE_MAX: u64 = 256;
const BATCH_DELAY_DEFAULT: Duration = Duration::from_secs(1);
const BATCH_DELAY_MAX: Duration = Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
const RETRY_FOR_DEFAULT: Duration = Duration::from_mins(5);
const QUEUE_SIZE_DEFAULT: u64 = 100_000;
const QUEUE_SIZE_MAX: u64 = 10_000_000;
const NAME_BYTES_MAX: usize = 64;
/// As many bits as the hash that signs.
const SECRET_BYTES_ADVISED: usize = 32;

impl Webhooks {
    /// What shards must note.
    pub(crate) fn notices(&self) -> NoticeSettings {
        let wants = |kind: NoticeKind| {
            let mut endpoints = self.endpoints.iter();
            endpoints.any(|endpoint| endpoint.events[kind as usize])
        };
        let channels = wants(NoticeKind::Occupied) || wants(NoticeKind::Vacated);
        NoticeSettings {
            clients: wants(NoticeKind::Connected) || wants(NoticeKind::Disconnected),
            vacated_delay: channels.then_some(self.vacated_delay),
        }
    }
}

impl WebhooksTable {
    /// What a reload takes of it: endpoints. Shards hold channels for `vacated_delay` as they did at the start.
    pub(super) fn with_fixed_of(written: Option<Self>, running: Option<&Self>) -> Option<Self> {
        let vacated_delay = running.and_then(|running| running.vacated_delay);
        let endpoints = written.map(|written| written.endpoints).unwrap_or_default();
        (vacated_delay.is_some() || !endpoints.is_empty()).then_some(Self {
            vacated_delay,
            endpoints,
        })
    }

    /// # Errors
    /// The first value that cannot be used.
    pub(crate) fn resolve(&self) -> Result<Webhooks, ConfigError> {
        let mut names = HashSet::new();
        let mut endpoints = Vec::with_capacity(self.endpoints.len());
        for (index, table) in self.endpoints.iter().enumerate() {
            let path = format!("webhooks.endpoints[{index}]");
            if !names.insert(&*table.name) {
                let advice = "is the name of another endpoint; choose another";
                return Err(refuse(format!("{path}.name"), quoted(&table.name), advice));
            }
            endpoints.push(table.resolve(&path)?);
        }
        Ok(Webhooks {
            vacated_delay: span(
                "webhooks.vacated_delay",
                self.vacated_delay,
                VACATED_DELAY_DEFAULT,
                Duration::ZERO,
                VACATED_DELAY_MAX,
            )?,
            endpoints,
        })
    }

    /// What somebody who reads the log should know.
    pub(super) fn remarks(&self) -> Vec<String> {
        let remark = |endpoint: &WebhookEndpointTable| {
            let name = &endpoint.name;
            match endpoint.secret.secret().map(str::len) {
                None => Some(format!(
                    "webhook endpoint {name:?} has no secret: whoever knows its URL can send it events of their own"
                )),
                Some(bytes) if bytes < SECRET_BYTES_ADVISED => Some(format!(
                    "webhook endpoint {name:?}: the secret has {bytes} bytes; use {SECRET_BYTES_ADVISED} random ones"
                )),
                Some(_) => None,
            }
        };
        let space = |endpoint: &WebhookEndpointTable| {
            let field = format!("webhook endpoint {:?}: the secret", endpoint.name);
            let consequence = "receivers that have it without that take no batch for ours";
            endpoint.secret.space_remark(&field, consequence)
        };
        let endpoints = self.endpoints.iter();
        endpoints
            .flat_map(|endpoint| [remark(endpoint), space(endpoint)].into_iter().flatten())
            .collect()
    }
}

impl WebhookEndpointTable {
    fn resolve(&self, path: &str) -> Result<WebhookEndpoint, ConfigError> {
        let key = |key: &str| format!("{path}.{key}");
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_allowed) {
            let advice = "choose 1 to 64 of the letters a-z and A-Z, digits, - _ and .";
            return Err(refuse(key("name"), quoted(&self.name), advice));
        }
        let batch_size = count(
            &key("batch_size"),
            self.batch_size,
            BATCH_SIZE_MAX,
            1,
            BATCH_SIZE_MAX,
        )?;
        let events = self.events(&key("events"))?;
        let ms = Duration::from_millis;
        Ok(WebhookEndpoint {
            name: self.name.as_str().into(),
            url: self.url(&key("url"))?,
            secret: self.secret.clone(),
            events,
            channels: self.channels(&key("channels"), events)?,
            batch_size,
            batch_delay: span(
                &key("batch_delay"),
                self.batch_delay,
                BATCH_DELAY_DEFAULT,
                Duration::ZERO,
                BATCH_DELAY_MAX,
            )?,
            timeout: span(
                &key("timeout"),
                self.timeout,
                TIMEOUT_DEFAULT,
                ms(10),
                TIMEOUT_MAX,
            )?,
            retry_for: span(
                &key("retry_for"),
                self.retry_for,
                RETRY_FOR_DEFAULT,
                Duration::ZERO,
                SPAN_MAX,
            )?,
            queue_size: count(
                &key("queue_size"),
                self.queue_size,
                QUEUE_SIZE_DEFAULT,
                BATCH_SIZE_MAX,
                QUEUE_SIZE_MAX,
            )?,
        })
    }

    fn url(&self, key: &str) -> Result<Url, ConfigError> {
        let refused = |advice: &str| Err(refuse(key.to_owned(), shown_url(&self.url), advice));
        let Ok(url) = Url::parse(&self.url) else {
            return refused("write a URL such as https://app.example.com/myriad-events");
        };
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return refused("write a URL that begins with https:// or http://");
        }
        if url.fragment().is_some() {
            return refused("leave out what follows #: it is never sent");
        }
        Ok(url)
    }

    fn events(&self, key: &str) -> Result<[bool; NoticeKind::ALL.len()], ConfigError> {
        let Some(names) = &self.events else {
            return Ok([true; NoticeKind::ALL.len()]);
        };
        let known = NoticeKind::ALL.map(event_name).join(", ");
        let mut events = [false; NoticeKind::ALL.len()];
        for name in names {
            let kind = NoticeKind::ALL
                .into_iter()
                .find(|kind| event_name(*kind) == name);
            let Some(kind) = kind else {
                let advice = format!("choose from {known}");
                return Err(refuse(key.to_owned(), quoted(name), advice));
            };
            events[kind as usize] = true;
        }
        if names.is_empty() {
            let advice = format!("leave it out for all events, or choose from {known}");
            return Err(refuse(key.to_owned(), "[]", advice));
        }
        Ok(events)
    }

    fn channels(
        &self,
        key: &str,
        events: [bool; NoticeKind::ALL.len()],
    ) -> Result<Vec<ChannelFilter>, ConfigError> {
        let all = || vec![ChannelFilter::new("*").expect("a prefix of all names")];
        let Some(texts) = &self.channels else {
            return Ok(all());
        };
        let has_channels =
            events[NoticeKind::Occupied as usize] || events[NoticeKind::Vacated as usize];
        if texts.is_empty() || !has_channels {
            let advice = if texts.is_empty() {
                "leave it out for all channels, or write names such as \"chat:*\""
            } else {
                "does nothing: events has neither channel_occupied nor channel_vacated"
            };
            return Err(refuse(key.to_owned(), format!("{texts:?}"), advice));
        }
        let filter = |text: &String| {
            let filter = ChannelFilter::new(text).filter(|filter| !filter.text.contains('*'));
            filter.ok_or_else(|| {
                let advice = "write a channel's name, or the beginning of names and one * after it";
                refuse(key.to_owned(), quoted(text), advice)
            })
        };
        texts.iter().map(filter).collect()
    }
}

fn span(
    field: &str,
    written: Option<Span>,
    default: Duration,
    min: Duration,
    max: Duration,
) -> Result<Duration, ConfigError> {
    let span = written.unwrap_or(Span(default));
    if (min..=max).contains(&span.0) {
        return Ok(span.0);
    }
    let advice = format!("choose {} to {}", Span(min), Span(max));
    Err(refuse(field.to_owned(), span, advice))
}

fn count(
    field: &str,
    written: Option<Count>,
    default: u64,
    min: u64,
    max: u64,
) -> Result<usize, ConfigError> {
    let count = written.unwrap_or(Count(default));
    match usize::try_from(count.0) {
        Ok(number) if (min..=max).contains(&count.0) => Ok(number),
        _ => {
            let advice = format!("choose {} to {}", Count(min), Count(max));
            Err(refuse(field.to_owned(), count, advice))
        }
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Options};
    use super::*;
    use crate::Machine;
    use std::path::Path;

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        let machine = Machine::OF_TESTS;
        Options::from_text(text, Path::new("a.toml"))?.resolve(&machine)
    }

    fn endpoint(lines: &str) -> Result<Config, ConfigError> {
        resolve(&format!(
            "anonymous = true\n[[webhooks.endpoints]]\nname = \"app\"\nurl = \"https://app.example.com/hook\"\n{lines}"
        ))
    }

    const PAGE: &str = include_str!("../../../../docs/webhooks.md");

    #[test]
    fn every_key_and_event_is_documented() {
        let events = NoticeKind::ALL.map(event_name);
        for word in super::super::keys::of_webhooks().chain(events) {
            assert!(
                PAGE.contains(&format!("`{word}`")),
                "{word} is not documented"
            );
        }
    }

    #[test]
    fn the_documented_example_is_good() {
        let (_, rest) = PAGE.split_once("```toml\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let config = resolve(example).expect("good values");
        let [app] = &config.webhooks.endpoints[..] else {
            panic!("one endpoint")
        };
        assert_eq!(app.events, [true; 4]);
        assert!(!app.channels.iter().any(|filter| filter.takes("other")));
    }

    #[test]
    fn nothing_written_notes_nothing() {
        let config = resolve("").expect("defaults");
        assert!(config.webhooks.endpoints.is_empty());
        assert_eq!(config.settings.notices, NoticeSettings::default());
    }

    #[test]
    fn a_name_and_a_url_are_enough() {
        let config = endpoint("").expect("enough");
        let [app] = &config.webhooks.endpoints[..] else {
            panic!("one endpoint")
        };
        assert_eq!(app.events, [true; 4]);
        assert!(app.channels.iter().all(|filter| filter.takes("any:1")));
        assert_eq!((app.batch_size, app.queue_size), (256, 100_000));
        assert_eq!(app.batch_delay, Duration::from_secs(1));
        assert_eq!(
            config.settings.notices,
            NoticeSettings {
                clients: true,
                vacated_delay: Some(Duration::from_secs(3)),
            }
        );
        let remarks = config.remarks.join("\n");
        assert!(remarks.contains("\"app\" has no secret"), "{remarks}");
    }

    #[test]
    fn only_what_is_wanted_is_noted() {
        let notices = |events| endpoint(events).expect(events).settings.notices;
        let clients = notices("events = [\"client_connected\"]");
        assert!(clients.clients && clients.vacated_delay.is_none());
        let channels = notices("events = [\"channel_vacated\"]\n[webhooks]\nvacated_delay = 0");
        assert_eq!(channels.vacated_delay, Some(Duration::ZERO));
        assert!(!channels.clients);
    }

    #[test]
    fn a_filter_is_a_name_or_the_beginning_of_names() {
        let config = endpoint("channels = [\"chat:*\", \"news\"]").expect("filters");
        let filters = &config.webhooks.endpoints[0].channels;
        for (channel, is_taken) in [
            ("chat:1", true),
            ("chat:", true),
            ("chat", false),
            ("news", true),
            ("news2", false),
        ] {
            let takes = filters.iter().any(|filter| filter.takes(channel));
            assert_eq!(takes, is_taken, "{channel}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        for (lines, field) in [
            ("events = [\"channel_left\"]", "events"),
            ("events = []", "events"),
            ("channels = []", "channels"),
            ("channels = [\"\"]", "channels"),
            ("channels = [\"a*b*\"]", "channels"),
            (
                "channels = [\"a\"]\nevents = [\"client_connected\"]",
                "channels",
            ),
            ("batch_size = 0", "batch_size"),
            ("batch_size = 257", "batch_size"),
            ("batch_delay = \"2m\"", "batch_delay"),
            ("timeout = 0", "timeout"),
            ("timeout = \"2m\"", "timeout"),
            ("queue_size = 10", "queue_size"),
            ("retry_for = \"10000h\"", "retry_for"),
        ] {
            let error = endpoint(lines).expect_err(lines).to_string();
            let expected = format!("webhooks.endpoints[0].{field} = ");
            assert!(error.contains(&expected), "{lines}: {error}");
        }
        for (name, url, field) in [
            ("", "https://a.example", "name"),
            ("a b", "https://a.example", "name"),
            ("app", "", "url"),
            ("app", "app.example.com", "url"),
            ("app", "ftp://a.example", "url"),
            ("app", "https://user:opensesame@a.example/#x", "url"),
            ("app", "https://a.example/#x", "url"),
        ] {
            let text = format!("[[webhooks.endpoints]]\nname = {name:?}\nurl = {url:?}");
            let error = resolve(&text).expect_err(url).to_string();
            let expected = format!("webhooks.endpoints[0].{field} = ");
            assert!(error.contains(&expected), "{url}: {error}");
            assert!(!error.contains("opensesame"), "{error}");
        }
        let twice = "[[webhooks.endpoints]]\nname = \"app\"\nurl = \"http://a\"\n";
        let error = resolve(&twice.repeat(2)).expect_err("twice").to_string();
        assert!(
            error.contains("endpoints[1].name = \"app\": is the name"),
            "{error}"
        );
    }

    #[test]
    fn a_key_that_does_not_exist_has_its_line() {
        let error = endpoint("batch_sise = 3").expect_err("a typing error");
        let error = error.to_string();
        assert!(
            error.contains("line 5") && error.contains("did you mean batch_size?"),
            "{error}"
        );
    }

    #[test]
    fn a_secret_is_not_shown() {
        let config = endpoint("secret = \"sesame-sesame\"").expect("a secret");
        let shown = format!("{:?}", config.webhooks);
        assert!(!shown.contains("sesame"), "{shown}");
        let text =
            "[[webhooks.endpoints]]\nname = \"app\"\nurl = \"https://user:sesame@a.example/\"";
        let shown = format!("{:?}", resolve(text).expect("a password").webhooks);
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

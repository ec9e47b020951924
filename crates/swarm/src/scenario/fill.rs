//! From a scenario to the same [`Config`] that the command line's options fill.

use super::fault::Problem;
use super::format::{
    Body, Close, DriverName, Generator, Messages, Payload, Publish, Requests, Scenario, Terminals,
    Tls,
};
use super::incidents::Incidents;
use super::talk;
use crate::config::{self, Ca, ClientPublish, Config, Echo, PublishBody};
use crate::engine::plan::PollPosition;
use crate::engine::shared::Ending;
use crate::engine::sources::SourceChoice;
use crate::files::{read_text, read_tokens};
use crate::stamp::Filler;
use myriad_reactor::Driver;
use std::path::Path;
use std::time::Duration;

/// Clients when no other number is given, as on the command line.
const COUNT_DEFAULT: u64 = 1000;

/// Time between pushes when no other is given, as on the command line.
const EVERY_DEFAULT: Duration = Duration::from_secs(10);

/// What is wrong, and at which key.
pub(super) type Wrong = (&'static str, Problem);

/// Fills a run from a scenario. Files that it names are looked for in `folder`.
pub(super) fn config(mut scenario: Scenario, folder: &Path) -> Result<Config, Wrong> {
    let warmup = scenario.hold.warmup.as_ref().map(|time| time.0);
    let flows = talk::flows(&mut scenario, folder, warmup)?;
    let Scenario {
        terminals,
        arrival,
        hold,
        tls,
        generator,
        ..
    } = scenario;
    let publish = match scenario.publish {
        Some(publish) => Some(pushes(publish, warmup)?),
        None => None,
    };
    let requests = match scenario.requests {
        Some(requests) => Some(requests_of(requests, warmup)?),
        None => None,
    };
    let framing = scenario.framing.as_ref().map(super::framing::framing);
    let framing = framing.transpose()?;
    let is_counted = terminals.count.is_some();
    let mut config = clients(terminals, folder)?;
    arrival.fill(&mut config, is_counted)?;
    generate(&mut config, generator);
    config.tls = tls_of(tls, folder)?;
    config.publish = publish;
    config.flows = flows;
    config.framing = framing;
    config.requests = requests;
    config.echo = scenario.echo.map(|echo| echo_of(&echo, warmup));
    config.client_publish = scenario.client_publish.map(|one| published(&one, warmup));
    config.duration = hold.duration.map(|time| time.0);
    config.settle = hold.settle.map_or(config.settle, |time| time.0);
    config.heartbeat = scenario.heartbeat.map(|heartbeat| heartbeat.every.0);
    let incidents = Incidents {
        storms: scenario.storm,
        stall: scenario.stall,
        vanish: scenario.vanish,
    };
    super::incidents::fill(&mut config, scenario.reconnect, incidents);
    config.churn_per_s = scenario.churn.map(|churn| churn.rate.0);
    config.thresholds = scenario.thresholds.into_iter().map(|one| one.0).collect();
    config.abort_on_fail = scenario.abort_on_fail.map(|time| time.0);
    Ok(config)
}

fn clients(terminals: Terminals, folder: &Path) -> Result<Config, Wrong> {
    if terminals.targets.is_empty() {
        return Err(("terminals.targets", Problem::NoTarget));
    }
    let tokens = tokens(&terminals, folder)?;
    let targets = terminals.targets.into_iter().map(|url| url.0).collect();
    let count = terminals.count.map_or(COUNT_DEFAULT, |count| count.0);
    let mut config = Config::new(targets, count);
    config.tokens = tokens;
    config.protocol = terminals.protocol.map_or(config.protocol, |named| named.0);
    config.headers = terminals.headers.into_iter().collect();
    config.channels = terminals.channels;
    config.channel_count = terminals.channel_count.map(|count| count.0);
    config.compression = terminals.compression;
    config.request_body = terminals.request_body;
    config.poll_position = PollPosition::parse(&terminals.poll_position);
    config.expect_held = terminals.expect_held.map(|range| range.0);
    config.recover_from = terminals.recover_from.map(|position| position.0);
    config.ending = match terminals.close {
        Some(Close::Orderly) => Ending::Orderly,
        Some(Close::Reset) | None => Ending::Reset,
    };
    Ok(config)
}

/// What clients show: one token for all, or those of a file.
fn tokens(terminals: &Terminals, folder: &Path) -> Result<Vec<String>, Wrong> {
    let Some(file) = &terminals.tokens_file else {
        return Ok(terminals.token.iter().cloned().collect());
    };
    const KEY: &str = "terminals.tokens-file";
    if terminals.token.is_some() {
        return Err((KEY, Problem::BothTokens));
    }
    let path = folder.join(file);
    read_tokens(&path).map_err(|error| (KEY, Problem::Tokens(error.to_string())))
}

/// The text of a file that the scenario names at a key.
pub(super) fn read(key: &'static str, path: &Path, bytes_max: u64) -> Result<String, Wrong> {
    let unreadable = |error: std::io::Error| {
        let said = error.to_string();
        (key, Problem::File(path.to_owned(), said))
    };
    let text = read_text(path, bytes_max).map_err(unreadable)?;
    text.ok_or_else(|| (key, Problem::LargeFile(path.to_owned(), bytes_max)))
}

fn tls_of(given: Tls, folder: &Path) -> Result<config::Tls, Wrong> {
    let read = |file: String| Ca::read(&folder.join(file));
    let ca = given.ca.map(read).transpose();
    Ok(config::Tls {
        ca: ca.map_err(|error| ("tls.ca", Problem::Ca(error)))?,
        is_insecure: given.insecure,
        is_resuming: given.resume,
    })
}

fn generate(config: &mut Config, generator: Generator) {
    config.threads = generator.threads;
    config.driver = match generator.driver {
        None | Some(DriverName::Auto) => None,
        Some(DriverName::IoUring) => Some(Driver::IoUring),
        Some(DriverName::Epoll) => Some(Driver::Epoll),
    };
    if let Some(ranges) = generator.source_ip {
        config.sources = SourceChoice::Ranges(ranges.0);
    }
}

fn pushes(given: Publish, warmup: Option<Duration>) -> Result<config::Publish, Wrong> {
    let mut endpoints = given.urls.into_iter().map(|url| url.0);
    let first = endpoints
        .next()
        .ok_or(("publish.urls", Problem::NoEndpoint))?;
    let every = given.every.map_or(EVERY_DEFAULT, |time| time.0);
    let mut publish = config::Publish::new(first, every);
    publish.endpoints.extend(endpoints);
    publish.is_spread = given.spread;
    publish.pushes = given.pushes;
    publish.channels = given.channels;
    publish.api_key = given.api_key;
    publish.content_type = given.content_type.unwrap_or(publish.content_type);
    publish.body = match given.body {
        None | Some(Body::Api) => PublishBody::Api,
        Some(Body::Plain) => PublishBody::Plain,
        Some(Body::Stream) => PublishBody::Stream,
    };
    publish.filler = match given.payload {
        None | Some(Payload::Dots) => Filler::Dots,
        Some(Payload::Json) => Filler::Json,
    };
    publish.warmup = warmup.unwrap_or(publish.warmup);
    if let Some(size) = given.payload_size {
        publish.payload_bytes = size.bytes();
    }
    Ok(publish)
}

fn echo_of(given: &Messages, warmup: Option<Duration>) -> Echo {
    let mut echo = Echo::new(given.rate.0);
    echo.warmup = warmup.unwrap_or(echo.warmup);
    if let Some(size) = &given.size {
        echo.payload_bytes = size.bytes();
    }
    echo
}

fn published(given: &Messages, warmup: Option<Duration>) -> ClientPublish {
    let mut publish = ClientPublish::new(given.rate.0);
    publish.warmup = warmup.unwrap_or(publish.warmup);
    if let Some(size) = &given.size {
        publish.payload_bytes = size.bytes();
    }
    publish
}

fn requests_of(given: Requests, warmup: Option<Duration>) -> Result<config::Requests, Wrong> {
    if given.urls.is_empty() {
        return Err(("requests.urls", Problem::NoEndpoint));
    }
    let urls = given.urls.into_iter().map(|url| url.0).collect();
    let mut requests = config::Requests::new(urls, given.rate.0);
    requests.connections = given.connections.unwrap_or(requests.connections);
    requests.warmup = warmup.unwrap_or(requests.warmup);
    Ok(requests)
}

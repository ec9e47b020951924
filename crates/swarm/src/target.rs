//! Where clients connect to: an address with or without TLS, and the channels it subscribes to.

use crate::engine::own_head::has_variables;
use crate::protocol::{Protocol, Scheme};
use myriad_wire::http::query_pairs;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use tokio_rustls::rustls::pki_types::ServerName;

/// What in a target's path stands for the channel's name.
const CHANNEL_PLACE: &str = "{channel}";

/// One target of the crowd, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As given.
    pub url: String,
    /// What it begins with.
    pub scheme: Scheme,
    /// Whom the server's certificate has to name; none without TLS.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// The `Host` header.
    pub host: String,
    /// The request target: path and query.
    pub path: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// The values of `channel=` in the query, decoded, each once.
    pub channels: Vec<String>,
}

/// Why a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// As given.
    pub url: String,
    /// What is wrong with it.
    pub problem: UrlProblem,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlProblem {
    /// It does not begin with the scheme that is spoken here.
    Scheme(Scheme),
    /// The host can stand in no certificate.
    ServerName,
    /// There is no host.
    NoHost,
    /// The port is not a number from 1 to 65535.
    Port,
    /// It holds a space, a control character or something outside ASCII.
    Character(usize),
    /// The query decodes to something that is not UTF-8.
    Query,
    /// The path cannot stand in a request.
    Path,
    /// There is no port, and none that it could be by default.
    NoPort,
    /// It has a path, and only a connection is asked for.
    NoPath,
    /// The name does not resolve.
    Resolve(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: ", self.url)?;
        match &self.problem {
            UrlProblem::Scheme(scheme) => {
                let (plain, form) = (scheme.plain(), scheme.form());
                write!(f, "this does not begin with {plain}://; write it as {form}")
            }
            UrlProblem::ServerName => write!(
                f,
                "the host is no name that a certificate can have; check it"
            ),
            UrlProblem::NoHost => write!(
                f,
                "the host is missing; write it as SCHEME://HOST:PORT/PATH"
            ),
            UrlProblem::Port => write!(f, "the port must be a number from 1 to 65535"),
            UrlProblem::Character(column) => {
                write!(
                    f,
                    "the character at column {column} cannot stand in a URL; percent-encode it"
                )
            }
            UrlProblem::NoPort => write!(
                f,
                "the port is missing, and plain TCP has none by default; write it as {}",
                Scheme::Tcp.form()
            ),
            UrlProblem::NoPath => write!(
                f,
                "plain TCP has no path; write it as {}",
                Scheme::Tcp.form()
            ),
            UrlProblem::Query => write!(
                f,
                "the query does not decode to UTF-8; percent-encode the UTF-8 form"
            ),
            UrlProblem::Path => write!(f, "the path cannot stand in a request; percent-encode it"),
            UrlProblem::Resolve(reason) => {
                write!(f, "the host does not resolve ({reason}); check the name")
            }
        }
    }
}

impl std::error::Error for UrlError {}

/// A URL in its parts, not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlParts {
    /// Host and port as the `Host` header carries them.
    pub authority: String,
    /// Host alone, without brackets.
    pub host: String,
    pub port: u16,
    /// Whom the server's certificate has to name; none without TLS.
    pub server_name: Option<ServerName<'static>>,
    /// Path and query; at least `/`.
    pub path: String,
}

impl UrlParts {
    /// Takes a `scheme://host[:port][/path][?query]` apart; port 80 when none is given, or 443 with
    /// TLS; over plain TCP it has to be given. A fragment is dropped.
    pub(crate) fn parse(url: &str, scheme: Scheme) -> Result<Self, UrlError> {
        let error = |problem| UrlError {
            url: url.to_owned(),
            problem,
        };
        if let Some(column) = url.chars().position(|c| !c.is_ascii_graphic()) {
            return Err(error(UrlProblem::Character(column + 1)));
        }
        let (rest, is_tls) = match url.split_once("://") {
            Some((found, rest)) if found.eq_ignore_ascii_case(scheme.plain()) => (rest, false),
            Some((found, rest)) if found.eq_ignore_ascii_case(scheme.secure()) => (rest, true),
            _ => return Err(error(UrlProblem::Scheme(scheme))),
        };
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let authority_len = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_len);
        let port_default = match (scheme, is_tls) {
            (Scheme::Tcp, _) => None,
            (_, false) => Some(80),
            (_, true) => Some(443),
        };
        let (host, port) = split_authority(authority, port_default).map_err(error)?;
        if scheme == Scheme::Tcp && !matches!(path, "" | "/") {
            return Err(error(UrlProblem::NoPath));
        }
        // A name at its end is the root's, which no certificate names.
        let name = || ServerName::try_from(host.trim_end_matches('.').to_owned());
        let server_name = is_tls.then(name).transpose();
        let server_name = server_name.map_err(|_| error(UrlProblem::ServerName))?;
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            server_name,
            path,
        })
    }

    /// The first address of the host, IPv4 before IPv6: loopback crowds need 127.0.0.0/8 for their source addresses.
    pub(crate) fn resolve(&self, url: &str) -> Result<SocketAddr, UrlError> {
        let error = |reason: String| UrlError {
            url: url.to_owned(),
            problem: UrlProblem::Resolve(reason),
        };
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, self.port));
        }
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|e| error(e.to_string()))?
            .collect();
        let first = found.iter().find(|a| a.is_ipv4()).or_else(|| found.first());
        first.copied().ok_or_else(|| error("no address".to_owned()))
    }
}

fn split_authority(authority: &str, port_default: Option<u16>) -> Result<(&str, u16), UrlProblem> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UrlProblem::NoHost)?;
        (host, after.strip_prefix(':'))
    } else {
        authority
            .split_once(':')
            .map_or((authority, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() {
        return Err(UrlProblem::NoHost);
    }
    let port = match port {
        None => port_default.ok_or(UrlProblem::NoPort)?,
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|&port| port != 0)
            .ok_or(UrlProblem::Port)?,
    };
    Ok((host, port))
}

impl Target {
    /// Reads a URL of one of the schemes, and resolves its host once, for the whole run.
    ///
    /// # Errors
    /// The URL cannot be used, or its host does not resolve.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let begin = url.split_once(':').map_or("", |(begin, _)| begin);
        let mut all = Scheme::ALL.into_iter();
        let is_meant = |scheme: &Scheme| {
            let names = [scheme.plain(), scheme.secure()];
            names.iter().any(|name| begin.eq_ignore_ascii_case(name))
        };
        let scheme = all.find(is_meant).unwrap_or(Scheme::WebSocket);
        let parts = UrlParts::parse(url, scheme)?;
        let address = parts.resolve(url)?;
        let channels = channels_of(&parts.path).map_err(|problem| UrlError {
            url: url.to_owned(),
            problem,
        })?;
        Ok(Self {
            url: url.to_owned(),
            scheme,
            server_name: parts.server_name,
            host: parts.authority,
            path: parts.path,
            address,
            channels,
        })
    }
}

impl Target {
    /// The same target with more channels.
    pub(crate) fn with_channels(&self, more: &[String]) -> Self {
        let mut target = self.clone();
        for channel in more {
            if !target.channels.contains(channel) {
                target.channels.push(channel.clone());
            }
        }
        target
    }

    /// Whether the channel's name has a place in the path: there can be only one.
    pub(crate) fn has_channel_place(&self) -> bool {
        has_channel_place(&self.path)
    }

    /// The request target of clients that speak `protocol`. Without commands, the URL says what to listen to.
    pub(crate) fn path_for(&self, protocol: Protocol) -> String {
        let mut path = self.path.clone();
        if let [channel] = &self.channels[..]
            && self.has_channel_place()
        {
            return with_channel(&path, channel);
        }
        if !protocol.has_channels_in_url() {
            return path;
        }
        let known = channels_of(&path).unwrap_or_default();
        let is_new = |channel: &&String| !known.contains(channel);
        for channel in self.channels.iter().filter(is_new) {
            path = with_one_more_channel(&path, channel);
        }
        path
    }
}

/// Whether a channel's name has a place in a path.
pub(crate) fn has_channel_place(path: &str) -> bool {
    path.contains(CHANNEL_PLACE)
}

/// A path in which a channel's name takes its place.
pub(crate) fn with_channel(path: &str, channel: &str) -> String {
    path.replace(CHANNEL_PLACE, &percent_encoded(channel))
}

/// A path that says to listen to one more channel: in its place where it has one, and else as `channel=`.
pub(crate) fn with_one_more_channel(path: &str, channel: &str) -> String {
    if has_channel_place(path) {
        return with_channel(path, channel);
    }
    let sign = if path.contains('?') { '&' } else { '?' };
    format!("{path}{sign}channel={}", percent_encoded(channel))
}

/// A text in JSON in which a channel's name takes its place.
pub(crate) fn with_channel_in_json(text: &str, channel: &str) -> String {
    let quoted = serde_json::to_string(channel).expect("a text has a form in JSON");
    text.replace(CHANNEL_PLACE, &quoted[1..quoted.len() - 1])
}

/// A path without the parameters of these names in its query.
pub(crate) fn without_parameters(path: &str, names: &[&str]) -> String {
    let Some((before, query)) = path.split_once('?') else {
        return path.to_owned();
    };
    let is_kept = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        !names.contains(&name)
    };
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    if kept.is_empty() {
        before.to_owned()
    } else {
        format!("{before}?{}", kept.join("&"))
    }
}

/// A value of a query, or a segment of a path.
pub(crate) fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

fn channels_of(path: &str) -> Result<Vec<String>, UrlProblem> {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let mut channels: Vec<String> = Vec::new();
    for pair in query_pairs(query) {
        let (name, value) = pair.map_err(|_| UrlProblem::Query)?;
        // Which channel a variable stands for differs from client to client.
        let is_name = name == "channel" && !value.is_empty() && !has_variables(&value);
        if is_name && !channels.iter().any(|known| *known == value) {
            channels.push(value.into_owned());
        }
    }
    Ok(channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_its_parts() {
        let target =
            Target::parse("ws://127.0.0.1:8000/raw?channel=a&x=1&channel=b%20c&channel=a").unwrap();
        assert_eq!(target.host, "127.0.0.1:8000");
        assert_eq!(target.path, "/raw?channel=a&x=1&channel=b%20c&channel=a");
        assert_eq!(target.address, "127.0.0.1:8000".parse().unwrap());
        assert_eq!(target.channels, ["a", "b c"]);
    }

    #[test]
    fn channels_are_added_where_the_protocol_wants_them() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let target = Target::parse("ws://127.0.0.1:8000/raw?channel=a").unwrap();
        let target = target.with_channels(&names(&["b c&d", "a", "room:1"]));
        assert_eq!(target.channels, ["a", "b c&d", "room:1"]);
        let path = target.path_for(Protocol::Raw);
        assert_eq!(path, "/raw?channel=a&channel=b%20c%26d&channel=room:1");
        assert_eq!(channels_of(&path).unwrap(), target.channels);
        assert_eq!(target.path_for(Protocol::CentrifugeJson), "/raw?channel=a");
        let target = Target::parse("ws://127.0.0.1:8000").unwrap();
        let target = target.with_channels(&names(&["ü"]));
        assert_eq!(target.path_for(Protocol::Raw), "/?channel=%C3%BC");
    }

    #[test]
    fn a_channel_may_have_a_place_in_the_path() {
        let target =
            Target::parse("http://127.0.0.1/v1/stream/{channel}?offset=now&live=sse").unwrap();
        assert!(target.scheme == Scheme::Http && target.has_channel_place());
        let target = target.with_channels(&["a b".to_owned()]);
        let path = "/v1/stream/a%20b?offset=now&live=sse";
        assert_eq!(target.path_for(Protocol::Sse), path);
        assert_eq!(target.path_for(Protocol::LongPoll), path);
    }

    #[test]
    fn a_path_or_a_body_takes_one_more_channel() {
        let one_more = |path| with_one_more_channel(path, "a b");
        assert_eq!(one_more("/s/{channel}?x=1"), "/s/a%20b?x=1");
        assert_eq!(one_more("/raw"), "/raw?channel=a%20b");
        assert_eq!(one_more("/raw?channel=c"), "/raw?channel=c&channel=a%20b");
        let body = with_channel_in_json(r#"{"subs":{"{channel}":{}}}"#, "a\"b");
        assert_eq!(body, r#"{"subs":{"a\"b":{}}}"#);
    }

    #[test]
    fn parameters_are_taken_out_of_a_query() {
        let without = |path| without_parameters(path, &["offset", "cursor"]);
        assert_eq!(without("/a"), "/a");
        assert_eq!(without("/a?offset=1"), "/a");
        assert_eq!(without("/a?x=1&offset=1&cursor&y"), "/a?x=1&y");
        assert_eq!(without("/a?offsets=1"), "/a?offsets=1");
    }

    #[test]
    fn a_missing_path_and_port_have_defaults() {
        let target = Target::parse("ws://127.0.0.1?channel=a").unwrap();
        assert_eq!(
            (target.path.as_str(), target.address.port()),
            ("/?channel=a", 80)
        );
        assert_eq!(
            Target::parse("ws://[::1]:9/").unwrap().address,
            "[::1]:9".parse().unwrap()
        );
    }

    #[test]
    fn a_secure_target_knows_whom_its_certificate_names() {
        let target = Target::parse("WSS://127.0.0.1/x").unwrap();
        assert_eq!(
            (target.address.port(), target.scheme),
            (443, Scheme::WebSocket)
        );
        let name = |url: &str| Target::parse(url).unwrap().server_name;
        let address = ServerName::try_from("127.0.0.1").unwrap();
        assert_eq!(name("https://127.0.0.1:8443/"), Some(address));
        let local = ServerName::try_from("localhost").unwrap();
        assert_eq!(name("wss://localhost:1/"), Some(local));
        let address = ServerName::try_from("::1").unwrap();
        assert_eq!(name("wss://[::1]:1/"), Some(address));
        assert_eq!(name("ws://localhost:1/"), None);
    }

    #[test]
    fn a_bad_url_names_its_problem() {
        let problem = |url: &str| Target::parse(url).unwrap_err().problem;
        assert_eq!(
            problem("ftp://127.0.0.1/"),
            UrlProblem::Scheme(Scheme::WebSocket)
        );
        assert_eq!(problem("http:/"), UrlProblem::Scheme(Scheme::Http));
        assert_eq!(problem("wss://-/"), UrlProblem::ServerName);
        assert_eq!(problem("ws:///raw"), UrlProblem::NoHost);
        assert_eq!(problem("tcp://127.0.0.1"), UrlProblem::NoPort);
        assert_eq!(problem("tls://localhost:1/x"), UrlProblem::NoPath);
        assert_eq!(problem("ws://127.0.0.1:0/"), UrlProblem::Port);
        assert_eq!(problem("ws://127.0.0.1:99999/"), UrlProblem::Port);
        assert_eq!(problem("ws://127.0.0.1/a b"), UrlProblem::Character(17));
        assert_eq!(problem("ws://127.0.0.1/?channel=%ff"), UrlProblem::Query);
    }
}

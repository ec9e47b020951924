//! What clients speak: one list with all that depends on it.
//!
//! The command line, scenarios, their schema, the checks and the documentation read [`PROTOCOLS`]. A new protocol is a line
//! there, and what the engine does with it.

use crate::engine::plan::HttpKind;
use myriad_wire::centrifuge::Encoding;

/// What clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing of their own: they listen over a WebSocket, and their URL says to what.
    #[default]
    Raw,
    /// The Centrifuge client protocol in JSON, over a WebSocket.
    CentrifugeJson,
    /// The same in protobuf.
    CentrifugeProtobuf,
    /// HTTP requests that the server holds until there is something to say.
    LongPoll,
    /// Server-sent events.
    Sse,
    /// An HTTP answer without end, with a message on each line.
    HttpStream,
    /// HTTP requests of flows, one after the other on a kept connection.
    Http,
    /// Plain TCP, with messages in frames that the scenario describes.
    Tcp,
}

/// What the URLs of a protocol's servers begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `ws://`, or `wss://` with TLS.
    WebSocket,
    /// `http://`, or `https://` with TLS.
    Http,
    /// `tcp://`, or `tls://` with TLS.
    Tcp,
}

/// What clients of a protocol can say and hear where flows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Messages of any form, which the scenario has.
    Messages,
    /// Commands of a session in this encoding, and what it brings.
    Commands(Encoding),
    /// Requests of flows, and their answers.
    Requests,
    /// Nothing is said beside the request that gets them their messages.
    Listening(HttpKind),
}

/// How clients of a protocol say what they want to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channels {
    /// In their URL.
    InUrl,
    /// By command.
    ByCommand,
    /// There are none.
    None,
}

/// A protocol in all that the rest of the program asks of it.
struct Facts {
    protocol: Protocol,
    name: &'static str,
    /// Other names that are understood.
    other_names: &'static [&'static str],
    /// One line for people.
    summary: &'static str,
    scheme: Scheme,
    speech: Speech,
    channels: Channels,
}

/// All protocols, in the order of [`Protocol`].
const PROTOCOLS: [Facts; 8] = [
    Facts {
        protocol: Protocol::Raw,
        name: "raw",
        other_names: &["ws"],
        summary: "WebSocket with nothing of its own: clients listen to what their URL says, or say what a scenario has",
        scheme: Scheme::WebSocket,
        speech: Speech::Messages,
        channels: Channels::InUrl,
    },
    Facts {
        protocol: Protocol::CentrifugeJson,
        name: "centrifuge-json",
        other_names: &[],
        summary: "The Centrifuge client protocol in JSON, over WebSocket",
        scheme: Scheme::WebSocket,
        speech: Speech::Commands(Encoding::Json),
        channels: Channels::ByCommand,
    },
    Facts {
        protocol: Protocol::CentrifugeProtobuf,
        name: "centrifuge-protobuf",
        other_names: &[],
        summary: "The same in protobuf",
        scheme: Scheme::WebSocket,
        speech: Speech::Commands(Encoding::Protobuf),
        channels: Channels::ByCommand,
    },
    Facts {
        protocol: Protocol::LongPoll,
        name: "long-poll",
        other_names: &[],
        summary: "HTTP requests that the server holds until there is something to say",
        scheme: Scheme::Http,
        speech: Speech::Listening(HttpKind::LongPoll),
        channels: Channels::InUrl,
    },
    Facts {
        protocol: Protocol::Sse,
        name: "sse",
        other_names: &[],
        summary: "Server-sent events",
        scheme: Scheme::Http,
        speech: Speech::Listening(HttpKind::EventStream),
        channels: Channels::InUrl,
    },
    Facts {
        protocol: Protocol::HttpStream,
        name: "http-stream",
        other_names: &[],
        summary: "An HTTP answer without end, with a message on each line",
        scheme: Scheme::Http,
        speech: Speech::Listening(HttpKind::Lines),
        channels: Channels::InUrl,
    },
    Facts {
        protocol: Protocol::Http,
        name: "http",
        other_names: &[],
        summary: "HTTP requests, as the users of an API send them: one after the other on a kept connection",
        scheme: Scheme::Http,
        speech: Speech::Requests,
        channels: Channels::None,
    },
    Facts {
        protocol: Protocol::Tcp,
        name: "tcp",
        other_names: &[],
        summary: "Plain TCP: clients say what a scenario has, in frames that it describes, or lines",
        scheme: Scheme::Tcp,
        speech: Speech::Messages,
        channels: Channels::None,
    },
];

impl Protocol {
    /// All of them, in the order in which people are told.
    pub const ALL: [Self; PROTOCOLS.len()] = {
        let mut all = [Self::Raw; PROTOCOLS.len()];
        let mut index = 0;
        while index < PROTOCOLS.len() {
            all[index] = PROTOCOLS[index].protocol;
            index += 1;
        }
        all
    };

    /// Their names.
    pub(crate) const NAMES: [&str; PROTOCOLS.len()] = {
        let mut names = [""; PROTOCOLS.len()];
        let mut index = 0;
        while index < PROTOCOLS.len() {
            names[index] = PROTOCOLS[index].name;
            index += 1;
        }
        names
    };

    fn facts(self) -> &'static Facts {
        &PROTOCOLS[self as usize]
    }

    /// The protocol of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = PROTOCOLS.iter();
        let found = all.find(|facts| facts.name == name || facts.other_names.contains(&name));
        found.map(|facts| facts.protocol)
    }

    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Other names of it that are understood.
    #[must_use]
    pub fn other_names(self) -> &'static [&'static str] {
        self.facts().other_names
    }

    /// One line for people: what it is.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.facts().summary
    }

    /// What the URLs of its servers begin with.
    #[must_use]
    pub fn scheme(self) -> Scheme {
        self.facts().scheme
    }

    /// What clients can say and hear.
    pub(crate) fn speech(self) -> Speech {
        self.facts().speech
    }

    /// How messages are written; none where clients have no commands.
    pub(crate) fn encoding(self) -> Option<Encoding> {
        match self.speech() {
            Speech::Commands(encoding) => Some(encoding),
            Speech::Messages | Speech::Requests | Speech::Listening(_) => None,
        }
    }

    /// Whether clients begin a session with commands.
    pub(crate) fn has_session(self) -> bool {
        self.encoding().is_some()
    }

    /// Whether clients say what the scenario has, in any form.
    pub(crate) fn has_messages(self) -> bool {
        self.speech() == Speech::Messages
    }

    /// Whether clients send the requests of flows.
    pub(crate) fn has_requests(self) -> bool {
        self.speech() == Speech::Requests
    }

    /// Whether clients have channels.
    pub(crate) fn has_channels(self) -> bool {
        self.facts().channels != Channels::None
    }

    /// How clients listen over HTTP; none where they do not, also where they send requests over HTTP.
    pub(crate) fn listening(self) -> Option<HttpKind> {
        match self.speech() {
            Speech::Listening(kind) => Some(kind),
            Speech::Messages | Speech::Requests | Speech::Commands(_) => None,
        }
    }

    /// Whether the requests of clients are held until there is something to say.
    pub(crate) fn is_polling(self) -> bool {
        self.listening() == Some(HttpKind::LongPoll)
    }

    /// Whether the channels of clients stand in their URL.
    pub(crate) fn has_channels_in_url(self) -> bool {
        self.facts().channels == Channels::InUrl
    }

    /// The names of those for which this holds, for people: `a, b or c`.
    pub(crate) fn listed(is_meant: impl Fn(Self) -> bool) -> String {
        let names = Self::ALL.into_iter().filter(|protocol| is_meant(*protocol));
        let names: Vec<&str> = names.map(Self::name).collect();
        match names.split_last() {
            Some((last, before)) if !before.is_empty() => {
                format!("{} or {last}", before.join(", "))
            }
            Some((last, _)) => (*last).to_owned(),
            None => String::new(),
        }
    }
}

impl Scheme {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::WebSocket, Self::Http, Self::Tcp];

    /// The scheme without TLS.
    #[must_use]
    pub fn plain(self) -> &'static str {
        match self {
            Self::WebSocket => "ws",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }

    /// The scheme with TLS.
    #[must_use]
    pub fn secure(self) -> &'static str {
        match self {
            Self::WebSocket => "wss",
            Self::Http => "https",
            Self::Tcp => "tls",
        }
    }

    /// The form of a URL, for those who wrote another.
    pub(crate) fn form(self) -> String {
        let path = match self {
            Self::WebSocket | Self::Http => "/PATH",
            Self::Tcp => "",
        };
        format!("{}://HOST:PORT{path}", self.plain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::threshold::LoadOption;
    use crate::scenario::STARTER;

    impl Facts {
        /// Its line in the table of the documentation.
        fn row(&self) -> String {
            let names = std::iter::once(&self.name).chain(self.other_names);
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            let (says, hears) = match self.speech {
                Speech::Messages => ("messages of any form", "messages"),
                Speech::Commands(_) => ("commands", "publications, messages, replies"),
                Speech::Requests => ("requests", "answers"),
                Speech::Listening(HttpKind::LongPoll) => ("-", "answers to polls"),
                Speech::Listening(HttpKind::EventStream) => ("-", "events"),
                Speech::Listening(HttpKind::Lines | HttpKind::Requests) => ("-", "lines"),
            };
            let channels = match self.channels {
                Channels::InUrl => "in the URL",
                Channels::ByCommand => "by command",
                Channels::None => "-",
            };
            format!(
                "| {} | `{}://`, `{}://` | {} | {says} | {hears} | {channels} |",
                names.join(", "),
                self.scheme.plain(),
                self.scheme.secure(),
                self.summary
            )
        }
    }

    #[test]
    fn each_protocol_is_at_its_place_and_has_names_of_its_own() {
        let mut names: Vec<&str> = Vec::new();
        for (index, facts) in PROTOCOLS.iter().enumerate() {
            assert_eq!(facts.protocol as usize, index, "{}", facts.name);
            for name in std::iter::once(&facts.name).chain(facts.other_names) {
                assert_eq!(Protocol::named(name), Some(facts.protocol));
                assert!(!names.contains(name), "{name}");
                names.push(name);
            }
        }
        assert_eq!(Protocol::named("rwa"), None);
        assert_eq!(Protocol::default().name(), "raw");
    }

    #[test]
    fn the_pages_and_the_first_scenario_name_every_protocol() {
        let scenarios = include_str!("../../../docs/scenarios.md");
        for facts in &PROTOCOLS {
            let row = facts.row();
            let is_there = scenarios.lines().any(|line| line == row);
            assert!(is_there, "docs/scenarios.md has no line\n{row}");
        }
        let swarm = include_str!("../../../docs/swarm.md");
        let row = swarm.lines().find(|line| line.starts_with("| `--protocol"));
        let row = row.expect("the option has a line");
        let key = STARTER.find("\nprotocol = ").expect("it has the key");
        let comment = STARTER[..key].lines().last().expect("a comment above it");
        for name in Protocol::NAMES {
            assert!(row.contains(&format!("`{name}`")), "docs/swarm.md: {name}");
            assert!(comment.contains(name), "starter.toml: {name}");
        }
    }

    #[test]
    fn names_are_listed_for_people() {
        let of_http = LoadOption::Http.name();
        let of_polls = LoadOption::Poll.name();
        let listed = Protocol::listed(|protocol| protocol.listening().is_some());
        assert_eq!(listed, "long-poll, sse or http-stream");
        let listed = Protocol::listed(|protocol| protocol.scheme() == Scheme::Http);
        assert_eq!(of_http, format!("--protocol {listed}"));
        let polling = Protocol::listed(Protocol::is_polling);
        assert_eq!(of_polls, format!("--protocol {polling}"));
        assert_eq!(Protocol::listed(|_| false), "");
    }
}

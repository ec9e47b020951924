//! What a controller and its agents tell each other over NATS, as JSON.
//!
//! | subject | from, to | what |
//! | --- | --- | --- |
//! | `myriad.swarm.hello` | agents to everybody, once a second | [`Hello`] |
//! | `myriad.swarm.agent.ID` | a controller to an agent, which replies | [`Request`], [`Answer`] |
//! | `myriad.swarm.run.RUN.clock` | an agent to its controller, which replies | the controller's time |
//! | `myriad.swarm.run.RUN.beacon` | a controller to its agents, ten times a second | [`Beacon`] |
//! | `myriad.swarm.run.RUN.state.ID` | an agent to its controller, five times a second | `state::State` |
//!
//! RUN is a secret of 128 bits that only a controller and its agents know. A message that cannot be read, that is too large or that
//! names another run is passed over: strangers may publish there, too.

use super::offset::Offset;
use crate::clock::Nanos;
use crate::engine::deal::Slice;
use crate::engine::shared::Order;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where agents say that they are there.
pub(super) const HELLO: &str = "myriad.swarm.hello";

/// Largest message that is looked at: a NATS server takes 1 MiB.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// Bytes of a file in one message; base64 makes a third more of them.
pub(super) const FILE_PART_BYTES: usize = 256 << 10;

/// Largest file that is handed to agents.
pub(super) const FILE_BYTES_MAX: usize = 64 << 20;

/// Longest name of an agent or a controller, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Longest reason of an agent that is shown, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Most agents of a fleet.
pub(super) const AGENTS_MAX: usize = 1024;

/// Where an agent is asked.
pub(super) fn subject_of_agent(id: &str) -> String {
    format!("myriad.swarm.agent.{id}")
}

/// A subject of a run.
pub(super) fn subject_of_run(run: &str, about: &str) -> String {
    format!("myriad.swarm.run.{run}.{about}")
}

/// Reads a message; none if it is none of ours.
pub(super) fn read<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    if payload.len() > BYTES_MAX {
        return None;
    }
    serde_json::from_slice(payload).ok()
}

/// A message as bytes.
pub(super) fn written<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys")
}

/// Whether a text may be an id: it becomes a part of a subject.
pub(super) fn is_id(text: &str) -> bool {
    let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (8..=32).contains(&text.len()) && text.bytes().all(is_hexadecimal)
}

/// A name as people may see it: without what a terminal would carry out.
pub(super) fn shown_name(name: &str) -> String {
    let mut shown: String = name.chars().filter(|it| !it.is_control()).collect();
    while shown.len() > NAME_BYTES_MAX {
        shown.pop();
    }
    shown
}

/// A text as people may see it: line feeds stay, and what else a terminal would carry out does not.
pub(super) fn shown_text(text: &str) -> String {
    let is_shown = |it: &char| *it == '\n' || !it.is_control();
    let mut shown = String::new();
    for it in text.chars().filter(is_shown) {
        if shown.len() + it.len_utf8() > TEXT_BYTES_MAX {
            shown.push_str("...");
            break;
        }
        shown.push(it);
    }
    shown
}

/// What a machine allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Capacity {
    /// Processors that the agent may use.
    pub processors: u32,
    /// Memory that is available, in bytes.
    pub memory_bytes: u64,
    /// Slots of a descriptor table.
    pub descriptors: u64,
    /// Ports of its source addresses towards one destination.
    pub ports: u64,
    /// Whether io_uring works there.
    pub io_uring: bool,
}

/// An agent says that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub id: String,
    pub name: String,
    /// The version of `myriad`: only the same understand each other.
    pub version: String,
    pub capacity: Capacity,
    /// The controller that it works for; none if it waits for one.
    pub busy_with: Option<String>,
}

/// What a controller asks of an agent. All but the first need the run that the agent was claimed for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum Request {
    /// Work for me.
    Claim {
        run: String,
        controller: String,
        version: String,
    },
    /// Take the next part of a file.
    File {
        run: String,
        file: FileKind,
        at: usize,
        base64: String,
    },
    /// Get ready.
    Prepare { run: String, job: Box<Job> },
    /// Begin at this time of the controller's.
    Start { run: String, at: Nanos },
    /// Work for me no more.
    Release { run: String },
}

/// A file of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FileKind {
    Scenario,
    Accounts,
    Tokens,
    Ca,
}

/// What an agent answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// It works for another controller, with that name.
    Busy { with: String },
    /// It is ready, and its clock stands so.
    Ready { clock: Offset },
    /// It cannot, and why.
    Refused { reason: String },
}

/// What an agent has to do, beside the files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// Changes of the scenario, as with `--set`.
    pub sets: Vec<String>,
    /// Clients of the whole crowd.
    pub connections: u64,
    /// How long they are held.
    pub duration: Option<Duration>,
    /// `io_uring` or `epoll`, if one is demanded.
    pub driver: Option<String>,
    /// The whole crowd, dealt to agents, and which of the slices is this agent's.
    pub slices: Vec<Slice>,
    pub own: usize,
    /// The run in stamps, and the seed of what is random.
    pub run: u16,
    pub seed: u64,
}

/// What a controller tells all its agents, again and again: one that is lost does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beacon {
    /// Rising: an older one is passed over.
    pub number: u64,
    pub order: Order,
    /// When the whole crowd was connected.
    pub connected_at: Option<Nanos>,
    /// When the schedules of messages begin and end.
    pub schedule: Option<(Nanos, Nanos)>,
    /// Publications before this one are measured.
    pub measured_from: u64,
    /// Agents, by id, that the controller has given up: they stop.
    pub lost: Vec<String>,
}

impl Beacon {
    /// Before there is a crowd: that the controller is there.
    pub(super) fn before_the_run() -> Self {
        Self {
            number: 0,
            order: Order::Run,
            connected_at: None,
            schedule: None,
            measured_from: 0,
            lost: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_say_is_passed_over() {
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "{\"ask\":\"claim\"}",
            "{\"ask\":\"prepare\",\"run\":\"a\",\"job\":{}}",
            "{\"ask\":\"file\",\"run\":\"a\",\"file\":\"passwd\",\"at\":0,\"base64\":\"\"}",
            "{\"ask\":\"start\",\"run\":\"a\",\"at\":-1}",
            "\u{0}\u{1}",
        ] {
            assert!(read::<Request>(text.as_bytes()).is_none(), "{text}");
            assert!(read::<Beacon>(text.as_bytes()).is_none(), "{text}");
            assert!(read::<Hello>(text.as_bytes()).is_none(), "{text}");
        }
        let large = vec![b' '; BYTES_MAX + 1];
        assert!(read::<serde_json::Value>(&large).is_none());
        let deep = "[".repeat(100_000);
        assert!(read::<serde_json::Value>(deep.as_bytes()).is_none());
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let request = Request::Start {
            run: "0123456789abcdef".to_owned(),
            at: Nanos(7),
        };
        let read: Request = read(&written(&request)).unwrap();
        assert_eq!(written(&read), written(&request));
        assert!(matches!(read, Request::Start { at: Nanos(7), run } if run.len() == 16));
    }

    #[test]
    fn ids_and_names_are_harmless() {
        assert!(
            is_id("0123abcd") && !is_id("0123abc") && !is_id("0123.abc>") && !is_id("0123ABCD")
        );
        assert_eq!(shown_name("a\u{1b}[31m\nb"), "a[31mb");
        assert!(shown_name(&"ü".repeat(100)).len() <= NAME_BYTES_MAX);
        assert_eq!(shown_text("a\u{1b}[2J\r\nb\u{9b}c"), "a[2J\nbc");
        let long = shown_text(&"ü".repeat(TEXT_BYTES_MAX));
        assert_eq!(long, "ü".repeat(TEXT_BYTES_MAX / 2) + "...");
    }
}

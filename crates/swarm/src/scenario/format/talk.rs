//! The sections about what clients and callers say: accounts, groups, opening, replies and flows.

use crate::scenario::quantity::{Count, Rate, ThinkTime};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Accounts of the clients, for `${account:COLUMN}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Accounts {
    /// A CSV file whose first line names the columns. The clients take its rows in turn.
    pub file: String,
}

/// How the clients are dealt out to groups.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Groups {
    /// To so many.
    pub count: Option<Count>,
    /// Which sizes they have.
    pub assign: Option<Assign>,
    /// Of `zipf`: the size of group N is in proportion to 1/N to this power.
    pub exponent: Option<f64>,
    /// To groups of these sizes, in place of `count`. They add up to the clients.
    pub sizes: Vec<u32>,
    /// In place of both: those whose accounts have the same in this column are a group.
    pub column: Option<String>,
    /// The channel that all of a group subscribe to, such as `room-${group}`: by command where they have a session, and else in
    /// their URL, in place of `{channel}` or as `channel=`. It may have `${group}` and `${account:COLUMN}`.
    pub channel: Option<String>,
}

/// Which sizes groups have.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Assign {
    /// Nearly the same.
    #[default]
    Even,
    /// The first are the largest.
    Zipf,
}

/// What each client says when it opens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Opening {
    /// Messages, in this order. They may have `${terminal}`, `${group}`, `${account:COLUMN}`, `${time}` and `${random:SIZE}`.
    pub send: Vec<String>,
    /// A regular expression for each of them that its answer matches, or an empty text. The client says the next one when the
    /// answer has come, and is connected when all have.
    #[serde(default)]
    pub answers: Vec<String>,
    /// Send them as binary messages.
    #[serde(default)]
    pub binary: bool,
}

/// What each client says when something comes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Reply {
    /// A regular expression that the message matches.
    pub to: String,
    /// What to say: with the variables of `opening` and `${match}`, what the first group of `to` has matched.
    pub send: String,
    /// Send it as a binary message.
    #[serde(default)]
    pub binary: bool,
}

/// Messages of one kind: of clients over their connections or, with `url`, of callers beside the crowd.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Flow {
    /// Its name in the report and in thresholds.
    pub name: String,
    /// Messages a second over the whole run. The clients take turns. Either this or `think`.
    pub rate: Option<Rate>,
    /// Each client sends, waits for the answer, and thinks for so long before it sends again: `2s`, `1s..5s`, or `exp(2s)` for an
    /// exponential distribution with this mean.
    pub think: Option<ThinkTime>,
    /// The message, with the variables of `opening`, `${sequence}` and `${stamp}`. With `url` the body of the request, with
    /// `action` the data of the command.
    pub send: Option<String>,
    /// What clients with a session do. Without it they publish `send`.
    pub action: Option<Action>,
    /// The channel in which they do it. Without it that of their group.
    pub channel: Option<String>,
    /// Of `history`: the most publications that are asked for.
    pub limit: Option<u32>,
    /// Send it as a binary message.
    #[serde(default)]
    pub binary: bool,
    /// Who must receive it. Without it the group or, without a stamp and of requests of clients, nobody but who asks.
    pub expect: Option<Expect>,
    /// Where the stamp is in what comes back: a JSON pointer, such as `/data/id`.
    pub stamp_json: Option<String>,
    /// The same as a regular expression: its first group, or the whole match.
    pub stamp_regex: Option<String>,
    /// The same as the number of the first byte, from 0.
    pub stamp_offset: Option<u32>,
    /// Sends an HTTP request there in place of a message. Path and query may have variables.
    pub url: Option<String>,
    /// What clients of `http` ask for: path and query, behind the path of the target. It may have variables.
    pub path: Option<String>,
    /// Its method. Without it POST with `send`, and GET without. With the action `rpc` the method of the application.
    pub method: Option<String>,
    /// Its headers, which may have variables.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A regular expression that the body of its answer matches, or the data of the reply to `rpc`. Without it any answer of
    /// success will do.
    pub answer: Option<String>,
    /// Statuses that its answer may have. Without them any of success.
    #[serde(default)]
    pub status: Vec<u16>,
    /// Requests under way at once, each on a kept connection.
    pub connections: Option<u32>,
}

/// Who must receive a message.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Expect {
    /// All of the sender's group.
    Group,
    /// All of it but the sender.
    Others,
    /// The sender alone.
    Sender,
    /// All clients.
    All,
    /// Nobody but who asks, and gets the answer to the request or the command.
    Answer,
}

/// What clients with a session do.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    /// Publish `send` to the channel.
    Publish,
    /// Call the application's `method` with `send`.
    Rpc,
    /// Ask for publications that the channel keeps.
    History,
    /// Ask who is subscribed to the channel.
    Presence,
    /// Ask how many are subscribed to the channel.
    PresenceStats,
    /// Send `send` to the application, which does not answer.
    Send,
}

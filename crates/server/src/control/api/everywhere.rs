//! Methods that concern the clients of all nodes of a cluster: each node answers for its own, and the asked one puts the results
//! together.
//!
//! A list from which nodes are missing is still of use, and says which: `unanswered_nodes`. A node whose answer has the form of another
//! version is one of them. An order that a node has not confirmed fails: whoever disconnects a user must not believe that it is done.

use super::super::Control;
use super::debugging;
use super::fault::{Code, Fault};
use super::method::{Command, Method, Request};
use super::reading::Shape;
use super::reply::{self, Json, Reply};
use crate::nodes::{Nodes, Wanted, Whom};
use myriad_broker::Gathered;
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// Time for the way to other nodes and back, beside that of their shards.
const WAY_TIMEOUT: Duration = Duration::from_millis(500);

/// A method that concerns the clients of all nodes.
pub(super) trait Everywhere<'a>: Request<'a> + Serialize {
    /// Settles what each node would otherwise decide by itself.
    fn settle(&mut self) {}

    /// Puts the results of all nodes together. None says anything for methods that do something: that they do it is all.
    fn merge(&self, results: &mut Results<'_>) -> Merged;
}

/// The results of nodes, each in the form of its version.
pub(super) struct Results<'j> {
    /// By the nodes' names. This node's own is the first.
    all: Vec<(&'j str, &'j RawValue)>,
    /// The nodes whose results have another version's form, and what is wrong with them.
    unreadable: Vec<(&'j str, Fault)>,
}

impl<'j> Results<'j> {
    /// The result of this node, which has this name.
    pub(super) fn new(node: &'j str, own: &'j RawValue) -> Self {
        Self {
            all: vec![(node, own)],
            unreadable: Vec::new(),
        }
    }

    /// The result of another node.
    pub(super) fn push(&mut self, node: &'j str, result: &'j RawValue) {
        self.all.push((node, result));
    }

    /// Those that have this version's form. The nodes of the others count as not answering.
    pub(super) fn read<T: Deserialize<'j>>(&mut self) -> Vec<T> {
        let mut read = Vec::with_capacity(self.all.len());
        for &(node, result) in &self.all {
            match parsed(node, result.get()) {
                Ok(result) => read.push(result),
                Err(fault) => self.unreadable.push((node, fault)),
            }
        }
        read
    }
}

/// What comes of the results of all nodes.
pub(super) enum Merged {
    /// A result from which nodes may be missing.
    List(Reply),
    /// Something was done, on the nodes that have answered.
    Done,
}

/// What a node answers.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<Error<'a>>,
}

#[derive(Deserialize)]
struct Error<'a> {
    code: u32,
    #[serde(borrow, default)]
    detail: Cow<'a, str>,
}

impl Error<'_> {
    fn fault(&self, node: &str) -> Fault {
        let detail = format!("node {node}: {}", self.detail);
        Fault::new(Code::numbered(self.code), detail)
    }
}

/// When an answer of other nodes that are asked now comes too late.
pub(in super::super) fn deadline() -> Instant {
    Control::answers_deadline() + WAY_TIMEOUT
}

/// A random number.
pub(in super::super) fn seed() -> u64 {
    RandomState::new().hash_one(())
}

/// A request as all nodes are sent it.
pub(super) fn written_request<'a>(request: &mut impl Everywhere<'a>) -> String {
    request.settle();
    serde_json::to_string(&request).expect("a request has names for keys")
}

/// What this node and all others answer.
pub(super) async fn ask_all(
    control: &Control,
    nodes: &Nodes,
    method: Method,
    request: String,
) -> (Reply, Gathered) {
    let seed = seed();
    let wanted = Wanted {
        what: method.name(),
        seed,
        payload: request.clone().into(),
    };
    tokio::join!(
        answer_node(control, method, seed, &request),
        nodes.ask(Whom::Others, wanted, deadline()),
    )
}

/// Answers a request as a node among others.
pub(in super::super) async fn answer_node(
    control: &Control,
    method: Method,
    seed: u64,
    request: &str,
) -> Reply {
    let command: Command<'_> = method
        .read(&mut Deserializer::from_str(request))
        .map_err(|error| Fault::bad(error.to_string()))?;
    command.answer_node(control, seed).await
}

/// One answer of the results of all nodes. `node` is this one. `remark` gets each whose answer has the form of another version, and what
/// is wrong with the answer.
pub(super) fn put_together<'a>(
    request: &impl Everywhere<'a>,
    node: &str,
    own: Json,
    others: &Gathered,
    mut remark: impl FnMut(&str, &str),
) -> Reply {
    let own = RawValue::from_string(own.0).expect("results are JSON");
    let mut results = Results::new(node, &own);
    let mut missing: Vec<&str> = others.missing.iter().map(|node| &**node).collect();
    let mut refused = None;
    for (node, answer) in &others.answers {
        match told(node, answer) {
            Ok(result) => results.push(node, result),
            Err(fault) => {
                if fault.is_of_another_version() {
                    remark(node, fault.detail());
                }
                missing.push(node);
                refused.get_or_insert(fault);
            }
        }
    }
    let merged = request.merge(&mut results);
    let Results { all, unreadable } = results;
    for (node, fault) in &unreadable {
        remark(node, fault.detail());
        missing.push(node);
    }
    match (merged, refused) {
        // The list of a node is too long for a whole one, and so is that of all.
        (Merged::List(_), Some(fault)) if fault.code == Code::LimitExceeded => Err(fault),
        (Merged::List(list), _) => list.map(|list| with_missing(list, &missing)),
        (Merged::Done, Some(fault)) => Err(fault),
        (Merged::Done, None) if missing.is_empty() => Ok(Json::empty()),
        (Merged::Done, None) => Err(Fault::new(
            Code::Internal,
            format!(
                "done on {} nodes, but node {} did not answer in time; send the request again",
                all.len(),
                missing.join(", ")
            ),
        )),
    }
}

/// The result in a node's answer.
pub(in super::super) fn told<'j>(node: &str, answer: &'j [u8]) -> Result<&'j RawValue, Fault> {
    read_answer(node, answer)?.map_err(|error| error.fault(node))
}

/// As [`told`], of a request in which this node has found nothing wrong: a node that refuses it is of another version.
pub(super) fn told_of_checked<'j>(node: &str, answer: &'j [u8]) -> Result<&'j RawValue, Fault> {
    read_answer(node, answer)?.map_err(|error| match Code::numbered(error.code) {
        Code::BadRequest => Fault::refused_elsewhere(node, &error.detail),
        _ => error.fault(node),
    })
}

/// A node's result, or its error.
fn read_answer<'j>(node: &str, answer: &'j [u8]) -> Result<Result<&'j RawValue, Error<'j>>, Fault> {
    let told = serde_json::from_slice::<Told<'_>>(answer);
    match told.map_err(|error| Fault::of_another_version(node, &error))? {
        Told {
            result: Some(result),
            ..
        } => Ok(Ok(result)),
        Told {
            error: Some(error), ..
        } => Ok(Err(error)),
        Told { .. } => {
            let what = "it has neither a result nor an error";
            Err(Fault::of_another_version(node, &what))
        }
    }
}

/// A node's result in its form.
pub(super) fn parsed<'j, T: Deserialize<'j>>(node: &str, result: &'j str) -> Result<T, Fault> {
    serde_json::from_str(result).map_err(|error| Fault::of_another_version(node, &error))
}

/// A result that names the nodes that are missing in it.
pub(super) fn with_missing(Json(mut json): Json, missing: &[&str]) -> Json {
    if missing.is_empty() {
        return Json(json);
    }
    json.pop();
    let comma = if json.len() > 1 { "," } else { "" };
    json.push_str(comma);
    json.push_str("\"unanswered_nodes\":");
    json.push_str(&Json::of(&missing).0);
    json.push('}');
    Json(json)
}

/// An answer as other nodes read it.
pub(in super::super) fn written(reply: &Reply) -> Vec<u8> {
    let mut text = String::with_capacity(64);
    debugging::explained(|| reply::write(reply, &mut text));
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::disconnect::Disconnect;
    use super::super::presence::Presence;
    use super::*;

    fn gathered(answers: &[(&str, &str)], missing: &[&str]) -> Gathered {
        Gathered {
            answers: answers
                .iter()
                .map(|(node, json)| ((*node).into(), json.as_bytes().to_vec()))
                .collect(),
            missing: missing.iter().map(|node| (*node).into()).collect(),
        }
    }

    fn of<'a, R: Everywhere<'a>>(request: &'a str, own: &str, others: &Gathered) -> Reply {
        let (reply, _) = with_remarks::<R>(request, own, others);
        reply
    }

    fn with_remarks<'a, R: Everywhere<'a>>(
        request: &'a str,
        own: &str,
        others: &Gathered,
    ) -> (Reply, Vec<(String, String)>) {
        let request: R = serde_json::from_str(request).unwrap();
        let mut remarks = Vec::new();
        let remark = |node: &str, why: &str| remarks.push((node.to_owned(), why.to_owned()));
        let reply = put_together(&request, "a0", Json(own.into()), others, remark);
        (reply, remarks)
    }

    #[test]
    fn an_order_succeeds_only_if_all_nodes_confirm_it() {
        let order = |others| of::<Disconnect<'_>>(r#"{"user":"7"}"#, "{}", &others);
        assert_eq!(order(gathered(&[], &[])), Ok(Json::empty()));
        let confirmed = ("b", r#"{"result":{}}"#);
        assert_eq!(order(gathered(&[confirmed], &[])), Ok(Json::empty()));
        let fault = order(gathered(&[confirmed], &["c"])).unwrap_err();
        assert_eq!(fault.code, Code::Internal);
        assert!(
            fault.detail().contains("node c did not answer"),
            "{fault:?}"
        );
        let refused = r#"{"error":{"code":111,"message":"too many requests","detail":"wait"}}"#;
        let fault = order(gathered(&[("b", refused)], &[])).unwrap_err();
        assert_eq!(
            (fault.code, fault.detail()),
            (Code::TooManyRequests, "node b: wait")
        );
        for other in ["", "{}", "7", "\u{0}"] {
            let fault = order(gathered(&[("b", other)], &[])).unwrap_err();
            assert!(fault.detail().contains("another version"), "{fault:?}");
        }
    }

    #[test]
    fn a_list_says_whose_clients_are_missing() {
        let list = |others| {
            let own = r#"{"presence":{}}"#;
            let reply = of::<Presence<'_>>(r#"{"channel":"a"}"#, own, &others);
            reply.map(|Json(json)| json)
        };
        let theirs = r#"{"result":{"presence":{"x":{"user":"1"}}}}"#;
        assert_eq!(
            list(gathered(&[("b", theirs)], &["c"])).unwrap(),
            r#"{"presence":{"x":{"user":"1"}},"unanswered_nodes":["c"]}"#
        );
        let busy = r#"{"error":{"code":111,"detail":"wait"}}"#;
        assert_eq!(
            list(gathered(&[("b", busy)], &[])).unwrap(),
            r#"{"presence":{},"unanswered_nodes":["b"]}"#
        );
        let long = r#"{"error":{"code":106,"detail":"long"}}"#;
        assert_eq!(
            list(gathered(&[("b", long)], &[])).unwrap_err().code,
            Code::LimitExceeded
        );
    }

    #[test]
    fn a_node_of_another_version_is_missing_in_a_list() {
        let own = r#"{"presence":{"x":{"user":"1"}}}"#;
        let list = |others: &[(&str, &str)]| {
            let others = gathered(others, &["c"]);
            let (reply, remarks) = with_remarks::<Presence<'_>>(r#"{"channel":"a"}"#, own, &others);
            (reply.unwrap().0, remarks)
        };
        let good = ("a", r#"{"result":{"presence":{"y":{"user":"2"}}}}"#);
        for (other, why) in [
            (r#"{"result":{"members":[]}}"#, "missing field `presence`"),
            (r#"{"result":{"presence":[]}}"#, "expected a map"),
            (r#"{"result":7}"#, "invalid type: integer `7`"),
            ("", "EOF"),
            ("{}", "neither a result nor an error"),
        ] {
            let (json, remarks) = list(&[good, ("b", other)]);
            let expected =
                r#"{"presence":{"x":{"user":"1"},"y":{"user":"2"}},"unanswered_nodes":["c","b"]}"#;
            assert_eq!(json, expected, "{other}");
            let [(node, said)] = &remarks[..] else {
                panic!("{remarks:?}");
            };
            assert_eq!(node, "b");
            let begin = "node b answers in a form of another version: ";
            assert!(said.starts_with(begin) && said.contains(why), "{said}");
        }
        let busy = r#"{"error":{"code":111,"detail":"wait"}}"#;
        let (_, remarks) = list(&[good, ("b", busy)]);
        assert_eq!(remarks, [], "it is of this version");
    }

    #[test]
    fn this_node_has_a_name_like_the_others() {
        let request = r#"{"channel":"a"}"#;
        let (reply, remarks) =
            with_remarks::<Presence<'_>>(request, r#"{"presence":[]}"#, &gathered(&[], &["c"]));
        assert_eq!(
            reply.unwrap().0,
            r#"{"presence":{},"unanswered_nodes":["c","a0"]}"#
        );
        let named: Vec<_> = remarks.iter().map(|(node, _)| &**node).collect();
        assert_eq!(named, ["a0"]);
    }
}

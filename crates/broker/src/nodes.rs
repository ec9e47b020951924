//! Which other nodes of a cluster are there, and what they answer.

use myriad_hub::Now;
use std::collections::BTreeMap;
use thiserror::Error;

/// How often a node says hello.
pub const HELLO_NS: u64 = 1_000_000_000;
/// A node that has said nothing for so long is gone.
const GONE_NS: u64 = 3_500_000_000;
/// Other nodes at most: what else says hello with our prefix is none of ours.
const NODES_MAX: usize = 1_000;
/// Bytes of a node's name.
const NAME_BYTES_MAX: usize = 64;

/// Whether this may be a node's name: ASCII letters and digits, as nodes make them. Names come from whoever may publish in NATS, and become
/// parts of subjects and of lines in logs.
#[must_use]
pub fn is_node_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The other nodes that have said hello lately.
#[derive(Debug)]
pub struct Nodes {
    ours: Box<str>,
    heard: BTreeMap<Box<str>, Other>,
    /// Those that went, until somebody takes them.
    gone: Vec<Box<str>>,
}

/// Another node.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// When it said hello last.
    at: Now,
    /// Whether it hears all of its logs, as it says.
    hears: bool,
}

impl Nodes {
    /// As the node of this name sees them: it has heard nobody yet.
    #[must_use]
    pub fn new(ours: &str) -> Self {
        Self {
            ours: ours.into(),
            heard: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    /// A node says hello. Whether it was not there before.
    pub fn hear(&mut self, node: &str, now: Now) -> bool {
        self.forget_silent(now);
        if let Some(other) = self.heard.get_mut(node) {
            other.at = now;
            return false;
        }
        let may_be = is_node_name(node) && *node != *self.ours;
        let is_new = may_be && self.heard.len() < NODES_MAX;
        if is_new {
            let hears = false;
            self.heard.insert(node.into(), Other { at: now, hears });
        }
        is_new
    }

    /// A node that is there says whether it hears all of its logs.
    pub fn note_hearing(&mut self, node: &str, hears: bool) {
        if let Some(other) = self.heard.get_mut(node) {
            other.hears = hears;
        }
    }

    /// Whether one of them hears all of its logs.
    pub fn any_hears(&mut self, now: Now) -> bool {
        self.forget_silent(now);
        self.heard.values().any(|other| other.hears)
    }

    /// A node says goodbye.
    pub fn forget(&mut self, node: &str) {
        if let Some((node, _)) = self.heard.remove_entry(node) {
            self.gone.push(node);
        }
    }

    /// Those that have gone since this was asked last. Before a node that is back counts as new, it has gone.
    pub fn take_gone(&mut self, now: Now) -> Vec<Box<str>> {
        self.forget_silent(now);
        std::mem::take(&mut self.gone)
    }

    /// Nobody can be heard now: nobody is gone because of that.
    pub fn hold(&mut self, now: Now) {
        for other in self.heard.values_mut() {
            other.at = now;
        }
    }

    /// Their names, in order.
    pub fn others(&mut self, now: Now) -> impl Iterator<Item = &str> {
        self.forget_silent(now);
        self.heard.keys().map(|node| &**node)
    }

    fn forget_silent(&mut self, now: Now) {
        let is_gone = |_: &_, other: &mut Other| now.0.saturating_sub(other.at.0) > GONE_NS;
        let gone = self.heard.extract_if(.., is_gone);
        self.gone.extend(gone.map(|(node, _)| node));
    }
}

/// Answers of several nodes to one question. A long answer comes in parts.
#[derive(Debug)]
pub struct Gather {
    answers: BTreeMap<Box<str>, Answer>,
    under_way: usize,
    bytes_left: usize,
}

#[derive(Debug)]
enum Answer {
    /// So many parts have come.
    Begun { parts: u32, bytes: Vec<u8> },
    /// All parts have come.
    Whole(Vec<u8>),
    /// There will be none.
    Failed,
}

/// What came of a question.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// The answers, in the order of the nodes' names.
    pub answers: Vec<(Box<str>, Vec<u8>)>,
    /// The nodes that did not answer, or whose answers are incomplete.
    pub missing: Vec<Box<str>>,
}

/// Why an answer counts as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GatherError {
    /// A part before it was lost.
    #[error("a part of its answer was lost")]
    Part,
    /// All answers together have more bytes than may be gathered.
    #[error("the answers of all nodes have too many bytes")]
    Bytes,
}

impl Gather {
    /// Waits for these nodes, and for so many bytes of all of them.
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a str>, bytes_max: usize) -> Self {
        let begun = || Answer::Begun {
            parts: 0,
            bytes: Vec::new(),
        };
        let answers = nodes.into_iter().map(|node| (node.into(), begun()));
        let answers: BTreeMap<_, _> = answers.collect();
        Self {
            under_way: answers.len(),
            answers,
            bytes_left: bytes_max,
        }
    }

    /// Whether nothing more is waited for.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.under_way == 0
    }

    /// A part of a node's answer comes, counted from 0. Answers that nobody waits for are ignored.
    ///
    /// # Errors
    /// The node's answer cannot become whole any more: it counts as missing.
    pub fn take(
        &mut self,
        node: &str,
        part: u32,
        is_last: bool,
        data: &[u8],
    ) -> Result<(), GatherError> {
        let Some(answer) = self.answers.get_mut(node) else {
            return Ok(());
        };
        let Answer::Begun { parts, bytes } = answer else {
            return Ok(());
        };
        let fault = if part != *parts {
            Some(GatherError::Part)
        } else if data.len() > self.bytes_left {
            Some(GatherError::Bytes)
        } else {
            None
        };
        if let Some(fault) = fault {
            self.bytes_left += bytes.len();
            *answer = Answer::Failed;
            self.under_way -= 1;
            return Err(fault);
        }
        self.bytes_left -= data.len();
        bytes.extend_from_slice(data);
        *parts += 1;
        if is_last {
            *answer = Answer::Whole(std::mem::take(bytes));
            self.under_way -= 1;
        }
        Ok(())
    }

    /// A node cannot answer.
    pub fn fail(&mut self, node: &str) {
        if let Some(answer @ Answer::Begun { .. }) = self.answers.get_mut(node) {
            *answer = Answer::Failed;
            self.under_way -= 1;
        }
    }

    /// A node has gone, and its clients with it: nothing of it is missing.
    pub fn forget(&mut self, node: &str) {
        self.fail(node);
        if matches!(self.answers.get(node), Some(Answer::Failed)) {
            self.answers.remove(node);
        }
    }

    /// Ends the wait.
    #[must_use]
    pub fn end(self) -> Gathered {
        let mut gathered = Gathered::default();
        for (node, answer) in self.answers {
            match answer {
                Answer::Whole(bytes) => gathered.answers.push((node, bytes)),
                Answer::Begun { .. } | Answer::Failed => gathered.missing.push(node),
            }
        }
        gathered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = HELLO_NS;

    fn others(nodes: &mut Nodes, at: u64) -> Vec<String> {
        nodes.others(Now(at)).map(str::to_owned).collect()
    }

    #[test]
    fn a_node_is_there_until_it_is_silent_or_says_goodbye() {
        let mut nodes = Nodes::new("a");
        assert!(nodes.hear("b", Now(S)));
        assert!(nodes.hear("c", Now(2 * S)));
        assert!(!nodes.hear("b", Now(3 * S)));
        assert!(!nodes.hear("a", Now(3 * S)), "our own hello");
        assert_eq!(others(&mut nodes, 5 * S), ["b", "c"]);
        assert_eq!(others(&mut nodes, 6 * S), ["b"]);
        assert!(nodes.hear("c", Now(6 * S)), "it is back");
        assert_eq!(nodes.take_gone(Now(6 * S)), ["c".into()]);
        nodes.forget("c");
        nodes.forget("c");
        assert_eq!(nodes.take_gone(Now(6 * S)), ["c".into()]);
        assert_eq!(others(&mut nodes, 6 * S), ["b"]);
        assert_eq!(others(&mut nodes, 60 * S), [""; 0]);
        assert_eq!(nodes.take_gone(Now(60 * S)), ["b".into()]);
    }

    #[test]
    fn nodes_say_whether_they_hear_their_logs() {
        let mut nodes = Nodes::new("a");
        nodes.note_hearing("b", true);
        assert!(!nodes.any_hears(Now(S)), "it is not there");
        nodes.hear("b", Now(S));
        assert!(!nodes.any_hears(Now(S)), "it has not said so");
        nodes.note_hearing("b", true);
        assert!(nodes.any_hears(Now(2 * S)));
        assert!(!nodes.any_hears(Now(9 * S)), "it has gone");
    }

    #[test]
    fn nobody_is_gone_while_nobody_can_be_heard() {
        let mut nodes = Nodes::new("a");
        nodes.hear("b", Now(S));
        for second in 2..100 {
            nodes.hold(Now(second * S));
        }
        assert_eq!(others(&mut nodes, 102 * S), ["b"]);
        assert_eq!(others(&mut nodes, 103 * S), [""; 0]);
    }

    #[test]
    fn a_name_has_letters_and_digits() {
        for name in ["a", "Node7", &"x".repeat(64)] {
            assert!(is_node_name(name), "{name:?}");
        }
        // Each of these would change a subject, or a line of the log.
        let strange = ["", "a.b", "*", ">", "a b", "a\nb", "a\u{1b}[2J", "é", "a-b"];
        let mut nodes = Nodes::new("a");
        for name in strange {
            assert!(!is_node_name(name), "{name:?}");
            assert!(!nodes.hear(name, Now(0)), "{name:?}");
        }
        assert_eq!(others(&mut nodes, 0), [""; 0]);
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let mut nodes = Nodes::new("a");
        assert!(!nodes.hear("", Now(0)));
        assert!(!nodes.hear(&"x".repeat(65), Now(0)));
        for node in 0..2_000 {
            nodes.hear(&node.to_string(), Now(0));
        }
        assert_eq!(nodes.others(Now(0)).count(), NODES_MAX);
    }

    #[test]
    fn answers_are_gathered_in_parts() {
        let mut gather = Gather::new(["b", "c"], 100);
        gather.take("c", 0, false, b"one ").unwrap();
        gather.take("b", 0, true, b"whole").unwrap();
        gather.take("stranger", 0, true, b"x").unwrap();
        assert!(!gather.is_whole());
        gather.take("c", 1, true, b"two").unwrap();
        assert!(gather.is_whole());
        gather.take("c", 2, true, b"late").unwrap();
        let gathered = gather.end();
        let answers = [("b", &b"whole"[..]), ("c", b"one two")];
        let answers = answers.map(|(node, bytes)| (node.into(), bytes.to_vec()));
        assert_eq!(gathered.answers, answers);
        assert!(gathered.missing.is_empty());
    }

    #[test]
    fn what_is_incomplete_is_missing() {
        let mut gather = Gather::new(["b", "c", "d", "e", "f"], 10);
        gather.take("b", 0, false, b"one").unwrap();
        assert_eq!(gather.take("b", 2, true, b"three"), Err(GatherError::Part));
        // What it had is free again.
        gather.take("c", 0, true, &[0; 10]).unwrap();
        assert_eq!(gather.take("d", 0, true, b"x"), Err(GatherError::Bytes));
        gather.fail("e");
        gather.forget("f");
        assert!(gather.is_whole());
        let gathered = gather.end();
        assert_eq!(gathered.missing, ["b", "d", "e"].map(Into::into));
        assert_eq!(gathered.answers.len(), 1);
        assert!(Gather::new([], 10).is_whole());
    }
}

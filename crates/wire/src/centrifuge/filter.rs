//! Filters of tags: a subscriber gets only publications whose tags pass.

use super::FilterNode;
use std::cmp::Ordering;
use std::fmt;

/// A filter that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// An operation that does not exist.
    Operation,
    /// `and` and `or` need a node at least, `not` exactly one, a comparison none.
    Nodes,
    /// A comparison that does not exist.
    Comparison,
    /// The comparison needs a tag, and the values that fit it.
    Values,
    /// More than 256 values, or more than 16 KiB of names and values.
    Size,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operation => "tf.op is none of and, or, not",
            Self::Nodes => "tf.nodes does not fit tf.op",
            Self::Comparison => "tf.cmp is no comparison",
            Self::Values => "tf.key, tf.val or tf.vals does not fit tf.cmp",
            Self::Size => "tf has more than 256 values, or more than 16 KiB of names and values",
        })
    }
}

impl std::error::Error for FilterError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Comparison {
    Equal,
    NotEqual,
    In,
    NotIn,
    Exists,
    Missing,
    StartsWith,
    EndsWith,
    Contains,
    /// A numeric comparison: the orders that pass.
    Numeric {
        less: bool,
        equal: bool,
        greater: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare {
        key: Box<str>,
        comparison: Comparison,
        values: Vec<Box<str>>,
    },
}

/// Values in all comparisons of one filter. Each publication is compared with them for each subscriber.
const VALUES_MAX: usize = 256;

/// Bytes of all names and values of one filter.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A filter that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter(Node);

/// What `ct` counts in [`Filter::work`]: it looks at each place of a tag, and other comparisons at one.
const CONTAINS_WORK: u32 = 16;

impl Filter {
    /// Checks a filter. How many nodes it may have was checked when it was read.
    ///
    /// # Errors
    /// It means nothing, or is too large.
    pub fn new(node: &FilterNode<'_>) -> Result<Self, FilterError> {
        let node = checked(node)?;
        let size = node.size();
        if size.values > VALUES_MAX || size.text_bytes > TEXT_BYTES_MAX {
            return Err(FilterError::Size);
        }
        Ok(Self(node))
    }

    /// Bytes of memory that it takes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// What an allocation costs beside its content.
        const ALLOCATION_BYTES: usize = 16;
        let size = self.0.size();
        let nodes = size.nodes * (size_of::<Node>() + ALLOCATION_BYTES);
        nodes + size.values * (size_of::<Box<str>>() + ALLOCATION_BYTES) + size.text_bytes
    }

    /// What comparing a publication with it costs at most: 1 for each value that a tag is compared with, or for a tag that is looked
    /// for, and 16 for `ct`.
    #[must_use]
    pub fn work(&self) -> u32 {
        self.0.work()
    }

    /// Whether a publication with these tags passes.
    #[must_use]
    pub fn passes(&self, tags: &[(Box<str>, Box<str>)]) -> bool {
        self.0.passes(tags)
    }
}

fn checked(node: &FilterNode<'_>) -> Result<Node, FilterError> {
    if node.op.is_empty() {
        return comparison(node);
    }
    let mut inner = Vec::with_capacity(node.nodes.len());
    for node in node.nodes.iter() {
        inner.push(checked(node)?);
    }
    match (&*node.op, inner.len()) {
        ("and" | "or" | "not", 0) => Err(FilterError::Nodes),
        ("and", _) => Ok(Node::All(inner)),
        ("or", _) => Ok(Node::Any(inner)),
        ("not", 1) => Ok(Node::Not(Box::new(inner.remove(0)))),
        ("not", _) => Err(FilterError::Nodes),
        _ => Err(FilterError::Operation),
    }
}

fn comparison(node: &FilterNode<'_>) -> Result<Node, FilterError> {
    let numeric = |less, equal, greater| Comparison::Numeric {
        less,
        equal,
        greater,
    };
    let comparison = match &*node.cmp {
        "eq" => Comparison::Equal,
        "neq" => Comparison::NotEqual,
        "in" => Comparison::In,
        "nin" => Comparison::NotIn,
        "ex" => Comparison::Exists,
        "nex" => Comparison::Missing,
        "sw" => Comparison::StartsWith,
        "ew" => Comparison::EndsWith,
        "ct" => Comparison::Contains,
        "gt" => numeric(false, false, true),
        "gte" => numeric(false, true, true),
        "lt" => numeric(true, false, false),
        "lte" => numeric(true, true, false),
        _ => return Err(FilterError::Comparison),
    };
    if !node.nodes.is_empty() {
        return Err(FilterError::Nodes);
    }
    let fits = match comparison {
        Comparison::In | Comparison::NotIn => node.val.is_empty() && !node.vals.is_empty(),
        Comparison::Exists | Comparison::Missing => node.val.is_empty() && node.vals.is_empty(),
        _ => !node.val.is_empty() && node.vals.is_empty(),
    };
    let needs_key = !matches!(comparison, Comparison::Exists | Comparison::Missing);
    if !fits || needs_key && node.key.is_empty() {
        return Err(FilterError::Values);
    }
    let listed = matches!(comparison, Comparison::In | Comparison::NotIn);
    let values = if listed {
        &node.vals[..]
    } else {
        std::slice::from_ref(&node.val)
    };
    Ok(Node::Compare {
        key: node.key.as_ref().into(),
        comparison,
        values: values.iter().map(|value| value.as_ref().into()).collect(),
    })
}

/// How large a filter is.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    values: usize,
    text_bytes: usize,
}

impl Node {
    fn size(&self) -> Size {
        let inner = match self {
            Self::All(nodes) | Self::Any(nodes) => &nodes[..],
            Self::Not(node) => std::slice::from_ref(&**node),
            Self::Compare { key, values, .. } => {
                let value_bytes: usize = values.iter().map(|value| value.len()).sum();
                return Size {
                    nodes: 1,
                    values: values.len(),
                    text_bytes: key.len() + value_bytes,
                };
            }
        };
        let start = Size {
            nodes: 1,
            ..Size::default()
        };
        inner.iter().map(Self::size).fold(start, |sum, size| Size {
            nodes: sum.nodes + size.nodes,
            values: sum.values + size.values,
            text_bytes: sum.text_bytes + size.text_bytes,
        })
    }

    fn work(&self) -> u32 {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().map(Self::work).sum(),
            Self::Not(node) => node.work(),
            Self::Compare {
                comparison: Comparison::Contains,
                ..
            } => CONTAINS_WORK,
            // How many values there are is bounded.
            Self::Compare { values, .. } => u32::try_from(values.len()).unwrap_or(u32::MAX).max(1),
        }
    }

    fn passes(&self, tags: &[(Box<str>, Box<str>)]) -> bool {
        match self {
            Self::All(nodes) => nodes.iter().all(|node| node.passes(tags)),
            Self::Any(nodes) => nodes.iter().any(|node| node.passes(tags)),
            Self::Not(node) => !node.passes(tags),
            Self::Compare {
                key,
                comparison,
                values,
            } => {
                let tag = tags.iter().find(|(name, _)| name == key);
                let tag = tag.map(|(_, value)| &**value);
                passes(*comparison, tag, values)
            }
        }
    }
}

/// A missing tag passes only where its absence is what is asked for, and for `in` and `nin` it counts as the empty string.
fn passes(comparison: Comparison, tag: Option<&str>, values: &[Box<str>]) -> bool {
    let first = values.first().map_or("", |value| value);
    let is_listed = || values.iter().any(|value| **value == *tag.unwrap_or(""));
    match comparison {
        Comparison::Equal => tag == Some(first),
        Comparison::NotEqual => tag != Some(first),
        Comparison::In => is_listed(),
        Comparison::NotIn => !is_listed(),
        Comparison::Exists => tag.is_some(),
        Comparison::Missing => tag.is_none(),
        Comparison::StartsWith => tag.is_some_and(|tag| tag.starts_with(first)),
        Comparison::EndsWith => tag.is_some_and(|tag| tag.ends_with(first)),
        Comparison::Contains => tag.is_some_and(|tag| tag.contains(first)),
        Comparison::Numeric {
            less,
            equal,
            greater,
        } => match tag.and_then(|tag| compare_decimals(tag, first)) {
            Some(Ordering::Less) => less,
            Some(Ordering::Equal) => equal,
            Some(Ordering::Greater) => greater,
            None => false,
        },
    }
}

/// A decimal number: its sign, and its digits before and after the point, without zeros that change nothing.
struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Decimal<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let is_zero = whole.is_empty() && fraction.is_empty();
        Some(Self {
            is_negative: is_negative && !is_zero,
            whole,
            fraction,
        })
    }
}

/// The order of two decimals of any length, not rounded as floats would be; none if one of them is no decimal.
fn compare_decimals(one: &str, other: &str) -> Option<Ordering> {
    let (one, other) = (Decimal::parse(one)?, Decimal::parse(other)?);
    let by_size = || {
        let by_length = one.whole.len().cmp(&other.whole.len());
        by_length
            .then_with(|| one.whole.cmp(other.whole))
            // Digits after the point compare like words: the first that differs decides.
            .then_with(|| one.fraction.cmp(other.fraction))
    };
    Some(match (one.is_negative, other.is_negative) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => by_size(),
        (true, true) => by_size().reverse(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Filter, FilterError, compare_decimals};
    use crate::centrifuge::{Decoder, Encoding, Request};
    use std::cmp::Ordering::{Equal, Greater, Less};

    fn filter(json: &str) -> Result<Filter, FilterError> {
        let frame = format!(r#"{{"id":1,"subscribe":{{"channel":"c","tf":{json}}}}}"#);
        let command = Decoder::new(Encoding::Json, frame.as_bytes()).next();
        match command.expect("one").expect(json).request {
            Request::Subscribe(request) => Filter::new(&request.filter.expect("a filter")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_comparison_passes_what_it_says() {
        let tags: Vec<(Box<str>, Box<str>)> =
            vec![("t".into(), "abc".into()), ("n".into(), "10.50".into())];
        for (json, expected) in [
            (r#"{"key":"t","cmp":"eq","val":"abc"}"#, true),
            (r#"{"key":"x","cmp":"eq","val":"abc"}"#, false),
            (r#"{"key":"x","cmp":"neq","val":"abc"}"#, true),
            (r#"{"key":"t","cmp":"in","vals":["a","abc"]}"#, true),
            (r#"{"key":"x","cmp":"in","vals":[""]}"#, true),
            (r#"{"key":"x","cmp":"nin","vals":["a"]}"#, true),
            (r#"{"key":"t","cmp":"ex"}"#, true),
            (r#"{"key":"x","cmp":"nex"}"#, true),
            (r#"{"key":"t","cmp":"sw","val":"ab"}"#, true),
            (r#"{"key":"t","cmp":"ew","val":"ab"}"#, false),
            (r#"{"key":"t","cmp":"ct","val":"b"}"#, true),
            (r#"{"key":"n","cmp":"gt","val":"9"}"#, true),
            (r#"{"key":"n","cmp":"lte","val":"10.5"}"#, true),
            (r#"{"key":"t","cmp":"gt","val":"0"}"#, false),
            (r#"{"op":"not","nodes":[{"key":"t","cmp":"ex"}]}"#, false),
            (
                r#"{"op":"and","nodes":[{"key":"t","cmp":"ex"},{"key":"x","cmp":"ex"}]}"#,
                false,
            ),
            (
                r#"{"op":"or","nodes":[{"key":"t","cmp":"ex"},{"key":"x","cmp":"ex"}]}"#,
                true,
            ),
        ] {
            assert_eq!(filter(json).expect(json).passes(&tags), expected, "{json}");
        }
    }

    #[test]
    fn work_counts_what_is_compared() {
        for (json, work) in [
            (r#"{"key":"t","cmp":"eq","val":"abc"}"#, 1),
            (r#"{"key":"t","cmp":"ex"}"#, 1),
            (r#"{"key":"t","cmp":"in","vals":["a","b","c"]}"#, 3),
            (r#"{"key":"t","cmp":"ct","val":"b"}"#, 16),
            (
                r#"{"op":"or","nodes":[{"key":"t","cmp":"ct","val":"a"},{"op":"not","nodes":[{"key":"t","cmp":"nin","vals":["b","c"]}]}]}"#,
                18,
            ),
        ] {
            assert_eq!(filter(json).expect(json).work(), work, "{json}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (json, error) in [
            (
                r#"{"op":"xor","nodes":[{"key":"t","cmp":"ex"}]}"#,
                FilterError::Operation,
            ),
            (r#"{"op":"and"}"#, FilterError::Nodes),
            (
                r#"{"op":"not","nodes":[{"key":"t","cmp":"ex"},{"key":"t","cmp":"ex"}]}"#,
                FilterError::Nodes,
            ),
            (
                r#"{"key":"t","cmp":"like","val":"a"}"#,
                FilterError::Comparison,
            ),
            (r#"{"key":"t","cmp":"eq"}"#, FilterError::Values),
            (
                r#"{"key":"t","cmp":"eq","val":"a","vals":["b"]}"#,
                FilterError::Values,
            ),
            (r#"{"key":"t","cmp":"in","val":"a"}"#, FilterError::Values),
            (r#"{"key":"t","cmp":"ex","val":"a"}"#, FilterError::Values),
            (r#"{"cmp":"eq","val":"a"}"#, FilterError::Values),
        ] {
            assert_eq!(filter(json), Err(error), "{json}");
        }
    }

    #[test]
    fn decimals_of_any_length_compare_exactly() {
        for (one, other, order) in [
            ("9007199254740993", "9007199254740992", Some(Greater)),
            ("-0", "0.000", Some(Equal)),
            ("-1", "-2", Some(Greater)),
            ("-1", "0", Some(Less)),
            ("+007", "7", Some(Equal)),
            ("1.10", "1.1", Some(Equal)),
            ("1.09", "1.1", Some(Less)),
            (".5", "0.5", Some(Equal)),
            ("1e3", "1", None),
            ("", "1", None),
            (".", "1", None),
        ] {
            assert_eq!(compare_decimals(one, other), order, "{one} {other}");
        }
    }
}

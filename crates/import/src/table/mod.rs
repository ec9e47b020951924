//! One table of all options of Centrifugo: what each is called in versions 5 and 6, where it is here, and what changes.
//!
//! The conversion, the report and `docs/centrifugo.md` are made of it, and a test of the server holds it against the options that
//! there are. Only what one line cannot say is code, in `convert`: such rows are [`How::Ruled`].

mod channel;
mod client;
mod elsewhere;
mod proxy;
mod server;
mod transports;

use crate::source::Node;

pub(crate) use channel::MAPS;
pub(crate) use elsewhere::{PRO_KEYS, V5_ALONE};

/// The shape of a value, and its bounds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// A whole number within these bounds.
    Count {
        /// The least that we take.
        least: u64,
        /// The most that we take.
        most: u64,
        /// What a zero means there.
        zero: Zero,
    },
    /// A length of time; text with units, or nanoseconds.
    Time {
        /// The longest that we take, in milliseconds.
        most_ms: u64,
        /// What a zero means there.
        zero: Zero,
    },
    /// Bytes.
    Size {
        /// The most that we take.
        most: u64,
        /// What a zero means there.
        zero: Zero,
    },
    /// Any text.
    Text,
    /// Text that no report shows.
    Secret,
    /// One of these.
    Word(&'static [&'static str]),
    /// Texts.
    List,
    /// Texts by name.
    Map,
    /// Anything, with what is in it.
    Any,
}

/// What a zero means at Centrifugo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Zero, as here.
    Zero,
    /// The default.
    Default,
    /// No limit.
    NoLimit,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is taken over, and so is its default.
    Same,
    /// It is taken over, and means something else.
    Differs(&'static str),
    /// More than its own line decides; this is what it comes to.
    Ruled(&'static str),
    /// It is not there, and this is what that means.
    Gone(&'static str),
    /// It is not there, and the operator has to decide something before clients come.
    Decide(&'static str),
    /// It only matters with another option, which says what becomes of it. Its name may stand for all that is in it.
    Part,
}

/// An option of Centrifugo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its names in version 5, with spaces between them; none if it came later.
    pub v5: &'static str,
    /// Its path in version 6, within its scope; none if it has gone.
    pub v6: &'static str,
    /// Its path here, within its scope; none if it is not there.
    pub ours: &'static str,
    /// What a value looks like.
    pub form: Form,
    /// Its default at Centrifugo, as TOML.
    pub default: &'static str,
    /// What becomes of it.
    pub how: How,
}

impl Row {
    const fn new(
        v5: &'static str,
        v6: &'static str,
        ours: &'static str,
        form: Form,
        default: &'static str,
        how: How,
    ) -> Self {
        Self {
            v5,
            v6,
            ours,
            form,
            default,
            how,
        }
    }

    /// Taken over under its name in version 6.
    const fn same(v5: &'static str, v6: &'static str, form: Form, default: &'static str) -> Self {
        Self::new(v5, v6, v6, form, default, How::Same)
    }

    /// Under its name in version 6, as far as more than its own line decides.
    const fn ruled(
        v5: &'static str,
        v6: &'static str,
        form: Form,
        default: &'static str,
        what: &'static str,
    ) -> Self {
        Self::new(v5, v6, v6, form, default, How::Ruled(what))
    }

    const fn gone(
        v5: &'static str,
        v6: &'static str,
        form: Form,
        default: &'static str,
        what: &'static str,
    ) -> Self {
        Self::new(v5, v6, "", form, default, How::Gone(what))
    }

    const fn decide(
        v5: &'static str,
        v6: &'static str,
        form: Form,
        default: &'static str,
        what: &'static str,
    ) -> Self {
        Self::new(v5, v6, "", form, default, How::Decide(what))
    }

    const fn part(v5: &'static str, v6: &'static str) -> Self {
        Self::new(v5, v6, "", Form::Any, "", How::Part)
    }

    /// The names in version 5.
    pub fn v5_names(&self) -> impl Iterator<Item = &'static str> {
        self.v5.split_whitespace()
    }

    /// Whether its name stands for all that is in it, too.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.form == Form::Any
    }
}

/// Where options with the same names may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// At the top of the file, with the paths of version 6.
    Top,
    /// `client.token` and `client.subscription_token`.
    Token,
    /// `channel.without_namespace` and each of `channel.namespaces`.
    Namespace,
    /// A proxy.
    Proxy,
    /// `rpc.without_namespace` and each of `rpc.namespaces`.
    RpcNamespace,
}

impl Scope {
    /// All of them, in the order in which people read them.
    pub const ALL: [Self; 5] = [
        Self::Top,
        Self::Token,
        Self::Namespace,
        Self::Proxy,
        Self::RpcNamespace,
    ];

    /// Its options.
    pub fn rows(self) -> impl Iterator<Item = &'static Row> {
        let groups: &[&[Row]] = match self {
            Self::Top => &[
                server::LISTENING,
                client::CLIENT,
                channel::CHANNEL,
                proxy::RPC,
                server::API,
                transports::TRANSPORTS,
                server::CLUSTER,
                elsewhere::ELSEWHERE,
            ],
            Self::Token => &[client::TOKEN],
            Self::Namespace => &[channel::NAMESPACE],
            Self::Proxy => &[proxy::PROXY],
            Self::RpcNamespace => &[proxy::RPC_NAMESPACE],
        };
        groups.iter().flat_map(|group| group.iter())
    }

    /// The row of a path in version 6, within this scope.
    pub(crate) fn row(self, v6: &str) -> Option<&'static Row> {
        self.rows().find(|row| row.v6 == v6 && !v6.is_empty())
    }
}

/// The places in version 6 where a proxy may stand that has no name, and ours, which are called the same.
pub(crate) const PROXY_PLACES: [&str; 6] = [
    "client.proxy.connect",
    "client.proxy.refresh",
    "channel.proxy.subscribe",
    "channel.proxy.publish",
    "channel.proxy.sub_refresh",
    "rpc.proxy",
];

/// Lists of tables with names, and what stands in each.
pub(crate) const LISTS: [(&str, Scope); 3] = [
    ("channel.namespaces", Scope::Namespace),
    ("proxies", Scope::Proxy),
    ("rpc.namespaces", Scope::RpcNamespace),
];

/// Namespaces without a name.
pub(crate) const UNNAMED: [(&str, Scope); 2] = [
    ("channel.without_namespace", Scope::Namespace),
    ("rpc.without_namespace", Scope::RpcNamespace),
];

/// The two places for keys of tokens.
pub(crate) const TOKEN_PLACES: [&str; 2] = ["client.token", "client.subscription_token"];

/// A default, as a value that was read.
pub(crate) fn default_node(text: &str) -> Node {
    let text = if text.is_empty() { "\"\"" } else { text };
    let document = format!("value = {text}");
    let read = crate::source::read(&document, crate::source::Language::Toml);
    let tree = read.expect("defaults are TOML; a test reads all of them");
    tree.find("value").cloned().unwrap_or_default()
}

const COUNT: Form = Form::Count {
    least: 0,
    most: u32::MAX as u64,
    zero: Zero::Zero,
};

/// What our longest times are.
const DAYS_30_MS: u64 = 720 * 3_600_000;

const TIME: Form = Form::Time {
    most_ms: DAYS_30_MS,
    zero: Zero::Zero,
};

const SIZE: Form = Form::Size {
    most: 1 << 30,
    zero: Zero::Zero,
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_name_is_there_twice() {
        for scope in Scope::ALL {
            let mut seen = HashSet::new();
            for row in scope.rows() {
                assert!(row.v6.is_empty() || seen.insert(row.v6), "{}", row.v6);
            }
        }
        let mut seen = HashSet::new();
        // Namespaces and what has none have the same names in version 5.
        for row in Scope::Top.rows().chain(Scope::Namespace.rows()) {
            for name in row.v5_names() {
                assert!(seen.insert(name), "{name}");
            }
        }
    }

    #[test]
    fn every_row_says_what_becomes_of_it() {
        for row in Scope::ALL.into_iter().flat_map(Scope::rows) {
            assert!(!row.v5.is_empty() || !row.v6.is_empty(), "{row:?}");
            match row.how {
                How::Same => assert!(!row.ours.is_empty(), "{row:?}"),
                How::Gone(text) | How::Decide(text) => {
                    assert!(row.ours.is_empty() && text.len() > 10, "{row:?}");
                }
                How::Differs(text) | How::Ruled(text) => assert!(text.len() > 10, "{row:?}"),
                How::Part => assert!(row.ours.is_empty(), "{row:?}"),
            }
            if row.form != Form::Any {
                let value = default_node(row.default);
                assert!(crate::value::literal(row.form, &value).is_ok(), "{row:?}");
            }
        }
    }
}

//! Which version wrote it, and version 5 as version 6: flat names become paths, and one set of options for all proxies becomes one
//! for each.

use crate::report::{Fate, Note};
use crate::source::{Node, Value};
use crate::table::{How, PRO_KEYS, PROXY_PLACES, Row, Scope, V5_ALONE};
use crate::value::{flag, plain};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The layout of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Flat names, such as `token_hmac_secret_key`.
    V5,
    /// Nested tables, such as `client.token.hmac_secret_key`.
    V6,
}

impl Layout {
    /// The number of the version.
    #[must_use]
    pub fn version(self) -> u8 {
        match self {
            Self::V5 => 5,
            Self::V6 => 6,
        }
    }

    /// The layout of a tree, by what only one of the two has at its top; nothing without such names.
    pub(crate) fn of(tree: &Node) -> Option<Self> {
        let Value::Table(entries) = &tree.value else {
            return None;
        };
        let [mut flat, mut nested] = [0, 0];
        for (name, node) in entries {
            let name = name.to_ascii_lowercase();
            let is_table = matches!(node.value, Value::Table(_));
            nested += usize::from(is_table && is_v6_top(&name));
            flat += usize::from(!is_table && is_v5_alone(&name));
        }
        Self::choose(flat, nested)
    }

    pub(crate) fn choose(flat: usize, nested: usize) -> Option<Self> {
        match (flat, nested) {
            (0, 0) => None,
            (flat, nested) if flat > nested => Some(Self::V5),
            _ => Some(Self::V6),
        }
    }
}

/// Whether version 6 has a table with this name at the top.
fn is_v6_top(name: &str) -> bool {
    let tops = Scope::Top.rows().map(|row| row.v6.split('.').next());
    let mut tops = tops.chain([Some("rpc"), Some("channel"), Some("client")]);
    tops.any(|top| top == Some(name))
}

/// Whether version 5 has this name at the top, and version 6 has not.
fn is_v5_alone(name: &str) -> bool {
    let is_option = |row: &Row| row.v6 == name && row.how != How::Part;
    let is_of_both = Scope::Top.rows().any(is_option) || name == "proxies";
    !is_of_both && is_v5(name)
}

/// Whether version 5 has this name at the top.
pub(crate) fn is_v5(name: &str) -> bool {
    static KNOWN: OnceLock<V5Names> = OnceLock::new();
    let known = KNOWN.get_or_init(V5Names::of_table);
    known.names.contains(name) || known.prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// All names of version 5 at the top: a file may have many that are not among them, and going through the table for each takes
/// seconds.
struct V5Names {
    names: BTreeSet<String>,
    /// Beginnings of names that need no row of their own.
    prefixes: Vec<&'static str>,
}

impl V5Names {
    fn of_table() -> Self {
        let rows = [Scope::Top, Scope::Namespace].into_iter();
        let (patterns, names): (Vec<_>, Vec<_>) = rows
            .flat_map(Scope::rows)
            .flat_map(Row::v5_names)
            .partition(|name| name.ends_with('*'));
        let mut names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        names.extend(V5_ALONE.into_iter().chain(PRO_KEYS).map(str::to_owned));
        for row in Scope::Proxy.rows() {
            names.extend(row.v5_names().map(|name| format!("proxy_{name}")));
        }
        for row in Scope::Token.rows() {
            for prefix in ["token_", "subscription_token_"] {
                names.insert(format!("{prefix}{}", row.v6));
            }
        }
        let prefixes = patterns.into_iter().map(|name| name.trim_end_matches('*'));
        Self {
            names,
            prefixes: prefixes.collect(),
        }
    }
}

/// Where a name of version 5 is in version 6.
enum Target {
    /// At this path.
    Path(String),
    /// It has gone; its row says so under its old name.
    Gone,
    /// It belongs to what is not there.
    Part,
}

fn target(name: &str) -> Option<Target> {
    let mut rows = Scope::Top.rows();
    if let Some(row) = rows.find(|row| row.v5_names().any(|known| known == name)) {
        return Some(match (row.how, row.v6) {
            (How::Part, v6) if v6.is_empty() || row.is_whole() => Target::Part,
            (_, "") => Target::Gone,
            (_, v6) => Target::Path(v6.into()),
        });
    }
    let mut rows = Scope::Namespace.rows();
    if let Some(row) = rows.find(|row| row.v5_names().any(|known| known == name)) {
        return Some(Target::Path(format!(
            "channel.without_namespace.{}",
            row.v6
        )));
    }
    for (prefix, place) in [
        ("subscription_token_", "client.subscription_token"),
        ("token_", "client.token"),
    ] {
        let key = name.strip_prefix(prefix);
        let row = key.and_then(|key| Scope::Token.row(key));
        if let Some(row) = row {
            return Some(Target::Path(format!("{place}.{}", row.v6)));
        }
    }
    let mut patterns = Scope::Top.rows().flat_map(Row::v5_names);
    let is_part = patterns.any(|pattern| {
        let prefix = pattern.strip_suffix('*');
        prefix.is_some_and(|prefix| name.starts_with(prefix))
    });
    is_part.then_some(Target::Part)
}

/// The path in a proxy of an option that version 5 has for all of them.
fn common(name: &str) -> Option<String> {
    let rest = name.strip_prefix("proxy_")?;
    let mut rows = Scope::Proxy.rows();
    let row = rows.find(|row| row.v5_names().any(|known| known == rest))?;
    Some(match row.how {
        How::Part => format!("{}.{rest}", row.v6),
        _ => row.v6.to_owned(),
    })
}

/// Turns version 5 into version 6. What it does not know stays at the top.
pub(crate) fn to_v6(tree: Node, notes: &mut Vec<Note>) -> Node {
    let Value::Table(entries) = tree.value else {
        return tree;
    };
    let mut change = Change {
        alone: Node::made(Value::Table(Vec::new())),
        common: Vec::new(),
        made: Node::made(Value::Table(Vec::new())),
        is_granular: false,
        notes,
    };
    for (name, node) in entries {
        change.entry(&name, node);
    }
    let switch = change.alone.find("granular_proxy_mode");
    change.is_granular = switch.is_some_and(|node| flag(&node.value) == Some(true));
    change.namespaces();
    change.proxies();
    change.methods();
    change.made
}

struct Change<'n> {
    /// Options of [`V5_ALONE`].
    alone: Node,
    /// Options of all proxies, by their paths in each.
    common: Vec<(String, Node)>,
    /// Version 6.
    made: Node,
    /// Proxies have names, and what is for all of them means nothing.
    is_granular: bool,
    notes: &'n mut Vec<Note>,
}

impl Change<'_> {
    fn entry(&mut self, written: &str, node: Node) {
        let name = written.to_ascii_lowercase();
        if V5_ALONE.contains(&&*name) {
            self.alone.set(&name, node);
        } else if let Some(path) = common(&name) {
            self.common.push((path, node));
        } else {
            match target(&name) {
                Some(Target::Path(path)) => self.set(&path, node),
                Some(Target::Gone) => self.made.set(&name, node),
                Some(Target::Part) => self.notes.push(Note::of(&node, Fate::Idle)),
                None if is_v6_top(&name) => self.notes.push(
                    Note::of(&node, Fate::Missing)
                        .meaning("an option of version 6, which version 5 does not read"),
                ),
                None => self.made.set(written, node),
            }
        }
    }

    /// A file and a text of certificates have one place in version 6: whichever is written.
    fn set(&mut self, path: &str, node: Node) {
        let is_empty = |node: &Node| plain(&node.value).is_some_and(|text| text.is_empty());
        if is_empty(&node) && self.made.find(path).is_some() {
            return;
        }
        // Where version 6 has a switch beside a list, so has the table of version 5.
        match path.strip_suffix(".enabled") {
            Some(table) if matches!(node.value, Value::Table(_)) => self.made.set(table, node),
            _ => {
                // A broker has a switch of its own in version 6.
                if path == "broker.type" && !is_empty(&node) {
                    let is_on = Node {
                        value: Value::Flag(true),
                        ..node.clone()
                    };
                    self.made.set("broker.enabled", is_on);
                }
                self.made.set(path, node);
            }
        }
    }

    fn namespaces(&mut self) {
        let Some(mut node) = self.alone.take("namespaces") else {
            self.granular_names("channel.without_namespace");
            return;
        };
        if let Value::List(items) = &mut node.value {
            for item in items.iter_mut() {
                rename(item, Scope::Namespace);
            }
        }
        self.made.set("channel.namespaces", node);
        self.granular_names("channel.without_namespace");
        for index in 0..self.made.items("channel.namespaces") {
            self.granular_names(&format!("channel.namespaces[{index}]"));
        }
    }

    /// In granular mode the name of a proxy turns it on, and nothing else does; otherwise names mean nothing.
    fn granular_names(&mut self, place: &str) {
        let is_granular = self.is_granular;
        for kind in ["subscribe", "publish", "sub_refresh", "subscribe_stream"] {
            let [switch, key] =
                ["enabled", "name"].map(|end| format!("{place}.{kind}_proxy_{end}"));
            let name = self.made.find(&key).cloned();
            let text = name.as_ref().and_then(|node| plain(&node.value));
            let unused = match (is_granular, name) {
                (true, Some(node)) if text.is_some_and(|text| !text.is_empty()) => {
                    let old = self.made.take(&switch);
                    let value = Value::Flag(true);
                    self.made.set(&switch, Node { value, ..node });
                    old
                }
                (true, _) => self.made.take(&switch),
                (false, _) => self.made.take(&key),
            };
            if let Some(node) = unused {
                self.notes.push(Note::of(&node, Fate::Idle));
            }
        }
    }

    fn proxies(&mut self) {
        if let Some(mut node) = self.alone.take("proxies") {
            if let Value::List(items) = &mut node.value {
                for item in items.iter_mut() {
                    rename(item, Scope::Proxy);
                }
            }
            self.made.set("proxies", node);
        }
        for place in PROXY_PLACES {
            let kind = place.trim_end_matches(".proxy");
            let kind = kind.rsplit('.').next().unwrap_or(kind);
            let endpoint = self.alone.take(&format!("proxy_{kind}_endpoint"));
            let timeout = self.alone.take(&format!("proxy_{kind}_timeout"));
            match self.is_granular {
                true => {
                    for node in [endpoint, timeout].into_iter().flatten() {
                        self.notes.push(Note::of(&node, Fate::Idle));
                    }
                    self.granular_proxy(place, kind);
                }
                false => self.plain_proxy(place, endpoint, timeout),
            }
        }
        let left = [
            "granular_proxy_mode",
            "connect_proxy_name",
            "refresh_proxy_name",
        ];
        for node in left.into_iter().filter_map(|name| self.alone.take(name)) {
            self.notes.push(Note::of(&node, Fate::Idle));
        }
        let is_used = |place: &str| self.made.find(&format!("{place}.endpoint")).is_some();
        if self.is_granular || !PROXY_PLACES.iter().any(|place| is_used(place)) {
            let notes = self.common.iter();
            let notes = notes.map(|(_, node)| Note::of(node, Fate::Idle));
            self.notes.extend(notes);
        }
    }

    fn plain_proxy(&mut self, place: &str, endpoint: Option<Node>, timeout: Option<Node>) {
        let is_set = |node: &Node| plain(&node.value).is_none_or(|text| !text.is_empty());
        let Some(endpoint) = endpoint.filter(is_set) else {
            if let Some(node) = timeout {
                self.notes.push(Note::of(&node, Fate::Idle));
            }
            return;
        };
        if place.starts_with("client.") {
            let value = Value::Flag(true);
            let is_on = Node {
                value,
                ..endpoint.clone()
            };
            self.made.set(&format!("{place}.enabled"), is_on);
        }
        self.made.set(&format!("{place}.endpoint"), endpoint);
        if let Some(timeout) = timeout {
            self.made.set(&format!("{place}.timeout"), timeout);
        }
        for (path, node) in &self.common {
            self.made.set(&format!("{place}.{path}"), node.clone());
        }
    }

    /// `connect_proxy_name` and `refresh_proxy_name` mean one of the proxies, which stands at its place in version 6.
    fn granular_proxy(&mut self, place: &str, kind: &str) {
        if !place.starts_with("client.") {
            return;
        }
        let Some(node) = self.alone.take(&format!("{kind}_proxy_name")) else {
            return;
        };
        let Some(name) = plain(&node.value).filter(|name| !name.is_empty()) else {
            return;
        };
        let proxies = self.made.find("proxies").map(|node| &node.value);
        let Some(Value::List(items)) = proxies else {
            self.made.set(&format!("{kind}_proxy_name"), node);
            return;
        };
        let mut items = items.iter();
        let proxy = items.find(|item| {
            let own = item.find("name").and_then(|node| plain(&node.value));
            own.as_deref() == Some(&*name)
        });
        let Some(mut proxy) = proxy.cloned() else {
            self.made.set(&format!("{kind}_proxy_name"), node);
            return;
        };
        proxy.take("name");
        let value = Value::Flag(true);
        proxy.set("enabled", Node { value, ..node });
        self.made.set(place, proxy);
    }

    fn methods(&mut self) {
        let name = self.alone.take("rpc_proxy_name");
        if let Some(mut node) = self.alone.take("rpc_namespaces") {
            if let Value::List(items) = &mut node.value {
                for item in items.iter_mut() {
                    rename(item, Scope::RpcNamespace);
                }
            }
            self.made.set("rpc.namespaces", node);
        }
        let mut places = vec!["rpc.without_namespace".to_owned()];
        let namespaces = self.made.items("rpc.namespaces");
        places.extend((0..namespaces).map(|index| format!("rpc.namespaces[{index}]")));
        if self.is_granular {
            if let Some(name) = name {
                self.made.set("rpc.without_namespace.proxy_name", name);
            }
            for place in places {
                self.turn_on_by_name(&place);
            }
        } else {
            if let Some(node) = name {
                self.notes.push(Note::of(&node, Fate::Idle));
            }
            let endpoint = self.made.find("rpc.proxy.endpoint").cloned();
            for place in places {
                // One endpoint is asked for all methods, whatever their namespace.
                self.made.take(&format!("{place}.proxy_name"));
                if let Some(endpoint) = &endpoint {
                    let value = Value::Flag(true);
                    let is_on = Node {
                        value,
                        ..endpoint.clone()
                    };
                    self.made.set(&format!("{place}.proxy_enabled"), is_on);
                }
            }
        }
    }

    fn turn_on_by_name(&mut self, place: &str) {
        let Some(node) = self.made.find(&format!("{place}.proxy_name")).cloned() else {
            return;
        };
        if plain(&node.value).is_some_and(|name| !name.is_empty()) {
            let value = Value::Flag(true);
            self.made
                .set(&format!("{place}.proxy_enabled"), Node { value, ..node });
        }
    }
}

/// Gives the options of an item of a list their names of version 6.
fn rename(item: &mut Node, scope: Scope) {
    for row in scope.rows() {
        for name in row.v5_names().filter(|name| *name != row.v6) {
            if let Some(node) = item.take(name) {
                let path = match row.how {
                    How::Part if row.is_whole() && row.v6 == "grpc" => format!("grpc.{name}"),
                    _ => row.v6.to_owned(),
                };
                item.set(&path, node);
            }
        }
    }
}

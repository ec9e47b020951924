//! Namespaces: what fits together there may be a contradiction here, and what nobody can be asked is not allowed.

use super::proxies::Usable;
use super::{Import, join};
use crate::report::Fate;
use crate::source::{Node, Value};
use crate::table::{Form, MAPS, Scope};
use crate::value::{flag, list, plain, text, text_list};

const NO_PROXY: &str = "the application cannot be asked, because there is no proxy that speaks HTTP: it is left out, and so is each right that the application would have decided";
const WITHHELD: &str = "left out, because the application decided there and cannot be asked here: without it this right would be open to all";

impl Import<'_> {
    /// `channel.without_namespace` and all namespaces.
    pub(super) fn channels(&mut self, usable: &Usable) {
        let place = "channel.without_namespace";
        if self.is_left_out(place) {
            self.idle(place);
        } else {
            self.namespace(place, place, usable);
        }
        let mut written = 0;
        let mut left_out = Vec::new();
        for index in 0..self.tree.items("channel.namespaces") {
            let from = format!("channel.namespaces[{index}]");
            let Some(name) = self.name_of(&from) else {
                continue;
            };
            if self.is_left_out(&from) {
                left_out.push(name);
                self.idle_item("channel.namespaces", index);
                continue;
            }
            let to = format!("channel.namespaces[{written}]");
            self.namespace(&from, &to, usable);
            written += 1;
        }
        self.personal_channel(&left_out);
    }

    /// The name of an item of a list, which has to be a table with one.
    pub(super) fn name_of(&mut self, from: &str) -> Option<String> {
        let item = self.tree.find(from)?.clone();
        let is_table = matches!(item.value, Value::Table(_));
        let name = item.find("name").and_then(|node| plain(&node.value));
        match name.filter(|_| is_table) {
            Some(name) if !name.is_empty() => Some(name),
            _ => {
                self.fault(&item, "(no name)", "write a table with a name");
                None
            }
        }
    }

    fn idle_item(&mut self, path: &str, index: usize) {
        if let Some(item) = self.tree.find_mut(&format!("{path}[{index}]")) {
            item.value = Value::Table(Vec::new());
        }
    }

    /// Whether it is for subscriptions that are not there. Says so.
    fn is_left_out(&mut self, from: &str) -> bool {
        let path = join(from, "subscription_type");
        let Some(node) = self.tree.take(&path) else {
            return false;
        };
        let Some(kind) = self.ruled(Scope::Namespace, "subscription_type", &node) else {
            return false;
        };
        let is_stream = ["\"\"", "\"stream\""].contains(&&*kind);
        match is_stream {
            true => self.unused(Some(&node)),
            false => self.undecided(&node, MAPS),
        }
        !is_stream
    }

    fn namespace(&mut self, from: &str, to: &str, usable: &Usable) {
        let has_stream_proxy = self.is_on(&join(from, "subscribe_stream_proxy_enabled"));
        self.output.open(to);
        let is_unnamed = to.ends_with("without_namespace");
        for row in Scope::Namespace.rows() {
            if row.v6 != "name" || !is_unnamed {
                self.row(row, from, to);
            }
        }
        self.recovery_mode(from, to);
        self.dependents(from, to);
        for kind in ["subscribe", "publish", "sub_refresh"] {
            self.channel_proxy(kind, from, to, usable);
        }
        if has_stream_proxy {
            self.withhold(to, "subscribe");
        }
    }

    fn recovery_mode(&mut self, from: &str, to: &str) {
        let path = "force_recovery_mode";
        let Some(node) = self.tree.take(&join(from, path)) else {
            return;
        };
        let Some(mode) = self.ruled(Scope::Namespace, path, &node) else {
            return;
        };
        if mode == "\"cache\"" {
            let ours = join(to, path);
            self.output.set(&ours, mode, None);
            self.taken(Some(&node), &ours);
        } else {
            self.unused(Some(&node));
        }
    }

    /// Options that do nothing there without another one, and are a contradiction here.
    fn dependents(&mut self, from: &str, to: &str) {
        let has_history = self.output.value(&join(to, "history_size")).is_some()
            && self.output.value(&join(to, "history_ttl")).is_some();
        let joins = self.output.is_on(&join(to, "join_leave"));
        self.dependent("force_push_join_leave", from, to, joins);
        let mode = self.output.value(&join(to, "force_recovery_mode"));
        let caches = mode == Some("\"cache\"");
        let recovers = self.output.is_on(&join(to, "force_recovery"));
        self.dependent("auto_cache_recover", from, to, caches && recovers);
        let deltas = self.delta_types(from, to, has_history);
        self.dependent("delta_publish", from, to, deltas);
    }

    fn dependent(&mut self, key: &str, from: &str, to: &str, may: bool) {
        let (is_on, node) = self.take_flag(&join(from, key));
        let ours = join(to, key);
        match node {
            Some(node) if is_on && may => {
                self.output.set(&ours, "true", None);
                self.taken(Some(&node), &ours);
            }
            node => self.unused(node.as_ref()),
        }
    }

    /// Whether deltas are written.
    fn delta_types(&mut self, from: &str, to: &str, has_history: bool) -> bool {
        let ours = join(to, "allowed_delta_types");
        let Some(node) = self.tree.take(&join(from, "allowed_delta_types")) else {
            return false;
        };
        let Some(types) = list(&node.value) else {
            self.literal(Form::List, &node);
            return false;
        };
        if let Some(other) = types.iter().find(|kind| *kind != "fossil") {
            let shown: String = other.chars().take(60).collect();
            self.fault(&node, shown, "write [\"fossil\"], or nothing");
            return false;
        }
        if types.is_empty() || !has_history {
            self.unused(Some(&node));
            return false;
        }
        self.output.set(&ours, text_list(&types), None);
        self.taken(Some(&node), &ours);
        true
    }

    fn channel_proxy(&mut self, kind: &str, from: &str, to: &str, usable: &Usable) {
        let place = format!("channel.proxy.{kind}");
        let unasked = self.ask(&format!("{kind}_proxy"), from, to, usable, &place);
        if let Some(switch) = unasked {
            self.undecided(&switch, NO_PROXY);
            self.withhold(to, kind);
        }
    }

    /// Takes rights back that the application would have given or refused.
    fn withhold(&mut self, to: &str, kind: &str) {
        for who in ["client", "subscriber", "anonymous"] {
            let ours = join(to, &format!("allow_{kind}_for_{who}"));
            self.retract(&ours, Fate::Missing, Some(WITHHELD));
        }
    }

    /// The namespace of personal channels may have been left out.
    fn personal_channel(&mut self, left_out: &[String]) {
        let place = "client.subscribe_to_user_personal_channel";
        let namespace = self
            .output
            .value(&join(place, "personal_channel_namespace"));
        let is_gone = left_out.iter().any(|name| namespace == Some(&*text(name)));
        if is_gone {
            self.output.remove_table(place);
            let why = "its namespace is left out";
            self.tell_anew(|ours| ours.starts_with(place), Fate::Missing, Some(why));
        }
    }

    /// Whether a switch is on that has not been taken.
    fn is_on(&self, path: &str) -> bool {
        let node: Option<&Node> = self.tree.find(path);
        node.is_some_and(|node| flag(&node.value) == Some(true))
    }
}

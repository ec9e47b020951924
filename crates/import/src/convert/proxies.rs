//! Calls to the application: where it is asked over HTTP they are taken over, and gRPC is not there.

use super::{Import, join};
use crate::source::{Node, Value};
use crate::table::{PROXY_PLACES, Scope};
use crate::value::{Pem, any, text};
use std::collections::BTreeSet;

/// The proxies that were taken over.
#[derive(Debug, Default)]
pub(super) struct Usable {
    places: BTreeSet<&'static str>,
    names: BTreeSet<String>,
}

impl Usable {
    /// Whether calls of a place can be made by the proxy with this name.
    pub(super) fn has(&self, place: &str, name: &str) -> bool {
        match name {
            "" | "default" => self.places.contains(place),
            name => self.names.contains(name),
        }
    }
}

const GRPC: &str = "only HTTP is spoken: the application needs an endpoint that begins with http:// or https://, and is not asked before";

impl Import<'_> {
    /// All proxies.
    pub(super) fn proxies(&mut self) -> Usable {
        let mut usable = Usable::default();
        for place in PROXY_PLACES {
            if self.proxy(place, place) {
                usable.places.insert(place);
            }
        }
        let mut written = 0;
        for index in 0..self.tree.items("proxies") {
            let from = format!("proxies[{index}]");
            let Some(name) = self.name_of(&from) else {
                continue;
            };
            if self.proxy(&from, &format!("proxies[{written}]")) {
                usable.names.insert(name);
                written += 1;
            }
        }
        usable
    }

    /// One proxy. Says whether it was taken over.
    fn proxy(&mut self, from: &str, to: &str) -> bool {
        let (endpoint, node) = self.take_text(&join(from, "endpoint"));
        let Some(node) = node.filter(|_| !endpoint.is_empty()) else {
            self.idle_proxy(from);
            return false;
        };
        let scheme = endpoint.to_ascii_lowercase();
        if !scheme.starts_with("http://") && !scheme.starts_with("https://") {
            self.undecided(&node, GRPC);
            self.idle_proxy(from);
            return false;
        }
        let is_named = from.starts_with("proxies");
        let is_switched = from.starts_with("client.");
        for row in Scope::Proxy.rows() {
            let is_elsewhere = row.v6 == "name" && !is_named || row.v6 == "enabled" && !is_switched;
            if !is_elsewhere {
                self.row(row, from, to);
            }
        }
        let ours = join(to, "endpoint");
        self.output.set(&ours, text(&endpoint), None);
        self.taken(Some(&node), &ours);
        self.transforms(from, to);
        self.proxy_tls(from, to, scheme.starts_with("https://"));
        true
    }

    /// A proxy that nobody calls. Names that are no options stay in the tree, and the report names them.
    fn idle_proxy(&mut self, from: &str) {
        for row in Scope::Proxy.rows() {
            self.idle(&join(from, row.v6));
        }
    }

    /// What statuses mean. There a code of zero is one that is not written.
    fn transforms(&mut self, from: &str, to: &str) {
        let Some(node) = self
            .tree
            .take(&join(from, "http.status_to_code_transforms"))
        else {
            return;
        };
        let parsed;
        let items = match &node.value {
            Value::List(items) => items,
            // In the environment it is JSON.
            Value::Text(json) if !json.trim().is_empty() => {
                let read = crate::source::read_variable(json, &node.name);
                match read.map(|node| node.value) {
                    Ok(Value::List(items)) => {
                        parsed = items;
                        &parsed
                    }
                    _ => {
                        self.fault(&node, "(a text)", "write a list of tables");
                        return;
                    }
                }
            }
            Value::Text(_) => return self.unused(Some(&node)),
            _ => {
                self.fault(&node, "(no list)", "write a list of tables");
                return;
            }
        };
        if items.is_empty() {
            return self.unused(Some(&node));
        }
        let tables: Vec<String> = items
            .iter()
            .map(|item| transform(item).to_string())
            .collect();
        let ours = join(to, "http.status_to_code_transforms");
        self.output
            .set(&ours, format!("[{}]", tables.join(", ")), None);
        self.taken(Some(&node), &ours);
    }

    fn proxy_tls(&mut self, from: &str, to: &str, is_https: bool) {
        let place = join(from, "http.tls");
        let (is_on, switch) = self.take_flag(&join(&place, "enabled"));
        let Some(switch) = switch.filter(|_| is_on && is_https) else {
            self.idle(&place);
            return;
        };
        let (skips, node) = self.take_flag(&join(&place, "insecure_skip_verify"));
        if let Some(node) = node.filter(|_| skips) {
            self.undecided(&node, "the certificate of the application is always verified: write server_ca_pem_file, the CA that signed it");
        }
        let (name, node) = self.take_text(&join(&place, "server_name"));
        if let Some(node) = node.filter(|_| !name.is_empty()) {
            self.undecided(
                &node,
                "the certificate of the application has to name the host of its endpoint",
            );
        }
        for key in ["server_ca_pem", "cert_pem", "key_pem"] {
            self.proxy_pem(&place, to, key);
        }
        // A certificate alone is of no use, and neither is a key.
        let ours = join(to, "http.tls");
        let has = |import: &Self, key: &str| {
            let keys = [key.to_owned(), format!("{key}_file")];
            keys.iter()
                .any(|key| import.output.value(&join(&ours, key)).is_some())
        };
        if has(self, "cert_pem") != has(self, "key_pem") {
            for key in ["cert_pem", "cert_pem_file", "key_pem", "key_pem_file"] {
                self.output.remove(&join(&ours, key));
            }
            self.undecided(&switch, "a certificate and its key are needed together");
        } else {
            self.unused(Some(&switch));
        }
        self.idle(&place);
    }

    fn proxy_pem(&mut self, place: &str, to: &str, key: &str) {
        let (written, node) = self.take_text(&join(place, key));
        let Some(node) = node else {
            return;
        };
        let ours = join(to, &format!("http.tls.{key}"));
        match Pem::of(&written) {
            Pem::Nothing => self.unused(Some(&node)),
            Pem::Text(pem) => {
                self.output.set(&ours, text(&pem), None);
                self.taken(Some(&node), &ours);
            }
            Pem::File(path) if (self.files)(&path) => {
                let ours = format!("{ours}_file");
                self.output.set(&ours, text(&path), None);
                self.taken(Some(&node), &ours);
            }
            Pem::File(path) => {
                let why = "take the sign away when the file is there";
                self.output
                    .suggest(&format!("{ours}_file"), text(&path), Some(why));
                self.undecided(
                    &node,
                    "the file cannot be read here: copy it, and take the sign away from its line",
                );
            }
        }
    }

    /// `rpc.without_namespace` and the namespaces of methods.
    pub(super) fn methods(&mut self, usable: &Usable) {
        let place = "rpc.without_namespace";
        self.method_namespace(place, place, usable);
        for index in 0..self.tree.items("rpc.namespaces") {
            let place = format!("rpc.namespaces[{index}]");
            if self.name_of(&place).is_some() {
                self.output.open(&place);
                self.method_namespace(&place, &place, usable);
            }
        }
    }

    fn method_namespace(&mut self, from: &str, to: &str, usable: &Usable) {
        for row in Scope::RpcNamespace.rows() {
            if row.v6 != "name" || !to.ends_with("without_namespace") {
                self.row(row, from, to);
            }
        }
        if let Some(switch) = self.ask("proxy", from, to, usable, "rpc.proxy") {
            self.undecided(&switch, "the application cannot be asked, because there is no proxy that speaks HTTP: its methods answer error 108");
        }
    }

    /// The switch of calls to the application and the name of their proxy: `KIND_enabled` and `KIND_name`. Returns the switch where it is on and
    /// that proxy was not taken over.
    pub(super) fn ask(
        &mut self,
        kind: &str,
        from: &str,
        to: &str,
        usable: &Usable,
        place: &str,
    ) -> Option<Node> {
        let [switch, key] = ["enabled", "name"].map(|end| format!("{kind}_{end}"));
        let (is_on, node) = self.take_flag(&join(from, &switch));
        let (name, name_node) = self.take_text(&join(from, &key));
        let Some(node) = node.filter(|_| is_on) else {
            self.unused(name_node.as_ref());
            return None;
        };
        if !usable.has(place, &name) {
            return Some(node);
        }
        let ours = join(to, &switch);
        self.output.set(&ours, "true", None);
        // Version 5 asks for all methods by one endpoint; here a colon begins with a namespace.
        match node.name.as_str() {
            "proxy_rpc_endpoint" => self.changed(
                &node,
                &ours,
                "methods with a colon in their names need [[rpc.namespaces]] with what stands before it",
            ),
            _ => self.taken(Some(&node), &ours),
        }
        if ["", "default"].contains(&&*name) {
            self.unused(name_node.as_ref());
        } else {
            let ours = join(to, &key);
            self.output.set(&ours, text(&name), None);
            self.taken(name_node.as_ref(), &ours);
        }
        None
    }
}

/// One transform, without what is zero.
fn transform(item: &Node) -> toml::Value {
    let mut table = any(&item.value);
    if let toml::Value::Table(table) = &mut table {
        for key in ["to_error", "to_disconnect"] {
            let code = table.get(key).and_then(|to| to.get("code"));
            if code.is_none_or(|code| code.as_integer() == Some(0)) {
                table.remove(key);
            }
        }
    }
    table
}

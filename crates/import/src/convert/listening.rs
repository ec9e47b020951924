//! Addresses and TLS. There one address speaks TLS or does not; here a second one does.

use super::Import;
use crate::report::Fate;
use crate::source::{Node, Value};
use crate::table::{Form, Scope};
use crate::value::{Pem, list, text, text_list};
use std::net::{IpAddr, Ipv6Addr};

/// An address that was read: a host as we write it, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    fn text(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Files for TLS, or what is in the way of it.
enum Pair {
    Files {
        certificate: String,
        key: String,
        client_ca: Option<String>,
    },
    Missing(Node, &'static str),
}

const NO_FILE: &str = "TLS is commented out: PEM text has to be put into a file for tls-certificate, tls-key or tls-client-ca. Without TLS only this machine reaches the server";
const NOT_HERE: &str = "TLS is commented out: the file cannot be read here. Copy it, and take the signs away. Without TLS only this machine reaches the server";
const NO_CERTIFICATE: &str = "TLS is commented out: a certificate and a key are missing. Without TLS only this machine reaches the server";

impl Import<'_> {
    /// `http_server`, `shutdown` and `log`, but for what has rows of its own.
    pub(super) fn listening(&mut self) {
        let external = self.external();
        let internal = self.internal(external.as_ref());
        let external = external.unwrap_or(Address {
            host: String::new(),
            port: 8000,
        });
        self.tls(&external, internal.as_ref());
        if let Some(internal) = &internal {
            self.output
                .set("internal-listen", text(&internal.text()), None);
        }
        self.log_level();
    }

    fn external(&mut self) -> Option<Address> {
        let (host, host_node) = self.take_text("http_server.address");
        let (port, port_node) = self.take_text("http_server.port");
        let host = self.host(&host, host_node.as_ref());
        let port = match &*port {
            "" => Some(8000),
            port => self.port(port, port_node.as_ref()),
        };
        match host.is_empty() {
            true => self.unused(host_node.as_ref()),
            false => self.taken(host_node.as_ref(), "listen"),
        }
        match &port_node {
            Some(_) => self.taken(port_node.as_ref(), "listen"),
            None => self.unset(Fate::Stated, "http_server.port", "listen", "8000 of every address of the machine is the default there; here it is loopback alone"),
        }
        port.map(|port| Address { host, port })
    }

    /// A second server, if its address or its port is another.
    fn internal(&mut self, external: Option<&Address>) -> Option<Address> {
        let (host, host_node) = self.take_text("http_server.internal_address");
        let (port, port_node) = self.take_text("http_server.internal_port");
        let external = external?.clone();
        let address = Address {
            host: match &*host {
                "" => external.host.clone(),
                host => self.host(host, host_node.as_ref()),
            },
            port: match &*port {
                "" => external.port,
                port => self.port(port, port_node.as_ref())?,
            },
        };
        let is_other = address != external;
        for node in [host_node, port_node].into_iter().flatten() {
            let is_set = !matches!(&node.value, Value::Text(text) if text.is_empty());
            match is_set && is_other {
                true => self.taken(Some(&node), "internal-listen"),
                false => self.unused(Some(&node)),
            }
        }
        is_other.then_some(address)
    }

    /// A host as we write it. A name is not looked up: it would be another address tomorrow.
    fn host(&mut self, host: &str, node: Option<&Node>) -> String {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // One spelling of an address, so that the same one is not written twice.
        if host.is_empty() || host == "*" || host == "0.0.0.0" {
            return String::new();
        }
        if host.eq_ignore_ascii_case("localhost") {
            return "127.0.0.1".into();
        }
        if bare.parse::<Ipv6Addr>().is_ok() {
            return format!("[{bare}]");
        }
        if host.parse::<IpAddr>().is_ok() {
            return host.to_owned();
        }
        if let Some(node) = node {
            self.undecided(
                node,
                "a host has to be an IP address: 127.0.0.1 is written until you choose one",
            );
        }
        "127.0.0.1".into()
    }

    fn port(&mut self, port: &str, node: Option<&Node>) -> Option<u16> {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse() {
            Ok(port) if is_number => Some(port),
            _ => {
                if let Some(node) = node {
                    self.fault(
                        node,
                        port.chars().take(60).collect::<String>(),
                        "write a port, 0 to 65535",
                    );
                }
                None
            }
        }
    }

    fn tls(&mut self, external: &Address, internal: Option<&Address>) {
        let (has_files, files_node) = self.take_flag("http_server.tls.enabled");
        let (has_acme, acme_node) = self.take_flag("http_server.tls_autocert.enabled");
        if !has_files && !has_acme {
            self.unused(files_node.as_ref());
            self.unused(acme_node.as_ref());
            self.idle("http_server.tls");
            self.idle("http_server.tls_autocert");
            let why = "Centrifugo listens at every address of the machine; the default here is 127.0.0.1:8000";
            let why = external.host.is_empty().then_some(why);
            self.output.set("listen", text(&external.text()), why);
            return;
        }
        self.plain_beside(external, internal);
        // Centrifugo looks for certificates of an authority first.
        if let Some(node) = acme_node.filter(|_| has_acme) {
            self.unused(files_node.as_ref());
            self.idle("http_server.tls");
            self.acme(external, &node);
        } else if let Some(node) = files_node {
            self.idle("http_server.tls_autocert");
            self.certificate(external, &node);
        }
    }

    /// Clients with TLS get the address that they know. The one without TLS is for this machine.
    fn plain_beside(&mut self, external: &Address, internal: Option<&Address>) {
        let taken = [Some(external.port), internal.map(|address| address.port)];
        let port = (8000..8003).find(|port| !taken.contains(&Some(*port)));
        let listen = Address {
            host: "127.0.0.1".into(),
            port: port.unwrap_or(8000),
        };
        let why = "without TLS, for this machine alone: clients come to tls-listen";
        self.output.set("listen", text(&listen.text()), Some(why));
    }

    fn certificate(&mut self, external: &Address, switch: &Node) {
        let pair = self.pair(switch);
        let tls_listen = text(&external.text());
        match pair {
            Pair::Files {
                certificate,
                key,
                client_ca,
            } => {
                self.output.set("tls-listen", tls_listen, None);
                self.output.set("tls-certificate", text(&certificate), None);
                self.output.set("tls-key", text(&key), None);
                if let Some(ca) = client_ca {
                    self.output.set("tls-client-ca", text(&ca), None);
                }
                self.taken(Some(switch), "tls-listen");
            }
            Pair::Missing(node, meaning) => {
                let why = "take the sign away from these lines when the files are there";
                self.output.suggest("tls-listen", tls_listen, Some(why));
                for key in ["tls-certificate", "tls-key"] {
                    self.output.suggest(key, text("/path/of/a.pem"), None);
                }
                self.undecided(&node, meaning);
            }
        }
        self.idle("http_server.tls");
    }

    fn pair(&mut self, switch: &Node) -> Pair {
        let mut paths = Vec::new();
        for key in ["cert_pem", "key_pem", "client_ca_pem"] {
            let (text, node) = self.take_text(&format!("http_server.tls.{key}"));
            let node = node.unwrap_or_else(|| switch.clone());
            match Pem::of(&text) {
                Pem::Nothing if key == "client_ca_pem" => self.unused(Some(&node)),
                Pem::Nothing => return Pair::Missing(node, NO_CERTIFICATE),
                Pem::Text(_) => return Pair::Missing(node, NO_FILE),
                Pem::File(path) if !(self.files)(&path) => return Pair::Missing(node, NOT_HERE),
                Pem::File(path) => {
                    let ours = match key {
                        "cert_pem" => "tls-certificate",
                        "key_pem" => "tls-key",
                        _ => "tls-client-ca",
                    };
                    self.taken(Some(&node), ours);
                    paths.push(path);
                }
            }
        }
        let mut paths = paths.into_iter();
        match (paths.next(), paths.next()) {
            (Some(certificate), Some(key)) => Pair::Files {
                certificate,
                key,
                client_ca: paths.next(),
            },
            _ => Pair::Missing(switch.clone(), NO_CERTIFICATE),
        }
    }

    /// The operator accepts the terms of the authority, and nobody else.
    fn acme(&mut self, external: &Address, switch: &Node) {
        let place = "http_server.tls_autocert";
        let why = "take the sign away from these lines when you accept the terms of the authority; port 443 is where it asks";
        self.output
            .suggest("tls-listen", text(&external.text()), Some(why));
        let names = self.tree.take(&format!("{place}.host_whitelist"));
        if let Some(node) = &names {
            match list(&node.value) {
                Some(names) => {
                    // Version 5 has one text, with commas.
                    let names = names.iter().flat_map(|name| name.split(','));
                    let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
                    let names: Vec<_> = names.collect();
                    self.output.suggest("tls-acme", text_list(&names), None);
                }
                None => {
                    self.literal(Form::List, node);
                }
            }
            self.taken(Some(node), "tls-acme");
        }
        self.output.suggest("tls-acme-accept-terms", "true", None);
        let (email, node) = self.take_text(&format!("{place}.email"));
        if !email.is_empty() {
            self.output.suggest("tls-acme-email", text(&email), None);
            self.taken(node.as_ref(), "tls-acme-email");
        }
        let (is_http, node) = self.take_flag(&format!("{place}.http"));
        let (address, _) = self.take_text(&format!("{place}.http_addr"));
        if is_http {
            let address = if address.is_empty() { ":80" } else { &address };
            self.output.suggest("tls-acme-http", text(address), None);
            self.taken(node.as_ref(), "tls-acme-http");
        }
        self.idle(place);
        self.undecided(switch, "TLS is commented out: the authority wants its terms accepted by you (tls-acme-accept-terms). Without TLS only this machine reaches the server");
    }

    fn log_level(&mut self) {
        let Some(node) = self.tree.take("log.level") else {
            return;
        };
        let Some(level) = self.ruled(Scope::Top, "log.level", &node) else {
            return;
        };
        match &*level {
            "\"info\"" => self.unused(Some(&node)),
            "\"fatal\"" | "\"none\"" => {
                self.output.set("log", text("error"), None);
                self.changed(&node, "log", "there is no such level: errors are logged");
            }
            _ => {
                self.output.set("log", level, None);
                self.taken(Some(&node), "log");
            }
        }
    }
}

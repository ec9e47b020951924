//! Chooses a certificate by the name that the client asks for (RFC 6066, section 3).

use super::pair::Pair;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates by the names they have.
#[derive(Debug)]
pub(super) struct ByName {
    /// By name in lower case; the name of a wildcard begins with its dot.
    named: HashMap<String, Arc<CertifiedKey>>,
    /// For everybody else. A client that does not find its name there says so, which explains more than an alert of ours.
    first: Option<Arc<CertifiedKey>>,
}

impl ByName {
    /// Where two certificates have a name, the first one answers to it.
    pub(super) fn new(pairs: Vec<Pair>) -> Self {
        let first = pairs.first().map(|pair| Arc::clone(&pair.key));
        let mut named = HashMap::new();
        for pair in pairs {
            for name in &pair.shown.names {
                let name = name.to_ascii_lowercase();
                let name = name.strip_prefix('*').map(str::to_owned).unwrap_or(name);
                named.entry(name).or_insert_with(|| Arc::clone(&pair.key));
            }
        }
        Self { named, first }
    }

    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name.map(str::to_ascii_lowercase).unwrap_or_default();
        let wildcard = name.find('.').map(|dot| &name[dot..]);
        let found = self.named.get(&name);
        let found = found.or_else(|| self.named.get(wildcard?));
        found.or(self.first.as_ref()).cloned()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name())
    }
}

//! The names by which a server may be asked, where that is checked: the Host header against names of this machine.
//!
//! A page of a stranger may let its own name resolve to 127.0.0.1 (DNS rebinding). For the browser, the server on this machine is
//! then a server of that page, and no Origin tells the two apart. Only the Host header still has the stranger's name.

use super::host::without_root_dot;
use super::{Host, OriginPattern};
use std::fmt;
use std::sync::Arc;

/// Names that a server answers to.
///
/// Always among them: names and addresses of loopback, and every other address, because an address cannot be made to mean another
/// machine. A request without Host comes from no browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnHosts {
    names: Box<[Box<str>]>,
    listed: Arc<[OriginPattern]>,
}

/// A request that asks for another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRefused;

impl HostRefused {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        403
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        "This name is not one of this machine's, and a development server (--dev) answers to no other: ask for 127.0.0.1 or localhost, or list the name in allowed-origins, such as http://NAME:*."
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        "foreign_host"
    }
}

impl fmt::Display for HostRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for HostRefused {}

impl OwnHosts {
    /// `names` are this machine's. Hosts of listed pages count, too: whoever lists one trusts it.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>, listed: Arc<[OriginPattern]>) -> Self {
        let names = names.into_iter().map(String::into_boxed_str);
        Self {
            names: names.filter(|name| !name.is_empty()).collect(),
            listed,
        }
    }

    /// Checks the value of a Host header.
    ///
    /// # Errors
    /// It is the name of another machine, or no name.
    pub fn check(&self, host: Option<&[u8]>) -> Result<(), HostRefused> {
        let Some(value) = host else {
            return Ok(());
        };
        let host = Host::parse(value).ok_or(HostRefused)?;
        let name = without_root_dot(host.name());
        let is_own = || self.names.iter().any(|own| own.eq_ignore_ascii_case(name));
        let is_listed = || self.listed.iter().any(|page| page.names_host(name));
        let is_good =
            name.is_empty() || host.is_loopback() || host.is_address() || is_own() || is_listed();
        if is_good { Ok(()) } else { Err(HostRefused) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_machines_are_refused() {
        let listed = ["http://myriad:*", "https://*.test.example"];
        let listed = listed.map(|text| text.parse().expect("a pattern"));
        let hosts = OwnHosts::new(["laptop".to_owned(), String::new()], listed.into());
        for host in [
            "localhost:8000",
            "app.localhost",
            "127.0.0.1:8000",
            "127.8.8.8",
            "[::1]:8000",
            "192.168.1.7:8000",
            "[fe80::1]",
            "Laptop:8000",
            "laptop.",
            "myriad:8000",
            "a.test.example",
            "",
        ] {
            assert_eq!(hosts.check(Some(host.as_bytes())), Ok(()), "{host}");
        }
        assert_eq!(hosts.check(None), Ok(()));
        for host in [
            "evil.example:8000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "laptop.evil.example",
            "test.example",
            "myriad.evil",
            "a b",
        ] {
            assert_eq!(
                hosts.check(Some(host.as_bytes())),
                Err(HostRefused),
                "{host}"
            );
        }
    }
}

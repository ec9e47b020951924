//! Remarks on addresses that other machines reach: who could pass for a user there, and what would travel in clear.

use super::Options;
use std::net::SocketAddr;

impl Options {
    /// What others could do at an address that is not of loopback, and that the configuration leaves open.
    pub(super) fn reach_remarks(&self, listen: SocketAddr) -> impl Iterator<Item = String> {
        let remarks = [self.header_remark(listen), self.plain_remark(listen)];
        remarks.into_iter().flatten()
    }

    /// Where strangers could write the header in which a proxy names users.
    ///
    /// The header is believed of every connection, as in Centrifugo: only a network knows whether a proxy stands in front, and
    /// most files for one say nothing of `trusted-proxies`.
    fn header_remark(&self, listen: SocketAddr) -> Option<String> {
        let header = &*self.client.as_ref()?.user_id_http_header;
        if header.is_empty() {
            return None;
        }
        let secured = self.tls_address().filter(|_| !self.requires_certificates());
        let open = [("listen", Some(listen)), ("tls-listen", secured)];
        let open = open.into_iter().filter_map(|(name, address)| {
            let address = address.filter(|address| !address.ip().is_loopback())?;
            Some(format!("{address} ({name})"))
        });
        let open: Vec<_> = open.collect();
        (!open.is_empty()).then(|| {
            format!(
                "client.user_id_http_header: whoever reaches {} can write {header} and be any user; let only the proxy that sets this header reach it, or remove the option",
                open.join(" or ")
            )
        })
    }

    /// Whether only those get through to the address with TLS whose certificate was signed for it, such as a proxy of ours.
    fn requires_certificates(&self) -> bool {
        let auth = self.tls_client_auth.as_deref().unwrap_or("required");
        self.tls_client_ca.is_some() && auth == "required"
    }

    /// Clients and keys that would travel without TLS, although there is an address with it.
    fn plain_remark(&self, listen: SocketAddr) -> Option<String> {
        self.tls_address().filter(|_| !listen.ip().is_loopback())?;
        let and_keys = if self.internal_listen.is_none() {
            ", tokens and keys of the API"
        } else {
            " and tokens"
        };
        Some(format!(
            "listen = {listen} has no TLS, and other machines reach it: messages{and_keys} may cross the network in clear there; write listen = \"127.0.0.1:{}\", unless only a proxy or checks of health come there",
            listen.port()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;

    fn remarks(text: &str, listen: &str) -> Vec<String> {
        let options: Options = toml::from_str(text).expect(text);
        let listen = listen.parse().expect(listen);
        options.reach_remarks(listen).collect()
    }

    const OPEN: &str = "tls-listen = \"0.0.0.0:8443\"\n";

    #[test]
    fn a_header_that_strangers_can_write_is_remarked_on() {
        const HEADER: &str = "[client]\nuser_id_http_header = \"X-User\"";
        const LOCAL: &str = "127.0.0.1:8000";
        const CA: &str = "tls-client-ca = \"ca.pem\"\n";
        const OPTIONAL: &str = "tls-client-auth = \"optional\"\n";
        let local = "tls-listen = \"[::1]:8443\"\n";
        let acme = "tls-acme = [\"a.example\"]\n";
        for (tls, listen, at) in [
            ("", LOCAL, None),
            (local, LOCAL, None),
            (&format!("{OPEN}{CA}"), LOCAL, None),
            (OPEN, LOCAL, Some("reaches 0.0.0.0:8443 (tls-listen) can")),
            (acme, LOCAL, Some("reaches 0.0.0.0:443 (tls-listen) can")),
            (
                &format!("{OPEN}{CA}{OPTIONAL}"),
                LOCAL,
                Some("(tls-listen)"),
            ),
            ("", "[::]:8000", Some("reaches [::]:8000 (listen) can")),
            (
                OPEN,
                "10.0.0.1:8000",
                Some("10.0.0.1:8000 (listen) or 0.0.0.0:8443 (tls-listen)"),
            ),
        ] {
            let found = remarks(&format!("{tls}{HEADER}"), listen);
            let found = found.iter().find(|one| one.contains("X-User"));
            assert_eq!(found.is_some(), at.is_some(), "{listen}: {found:?}");
            if let (Some(found), Some(at)) = (found, at) {
                assert!(found.contains(at), "{listen}: {found}");
            }
        }
        let without = remarks(OPEN, "10.0.0.1:8000");
        assert!(
            !without
                .iter()
                .any(|one| one.contains("user_id_http_header"))
        );
    }

    #[test]
    fn an_address_without_tls_that_others_reach_is_remarked_on() {
        assert_eq!(remarks(OPEN, "127.0.0.1:8000"), [""; 0]);
        assert_eq!(remarks("", "0.0.0.0:8000"), [""; 0]);
        let [found] = &remarks(OPEN, "0.0.0.0:9000")[..] else {
            panic!("one remark");
        };
        assert!(found.contains("keys of the API"), "{found}");
        assert!(
            found.contains("write listen = \"127.0.0.1:9000\""),
            "{found}"
        );
        let apart = remarks(&format!("{OPEN}internal-listen = 9001"), "0.0.0.0:9000");
        assert!(!apart[0].contains("keys of the API"), "{apart:?}");
    }
}

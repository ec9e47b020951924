//! Certificates from an authority.

use super::tls::Mistakes;
use super::{ConfigError, Options, refuse};
use crate::tls::{AcmeSettings, read_ca};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// Where clients expect TLS, and where an authority asks.
const PORT: u16 = 443;

/// Authorities that have a name here, with the addresses of their directories.
const AUTHORITIES: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        STAGING,
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];
const STAGING: &str = "letsencrypt-staging";

/// Where the account and the certificate are kept: the folder that systemd gives a service of our name.
const FOLDER: &str = "/var/lib/myriad/acme";

/// Names of one certificate that Let's Encrypt takes.
const NAMES_MAX: usize = 100;

impl Options {
    /// Where clients speak TLS. A server that gets its own certificate speaks it where everybody looks.
    pub(super) fn tls_address(&self) -> Option<SocketAddr> {
        let standard = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let has_names = self.tls_acme.iter().flatten().next().is_some();
        self.tls_listen.or(has_names.then_some(standard))
    }

    /// Whom to ask for a certificate; none without names for it.
    ///
    /// # Errors
    /// All mistakes of these options.
    pub(super) fn acme(
        &self,
        taken: [(&str, Option<SocketAddr>); 3],
    ) -> Result<Option<AcmeSettings>, ConfigError> {
        let written = self.tls_acme.as_deref().unwrap_or_default();
        if written.is_empty() {
            return self.refuse_acme_without_names().map(|()| None);
        }
        let mut mistakes = Mistakes::default();
        let names = mistakes.keep(names(written)).unwrap_or_default();
        if self.tls_acme_accept_terms != Some(true) {
            let advice = "needs tls-acme-accept-terms = true (--tls-acme-accept-terms): an authority makes certificates for those who accept its terms; Let's Encrypt has them at https://letsencrypt.org/repository/";
            mistakes.refuse("tls-acme", format!("{written:?}"), advice);
        }
        if let Some(address) = self.tls_acme_http
            && let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == Some(address))
        {
            let advice = format!("is the same as {other}; choose another port");
            mistakes.refuse("tls-acme-http", address, advice);
        }
        let ca = self.tls_acme_ca.as_deref().map(read_ca).transpose();
        let ca = mistakes.keep(ca.map_err(ConfigError::from)).flatten();
        let email = mistakes.keep(self.acme_email()).flatten();
        let directory = mistakes.keep(self.acme_directory()).unwrap_or_default();
        mistakes.into_result()?;
        Ok(Some(AcmeSettings {
            names,
            email,
            directory,
            ca,
            folder: self
                .tls_acme_cache
                .as_deref()
                .unwrap_or(Path::new(FOLDER))
                .to_owned(),
            http: self.tls_acme_http,
        }))
    }

    /// What would mean nothing, unless it is written as it is anyway.
    pub(super) fn refuse_acme_without_names(&self) -> Result<(), ConfigError> {
        let quoted = |text: &str| format!("{text:?}");
        let path = |path: &Path| quoted(&path.display().to_string());
        let directory = self.tls_acme_directory.as_deref();
        let directory = directory.filter(|name| *name != AUTHORITIES[0].0);
        let folder = self.tls_acme_cache.as_deref();
        let folder = folder.filter(|folder| *folder != Path::new(FOLDER));
        let http = self.tls_acme_http.map(|address| address.to_string());
        let written = [
            ("tls-acme-email", self.tls_acme_email.as_deref().map(quoted)),
            ("tls-acme-directory", directory.map(quoted)),
            ("tls-acme-ca", self.tls_acme_ca.as_deref().map(path)),
            ("tls-acme-cache", folder.map(path)),
            ("tls-acme-http", http),
        ];
        let mut written = written.into_iter();
        let first = written.find_map(|(name, value)| Some((name, value?)));
        let advice = "needs tls-acme, the names to get a certificate for";
        first.map_or(Ok(()), |(name, value)| Err(refuse(name, value, advice)))
    }

    fn acme_email(&self) -> Result<Option<String>, ConfigError> {
        let Some(email) = &self.tls_acme_email else {
            return Ok(None);
        };
        let is_address = email.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !email.contains([' ', ',', '?', ':'])
        });
        if is_address {
            return Ok(Some(email.clone()));
        }
        let advice = "write one address of mail, such as admin@example.com";
        Err(refuse("tls-acme-email", format!("{email:?}"), advice))
    }

    fn acme_directory(&self) -> Result<String, ConfigError> {
        let written = self
            .tls_acme_directory
            .as_deref()
            .unwrap_or(AUTHORITIES[0].0);
        if let Some((_, url)) = AUTHORITIES.iter().find(|(name, _)| *name == written) {
            return Ok((*url).to_owned());
        }
        let url = reqwest::Url::parse(written).ok();
        if url.is_some_and(|url| url.scheme() == "https" && url.has_host()) {
            return Ok(written.to_owned());
        }
        let advice = "write letsencrypt, letsencrypt-staging, or the address of an authority's directory, which begins with https://";
        Err(refuse("tls-acme-directory", format!("{written:?}"), advice))
    }

    /// What somebody who reads the log should know about it.
    pub(super) fn acme_remarks(&self) -> Option<String> {
        let is_trial = self.tls_acme_directory.as_deref() == Some(STAGING);
        is_trial.then(|| {
            "tls-acme-directory = \"letsencrypt-staging\": clients do not trust its certificates; leave the option out when everything works".to_owned()
        })
    }
}

/// In lower case, each once.
fn names(written: &[String]) -> Result<Vec<String>, ConfigError> {
    let mut names = Vec::new();
    for name in written {
        let refused = |advice: &str| Err(refuse("tls-acme", format!("{name:?}"), advice));
        if name.starts_with("*.") {
            return refused(
                "an authority makes a certificate for all names of a domain only by DNS (DNS-01): use certbot for that, and tls-certificate",
            );
        }
        if name.parse::<IpAddr>().is_ok() {
            return refused(
                "write a name, such as push.example.com: certificates for addresses are not ordered",
            );
        }
        if !is_host(name) {
            return refused(
                "write the name of a host, such as push.example.com (in ASCII: xn-- and so on)",
            );
        }
        let name = name.to_ascii_lowercase();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > NAMES_MAX {
        let advice = format!("one certificate has at most {NAMES_MAX} names");
        return Err(refuse("tls-acme", format!("{} names", names.len()), advice));
    }
    Ok(names)
}

/// Labels with dots between them (RFC 1123, section 2.1). A name without a dot is nobody's on the internet.
fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn resolve(text: &str) -> Result<AcmeSettings, String> {
        let options =
            Options::from_text(text, Path::new("a.toml")).map_err(|error| error.to_string())?;
        let config = options
            .resolve(&Machine::OF_TESTS)
            .map_err(|error| error.to_string())?;
        let sources = config.tls.expect("TLS").sources;
        Ok(AcmeSettings::clone(
            sources.acme.as_ref().expect("an authority"),
        ))
    }

    #[test]
    fn one_name_and_the_terms_are_enough() {
        let text =
            "tls-acme = [\"Push.example.com\", \"push.example.com\"]\ntls-acme-accept-terms = true";
        let settings = resolve(text).unwrap();
        assert_eq!(settings.names, ["push.example.com"]);
        assert_eq!(settings.directory, AUTHORITIES[0].1);
        assert_eq!(settings.folder, Path::new(FOLDER));
        let options = Options::from_text(text, Path::new("a.toml")).unwrap();
        assert_eq!(options.tls_address().unwrap().to_string(), "0.0.0.0:443");
        let config = options.resolve(&Machine::OF_TESTS).unwrap();
        let tls = config.tls.unwrap();
        assert_eq!(tls.listen.to_string(), "0.0.0.0:443");
        assert_eq!(tls.loaded.awaited, ["push.example.com"]);
    }

    #[test]
    fn mistakes_say_what_to_do() {
        let with = |names: &str, rest: &str| {
            resolve(&format!(
                "tls-acme = [{names}]\ntls-acme-accept-terms = true\n{rest}"
            ))
            .unwrap_err()
        };
        for (fault, advice) in [
            (
                resolve("tls-acme = [\"a.example\"]").unwrap_err(),
                "needs tls-acme-accept-terms = true",
            ),
            (
                resolve("tls-acme = [\"a.example\"]\ntls-acme-accept-terms = false").unwrap_err(),
                "needs tls-acme-accept-terms = true",
            ),
            (
                resolve("tls-acme-email = \"a@b.example\"").unwrap_err(),
                "needs tls-acme, ",
            ),
            (
                resolve("tls-acme = []\ntls-acme-http = \":80\"").unwrap_err(),
                "needs tls-acme, ",
            ),
            (with("\"*.example.com\"", ""), "only by DNS"),
            (with("\"192.0.2.1\"", ""), "write a name"),
            (with("\"localhost\"", ""), "write the name of a host"),
            (with("\"a_b.example\"", ""), "write the name of a host"),
            (
                with("\"https://a.example\"", ""),
                "write the name of a host",
            ),
            (
                with("\"a.example\"", "tls-acme-email = \"a\""),
                "write one address of mail",
            ),
            (
                with("\"a.example\"", "tls-acme-directory = \"http://a/b\""),
                "begins with https://",
            ),
            (
                with("\"a.example\"", "tls-acme-directory = \"zerossl\""),
                "write letsencrypt",
            ),
            (
                with("\"a.example\"", "tls-acme-ca = \"/nowhere.pem\""),
                "cannot be read",
            ),
            (
                with("\"a.example\"", "tls-acme-http = \":443\""),
                "is the same as tls-listen",
            ),
        ] {
            assert!(fault.contains(advice), "{fault}");
        }
    }
}

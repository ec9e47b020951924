//! TLS of the server's own port.

use super::{ConfigError, Options, refuse};
use crate::tls::{ClientAuth, ClientUser, LoadFault, MinVersion, PairFiles, Sources, TlsSettings};
use serde::Deserialize;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// `[tls]`: certificates beside that of `tls-certificate`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsTable {
    certificates: Vec<CertificateTable>,
}

/// One of `[[tls.certificates]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateTable {
    certificate: PathBuf,
    key: PathBuf,
}

/// How much of TLS a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsCheck {
    /// All of its options, and the files.
    Whole,
    /// Nothing: its mistakes are known, or one of its options cannot be read. Options of TLS need each other, so without the value at fault
    /// the others would look wrong.
    LeftOut,
}

/// The mistakes of options that are checked one beside the other.
#[derive(Default)]
pub(super) struct Mistakes(Vec<ConfigError>);

impl Mistakes {
    pub(super) fn refuse(
        &mut self,
        field: &'static str,
        value: impl Display,
        advice: impl Into<String>,
    ) {
        self.0.push(refuse(field, value, advice));
    }

    pub(super) fn into_result(self) -> Result<(), ConfigError> {
        ConfigError::several(self.0)
    }

    /// The value; none if it was refused.
    pub(super) fn keep<T>(&mut self, checked: Result<T, ConfigError>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.extend(error.into_each());
                None
            }
        }
    }
}

impl From<LoadFault> for ConfigError {
    fn from(fault: LoadFault) -> Self {
        let shown = format!("{:?}", fault.path.display().to_string());
        refuse(fault.field, shown, fault.advice)
    }
}

impl Options {
    /// What is written about TLS, with the certificates read; none without an address for it, or if nothing is to be checked.
    ///
    /// # Errors
    /// All mistakes of these options and files.
    pub(super) fn tls(
        &self,
        listen: SocketAddr,
        check: TlsCheck,
    ) -> Result<Option<TlsSettings>, ConfigError> {
        if check == TlsCheck::LeftOut {
            return Ok(None);
        }
        let Some(tls_listen) = self.tls_address() else {
            self.refuse_acme_without_names()?;
            return self.refuse_without_address().map(|()| None);
        };
        let mut mistakes = Mistakes::default();
        let plain = [
            ("listen", Some(listen)),
            ("internal-listen", self.internal_listen),
        ];
        mistakes.keep(refuse_same_address(tls_listen, &plain));
        let [listen, internal] = plain;
        let acme = self.acme([listen, internal, ("tls-listen", Some(tls_listen))]);
        let acme = mistakes.keep(acme).flatten();
        let client_auth = mistakes.keep(self.client_auth());
        // What was refused is replaced by something that makes no other mistake. Nobody gets to see it.
        let sources = Sources {
            pairs: self.pairs(tls_listen, &mut mistakes),
            acme: acme.map(Arc::new),
            client_ca: self.tls_client_ca.clone(),
            client_auth: client_auth.unwrap_or(ClientAuth::Required),
            client_user: mistakes.keep(self.client_user()).flatten(),
            min_version: mistakes
                .keep(self.min_version())
                .unwrap_or(MinVersion::Tls12),
            ticket_keys: self.tls_ticket_keys.clone(),
        };
        let loaded = sources.load();
        if let Err(faults) = &loaded {
            let faults = faults.each().iter().cloned();
            mistakes.0.extend(faults.map(ConfigError::from));
        }
        mistakes.into_result()?;
        Ok(loaded.ok().map(|loaded| TlsSettings {
            listen: tls_listen,
            sources: Arc::new(sources),
            loaded: Arc::new(loaded),
        }))
    }

    /// Refuses options of TLS that nobody would ever see. The first of them stands for all: what is missing is the address.
    fn refuse_without_address(&self) -> Result<(), ConfigError> {
        let advice = "needs tls-listen, the address at which clients speak TLS";
        if let Some(word) = self.client_user_word() {
            return Err(refuse("tls-client-user", format!("{word:?}"), advice));
        }
        let words = [
            ("tls-client-auth", &self.tls_client_auth, "none"),
            ("tls-min-version", &self.tls_min_version, "1.2"),
        ];
        for (name, word, standard) in words {
            if let Some(word) = word.as_ref().filter(|word| *word != standard) {
                return Err(refuse(name, format!("{word:?}"), advice));
            }
        }
        let tables = self.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
        let written = [
            ("tls-certificate", self.tls_certificate.as_ref()),
            ("tls-key", self.tls_key.as_ref()),
            ("tls-client-ca", self.tls_client_ca.as_ref()),
            ("tls-ticket-keys", self.tls_ticket_keys.as_ref()),
            (
                "tls.certificates",
                tables.first().map(|table| &table.certificate),
            ),
        ];
        match written
            .into_iter()
            .find_map(|(name, path)| Some((name, path?)))
        {
            Some((name, path)) => Err(refuse(name, format!("{:?}", path.display()), advice)),
            None => Ok(()),
        }
    }

    fn pairs(&self, listen: SocketAddr, mistakes: &mut Mistakes) -> Vec<PairFiles> {
        let shown = |path: &PathBuf| format!("{:?}", path.display().to_string());
        let mut pairs = Vec::new();
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => pairs.push(PairFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                fields: ("tls-certificate".into(), "tls-key".into()),
            }),
            (Some(path), None) => {
                let advice = "needs tls-key, the file with the private key of this certificate";
                mistakes.refuse("tls-certificate", shown(path), advice);
            }
            (None, Some(path)) => {
                let advice = "needs tls-certificate, the file with the certificate of this key";
                mistakes.refuse("tls-key", shown(path), advice);
            }
            (None, None) => {}
        }
        let has_own_pair = self.tls_certificate.is_some() || self.tls_key.is_some();
        let tables = self.tls.iter().flat_map(|tls| &tls.certificates);
        pairs.extend((0..).zip(tables).map(|(nth, table)| PairFiles {
            certificate: table.certificate.clone(),
            key: table.key.clone(),
            fields: (
                format!("tls.certificates[{nth}].certificate"),
                format!("tls.certificates[{nth}].key"),
            ),
        }));
        let has_acme = self.tls_acme.iter().flatten().next().is_some();
        if pairs.is_empty() && !has_own_pair && !has_acme {
            let advice = "needs a certificate: write tls-certificate and tls-key, the files with its chain and its private key, or tls-acme, the names to get one for";
            mistakes.refuse("tls-listen", listen, advice);
        }
        pairs
    }

    fn client_auth(&self) -> Result<ClientAuth, ConfigError> {
        let written = self.tls_client_auth.as_deref();
        let auth = match written {
            None if self.tls_client_ca.is_some() => ClientAuth::Required,
            None | Some("none") => ClientAuth::None,
            Some("optional") => ClientAuth::Optional,
            Some("required") => ClientAuth::Required,
            Some(other) => {
                let advice = "choose none, optional or required";
                return Err(refuse("tls-client-auth", format!("{other:?}"), advice));
            }
        };
        if auth != ClientAuth::None && self.tls_client_ca.is_none() {
            let advice =
                "needs tls-client-ca, the file with the CAs that sign the certificates of clients";
            let word = written.unwrap_or_default();
            return Err(refuse("tls-client-auth", format!("{word:?}"), advice));
        }
        Ok(auth)
    }

    /// Whether the certificates of clients say who their users are.
    pub(super) fn certificates_name_users(&self) -> bool {
        self.client_user_word().is_some()
    }

    fn client_user_word(&self) -> Option<&str> {
        self.tls_client_user
            .as_deref()
            .filter(|word| *word != "none")
    }

    fn client_user(&self) -> Result<Option<ClientUser>, ConfigError> {
        let Some(word) = self.client_user_word() else {
            return Ok(None);
        };
        let refused = |advice: &str| Err(refuse("tls-client-user", format!("{word:?}"), advice));
        let user = match word {
            "common-name" => ClientUser::CommonName,
            "dns" => ClientUser::Dns,
            "email" => ClientUser::Email,
            "uri" => ClientUser::Uri,
            _ => return refused("choose none, common-name, dns, email or uri"),
        };
        let is_unasked = matches!(self.client_auth(), Ok(ClientAuth::None));
        if self.tls_client_ca.is_some() && is_unasked {
            return refused(
                "needs tls-client-auth = \"required\" or \"optional\": with none, no client shows a certificate",
            );
        }
        if self.tls_client_ca.is_none() {
            return refused(
                "needs tls-client-ca, the file with the CAs that sign the certificates of clients",
            );
        }
        let header = self
            .client
            .as_ref()
            .map(|client| &*client.user_id_http_header);
        if header.is_some_and(|header| !header.is_empty()) {
            return refused(
                "cannot stand beside client.user_id_http_header, which whoever reaches tls-listen could write; remove one of them",
            );
        }
        Ok(Some(user))
    }

    fn min_version(&self) -> Result<MinVersion, ConfigError> {
        match self.tls_min_version.as_deref() {
            None | Some("1.2") => Ok(MinVersion::Tls12),
            Some("1.3") => Ok(MinVersion::Tls13),
            Some(other) => {
                let advice = "choose 1.2 or 1.3; nobody should speak an older version (RFC 8996)";
                Err(refuse("tls-min-version", format!("{other:?}"), advice))
            }
        }
    }

    /// What somebody who reads the log should know about TLS.
    pub(super) fn tls_remarks(&self, tls: Option<&TlsSettings>) -> Vec<String> {
        let Some(tls) = tls else { return Vec::new() };
        let mut remarks = tls.loaded.remarks();
        if self.tls_ticket_keys.is_some() && tls.sources.client_auth != ClientAuth::None {
            remarks.push(
                "tls-ticket-keys has no effect beside tls-client-ca: clients show their certificate in a full handshake each time; remove tls-ticket-keys".to_owned(),
            );
        }
        remarks
    }
}

/// Two listeners cannot have one address.
fn refuse_same_address(
    tls_listen: SocketAddr,
    others: &[(&str, Option<SocketAddr>)],
) -> Result<(), ConfigError> {
    let same = others
        .iter()
        .find(|(_, address)| *address == Some(tls_listen) && tls_listen.port() != 0);
    same.map_or(Ok(()), |(other, _)| {
        let advice = format!("is the same as {other}; choose another port");
        Err(refuse("tls-listen", tls_listen, advice))
    })
}

#[cfg(test)]
mod tests {
    use crate::{Config, Machine, Options};
    use rcgen::{
        BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    };
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, SystemTime};

    fn refusal(text: &str) -> String {
        let options = Options::from_text(text, Path::new("a.toml"));
        let config = options.and_then(|options| options.resolve(&Machine::OF_TESTS));
        config.expect_err(text).to_string()
    }

    /// What is written, the option that is refused, and what to do.
    const REFUSED: &[(&str, &str, &str)] = &[
        ("tls-client-user = \"cn\"", "tls-client-user", "choose none"),
        (
            "tls-client-user = \"dns\"",
            "tls-client-user",
            "tls-client-ca",
        ),
        (
            "tls-client-user = \"dns\"\ntls-client-ca = \"a.pem\"\n[client]\nuser_id_http_header = \"X-User\"",
            "tls-client-user",
            "user_id_http_header",
        ),
    ];

    #[test]
    fn users_by_certificates_need_certificates_and_nobody_else_to_name_them() {
        let pair =
            "tls-listen = \"127.0.0.1:8443\"\ntls-certificate = \"a.pem\"\ntls-key = \"a.key\"";
        for (text, field, advice) in REFUSED {
            let refused = refusal(&format!("{pair}\n{text}"));
            assert!(
                refused.contains(&format!("{field} = ")) && refused.contains(advice),
                "{refused}"
            );
        }
        let refused = refusal("tls-client-user = \"dns\"");
        assert!(refused.contains("needs tls-listen"), "{refused}");
    }

    /// A folder with certificates, which goes with its test.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("myriad-remarks-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a folder");
            let folder = Self(path);
            folder.permit("", 0o700);
            folder
        }

        /// Gives a file in it these permissions, or the folder itself.
        fn permit(&self, file: &str, mode: u32) {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(self.0.join(file), permissions).expect("permissions");
        }

        /// Writes a certificate that names these hosts, alone in its file, and its key.
        fn issue(&self, file: &str, names: &[&str], has_issuer_elsewhere: bool) {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let params = CertificateParams::new(names).expect("names");
            self.issue_with(file, params, has_issuer_elsewhere);
        }

        fn issue_with(
            &self,
            file: &str,
            mut params: CertificateParams,
            has_issuer_elsewhere: bool,
        ) {
            if has_issuer_elsewhere {
                params.custom_extensions = vec![CustomExtension::from_oid_content(
                    &[1, 3, 6, 1, 5, 5, 7, 1, 1],
                    ISSUER_ELSEWHERE.to_vec(),
                )];
            }
            let issuer_key = KeyPair::generate().expect("a key");
            let mut issuer = CertificateParams::new(Vec::new()).expect("no names");
            let name = (DnType::CommonName, "Intermediate X1");
            issuer.distinguished_name.push(name.0, name.1);
            let issuer = Issuer::new(issuer, issuer_key);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            let write = |end: &str, text: String| {
                fs::write(self.0.join(format!("{file}.{end}")), text).expect("a file");
            };
            write("pem", certificate.pem());
            write("key", key.serialize_pem());
        }

        /// The configuration of a server with these pairs, and what else is written.
        fn config(&self, pairs: &[&str], more: &str) -> Config {
            let path = |file: &str, end: &str| self.0.join(format!("{file}.{end}"));
            let tables = pairs.iter().map(|pair| {
                format!(
                    "[[tls.certificates]]\ncertificate = {:?}\nkey = {:?}\n",
                    path(pair, "pem"),
                    path(pair, "key")
                )
            });
            let tables: String = tables.collect();
            let text = format!("tls-listen = \"127.0.0.1:8443\"\n{more}\n{tables}");
            let options = Options::from_text(&text, Path::new("a.toml")).expect("options");
            options.resolve(&Machine::OF_TESTS).expect("a config")
        }

        /// Its remarks about TLS.
        fn remarks(&self, pairs: &[&str], more: &str) -> Vec<String> {
            let config = self.config(pairs, more);
            config.options.tls_remarks(config.tls.as_ref())
        }
    }

    /// RFC 5280, section 4.2.2.1: the certificate of the issuer (1.3.6.1.5.5.7.48.2) is at `http://x1.example/`.
    const ISSUER_ELSEWHERE: &[u8] =
        b"\x30\x20\x30\x1e\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x12http://x1.example/";

    #[test]
    fn a_certificate_whose_issuer_is_missing_is_remarked() {
        let folder = Folder::new("issuer");
        folder.issue("public", &["a.example"], true);
        folder.issue("private", &["b.example"], false);
        let remarks = folder.remarks(&["public", "private"], "");
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].contains("public.pem: it is alone in its file"));
        assert!(
            remarks[0].contains("issuer, CN=Intermediate X1"),
            "{remarks:?}"
        );
        assert!(remarks[0].contains("fullchain.pem"));
    }

    #[test]
    fn a_check_has_the_names_and_the_days_of_each_certificate() {
        let folder = Folder::new("shown");
        folder.issue("first", &["a.example", "b.example"], false);
        folder.issue("second", &["c.example"], false);
        let config = folder.config(&["first", "second"], "");
        let shown = config.certificates().expect("certificates");
        let (first, second) = shown.split_once("; ").expect("two");
        assert!(
            first.starts_with("a.example, b.example (expires in "),
            "{shown}"
        );
        assert!(second.starts_with("c.example (expires in "), "{shown}");
        let plain = Options::default().resolve(&Machine::OF_TESTS);
        assert_eq!(plain.expect("a config").certificates(), None);
    }

    #[test]
    fn a_check_warns_of_a_certificate_that_ends_soon() {
        let folder = Folder::new("ends");
        let day = Duration::from_secs(24 * 60 * 60);
        for (file, days) in [("soon", 13), ("later", 16)] {
            let names = vec![format!("{file}.example")];
            let mut params = CertificateParams::new(names).expect("a name");
            // An hour less, so that it is the same number of days however long the test takes.
            let hour = day / 24;
            params.not_after = (SystemTime::now() + days * day - hour).into();
            folder.issue_with(file, params, false);
        }
        let config = folder.config(&["soon", "later"], "");
        let near_ends = config.certificates_near_end();
        assert_eq!(near_ends.len(), 1, "{near_ends:?}");
        assert!(
            near_ends[0].contains("soon.pem expires in 12 days: renew it"),
            "{near_ends:?}"
        );
    }

    #[test]
    fn a_secret_that_everybody_may_read_is_remarked() {
        let folder = Folder::new("readers");
        folder.issue("own", &["a.example"], false);
        let keys = folder.0.join("tickets");
        fs::write(&keys, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n").expect("a file");
        let tickets = format!("tls-ticket-keys = {keys:?}");
        for file in ["own.key", "tickets"] {
            folder.permit(file, 0o644);
        }
        assert_eq!(folder.remarks(&["own"], &tickets), [""; 0]);
        folder.permit("", 0o755);
        let remarks = folder.remarks(&["own"], &tickets);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert!(remarks[0].contains("may read the private key in "));
        assert!(remarks[1].contains("may read the keys of tickets in "));
    }

    #[test]
    fn a_name_of_two_certificates_is_remarked() {
        let folder = Folder::new("names");
        folder.issue("first", &["a.example", "b.example"], false);
        folder.issue("second", &["B.example", "c.example"], false);
        let remarks = folder.remarks(&["first", "second"], "");
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].contains("first.pem and "), "{remarks:?}");
        assert!(remarks[0].contains("second.pem both have the name B.example"));
    }

    #[test]
    fn a_file_that_two_pairs_name_is_remarked() {
        let folder = Folder::new("twice");
        folder.issue("first", &["a.example", "A.example", "b.example"], false);
        assert_eq!(folder.remarks(&["first"], ""), [""; 0]);
        let remarks = folder.remarks(&["first", "first"], "");
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(
            remarks[0].contains("first.pem is named by two pairs"),
            "{remarks:?}"
        );
    }

    #[test]
    fn keys_of_tickets_that_nobody_uses_are_remarked() {
        let folder = Folder::new("tickets");
        folder.issue("own", &["a.example"], false);
        let keys = folder.0.join("tickets");
        fs::write(&keys, "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n").expect("a file");
        let tickets = format!("tls-ticket-keys = {keys:?}");
        assert_eq!(folder.remarks(&["own"], &tickets), [""; 0]);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a CA").pem();
        let path = folder.0.join("ca.pem");
        fs::write(&path, authority).expect("a file");
        let ca = format!("{tickets}\ntls-client-ca = {path:?}");
        let remarks = folder.remarks(&["own"], &ca);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].starts_with("tls-ticket-keys has no effect"));
        let nobody = format!("tls-client-ca = {path:?}\ntls-client-auth = \"none\"");
        let remarks = folder.remarks(&["own"], &nobody);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(remarks[0].starts_with("tls-client-ca has no effect"));
    }
}

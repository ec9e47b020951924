//! `http.tls` of a proxy: certificates, in the config file or in files of their own.

use super::proxy_tables::ProxyTlsTable;
use super::{ConfigError, refuse};
use crate::proxy::{Tls, TlsFault};
use crate::tls::read_file;
use reqwest::Url;
use std::io;
use std::path::Path;

/// A text, and the key that has it or names its file.
struct Pem {
    text: String,
    field: String,
}

impl ProxyTlsTable {
    /// What it means for calls to this address; none with `http`.
    pub(super) fn settings(&self, path: &str, endpoint: &Url) -> Result<Option<Tls>, ConfigError> {
        let ca = pem(
            path,
            "server_ca_pem",
            &self.server_ca_pem,
            &self.server_ca_pem_file,
        )?;
        let certificate = pem(path, "cert_pem", &self.cert_pem, &self.cert_pem_file)?;
        let key = pem(path, "key_pem", &self.key_pem, &self.key_pem_file)?;
        if endpoint.scheme() != "https" {
            let written = [ca, certificate, key].into_iter().flatten().next();
            return match written {
                Some(pem) => Err(at_fault(pem.field, "needs an endpoint with https://")),
                None => Ok(None),
            };
        }
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => Some((&*certificate.text, &*key.text)),
            (None, None) => None,
            (Some(pem), None) => {
                let advice =
                    format!("needs {path}.key_pem_file, the private key of this certificate");
                return Err(at_fault(pem.field.clone(), advice));
            }
            (None, Some(pem)) => {
                let advice = format!("needs {path}.cert_pem_file, the certificate of this key");
                return Err(at_fault(pem.field.clone(), advice));
            }
        };
        let tls = Tls::new(ca.as_ref().map(|ca| &*ca.text), identity);
        tls.map(Some).map_err(|fault| {
            let (pem, cause, advice) = match fault {
                TlsFault::Ca(cause) => (
                    ca,
                    cause,
                    "write certificates as PEM: -----BEGIN CERTIFICATE----- and what follows it",
                ),
                TlsFault::Identity(cause) => (
                    certificate,
                    cause,
                    "write a certificate and its private key as PEM",
                ),
            };
            let field = pem.map_or_else(|| path.to_owned(), |pem| pem.field);
            at_fault(field, format!("{advice} ({cause})"))
        })
    }
}

fn at_fault(field: String, advice: impl Into<String>) -> ConfigError {
    refuse(field, "(hidden)", advice)
}

fn pem(
    path: &str,
    key: &str,
    text: &Option<String>,
    file: &Option<impl AsRef<Path>>,
) -> Result<Option<Pem>, ConfigError> {
    let text = text.as_deref().filter(|text| !text.is_empty());
    let file = file.as_ref().map(AsRef::as_ref);
    let field = format!("{path}.{key}");
    let file_field = format!("{field}_file");
    match (text, file.filter(|file| !file.as_os_str().is_empty())) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(at_fault(field, format!("remove it, or {file_field}"))),
        (Some(text), None) => {
            if !text.contains("-----BEGIN ") {
                return Err(at_fault(field, no_pem()));
            }
            let text = text.to_owned();
            Ok(Some(Pem { text, field }))
        }
        (None, Some(file)) => {
            let shown = format!("{:?}", file.display().to_string());
            let refused = |advice: String| refuse(file_field.clone(), &shown, advice);
            let text = read(file).map_err(|cause| refused(format!("cannot be read: {cause}")))?;
            if !text.contains("-----BEGIN ") {
                return Err(refused(no_pem()));
            }
            let field = file_field;
            Ok(Some(Pem { text, field }))
        }
    }
}

fn no_pem() -> String {
    "this is no PEM text, which has a line -----BEGIN ...-----".into()
}

fn read(file: &Path) -> io::Result<String> {
    let text = read_file(file)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use crate::Machine;
    use std::path::Path;

    /// What is said of a proxy with these keys in its `http.tls`.
    fn said(scheme: &str, tls: &str) -> String {
        let text = format!(
            "[rpc.proxy]\nendpoint = \"{scheme}://a.example/\"\n[rpc.proxy.http.tls]\n{tls}"
        );
        let machine = Machine::OF_TESTS;
        let options = Options::from_text(&text, Path::new("a.toml")).expect("known keys");
        match options.resolve(&machine) {
            Ok(config) => format!("{:?}", config.application.rpc.expect("a proxy").tls),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_mistake_is_named_by_its_key() {
        let pem = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n";
        for (scheme, tls, parts) in [
            (
                "http",
                format!("server_ca_pem = \"{pem}\""),
                ["http.tls.server_ca_pem = (hidden)", "https://"],
            ),
            (
                "https",
                "server_ca_pem_file = \"/no/such\"".into(),
                [
                    "server_ca_pem_file = \"/no/such\"",
                    "cannot be read: No such file",
                ],
            ),
            (
                "https",
                "server_ca_pem_file = \"/proc/self/status\"".into(),
                ["server_ca_pem_file", "no PEM text"],
            ),
            (
                "https",
                "server_ca_pem = \"abc\"".into(),
                ["server_ca_pem = (hidden)", "no PEM text"],
            ),
            (
                "https",
                format!("server_ca_pem = \"{pem}\""),
                ["server_ca_pem = (hidden)", "write certificates as PEM"],
            ),
            (
                "https",
                format!("server_ca_pem = \"{pem}\"\nserver_ca_pem_file = \"a\""),
                ["server_ca_pem", "remove it, or"],
            ),
            (
                "https",
                format!("cert_pem = \"{pem}\""),
                [
                    "cert_pem = (hidden)",
                    "needs rpc.proxy.http.tls.key_pem_file",
                ],
            ),
            (
                "https",
                format!("key_pem = \"{pem}\""),
                [
                    "key_pem = (hidden)",
                    "needs rpc.proxy.http.tls.cert_pem_file",
                ],
            ),
            (
                "https",
                format!("cert_pem = \"{pem}\"\nkey_pem = \"{pem}\""),
                ["cert_pem = (hidden)", "its private key"],
            ),
        ] {
            let said = said(scheme, &tls);
            assert!(
                parts.iter().all(|part| said.contains(part)),
                "{tls}: {said}"
            );
        }
        assert_eq!(said("http", ""), "None");
        assert!(said("https", "").contains("has_ca: false"));
    }
}

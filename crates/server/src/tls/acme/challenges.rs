//! Answers for an authority that asks whether a name is ours. They are ready while an order is under way.

use crate::tls::{fit_for_stage, provider};
use instant_acme::KeyAuthorization;
use myriad_tls_stage::CHALLENGE;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Those of this process. A configuration is read before there is a server, and a reload reads another one, so none of them can own it.
pub(in crate::tls) static CHALLENGES: LazyLock<Arc<Challenges>> = LazyLock::new(Arc::default);

/// Answers that are ready.
#[derive(Debug, Default)]
pub(in crate::tls) struct Challenges(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    /// Certificates by the names that they are about (RFC 8737).
    certificates: HashMap<String, Arc<CertifiedKey>>,
    /// Texts by their tokens (RFC 8555, section 8.3).
    texts: HashMap<String, String>,
}

/// An answer that is ready until this is dropped.
#[derive(Debug)]
pub(super) struct Ready<'a> {
    challenges: &'a Challenges,
    answer: Key,
}

#[derive(Debug)]
enum Key {
    Name(String),
    Token(String),
}

impl Challenges {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a certificate to whoever asks for this name with the protocol of challenges.
    ///
    /// # Errors
    /// The certificate could not be made.
    pub(super) fn show_certificate(
        &self,
        name: &str,
        authorization: &KeyAuthorization,
    ) -> Result<Ready<'_>, Box<dyn Error + Send + Sync>> {
        let key = certificate(name, authorization.digest().as_ref())?;
        let name = name.to_owned();
        self.answers()
            .certificates
            .insert(name.clone(), Arc::new(key));
        Ok(self.ready(Key::Name(name)))
    }

    /// Shows a text to whoever asks for this token by HTTP.
    pub(super) fn show_text(&self, token: &str, authorization: &KeyAuthorization) -> Ready<'_> {
        let text = authorization.as_str().to_owned();
        self.answers().texts.insert(token.to_owned(), text);
        self.ready(Key::Token(token.to_owned()))
    }

    fn ready(&self, answer: Key) -> Ready<'_> {
        Ready {
            challenges: self,
            answer,
        }
    }

    /// The text of a token.
    pub(super) fn text(&self, token: &str) -> Option<String> {
        self.answers().texts.get(token).cloned()
    }

    /// What handshakes of an authority are made with. It asks nobody for a certificate: an authority has none.
    pub(in crate::tls) fn config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Self>::clone(self));
        fit_for_stage(&mut config, CHALLENGE);
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl ResolvesServerCert for Challenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.answers().certificates.get(&name).cloned()
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        let mut answers = self.challenges.answers();
        match &self.answer {
            Key::Name(name) => drop(answers.certificates.remove(name)),
            Key::Token(token) => drop(answers.texts.remove(token)),
        }
    }
}

/// Signed by itself, for this name alone, with the digest of what only the owner of the account knows (RFC 8737, section 3).
fn certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, Box<dyn Error + Send + Sync>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    let key = provider().key_provider.load_private_key(key)?;
    // Not by `from_der`, which compares both: webpki reads no certificate with a critical extension that it does not know.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::{FromDer, X509Certificate};

    #[test]
    fn a_certificate_says_what_the_authority_looks_for() {
        let digest: Vec<u8> = (0..32).collect();
        let key = certificate("push.example", &digest).unwrap();
        let (_, read) = X509Certificate::from_der(&key.cert[0]).unwrap();
        let names = read.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
        let extension = read
            .extensions()
            .iter()
            .find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31")
            .unwrap();
        assert!(extension.critical);
        // An OCTET STRING of 32 bytes.
        assert_eq!(extension.value, [&[4, 32], &digest[..]].concat());
    }

    #[test]
    fn an_answer_ends_with_its_order() {
        let challenges = Challenges::default();
        challenges
            .answers()
            .texts
            .insert("other".into(), "stays".into());
        challenges
            .answers()
            .texts
            .insert("token".into(), "text".into());
        let ready = challenges.ready(Key::Token("token".into()));
        assert_eq!(challenges.text("token").as_deref(), Some("text"));
        drop(ready);
        assert_eq!(challenges.text("token"), None);
        assert_eq!(challenges.text("other").as_deref(), Some("stays"));
    }
}

//! Judges certificates of clients as rustls does, and says whose they are where they are refused.

use myriad_tls_stage::note_certificate;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

/// The longest name that is shown. A certificate may have one of 60 KB.
const NAME_CHARS_MAX: usize = 200;

/// A verifier whose refusals can be told from each other.
#[derive(Debug)]
pub(super) struct NamingVerifier(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for NamingVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        verified.inspect_err(|_| note_certificate(whose(end_entity)))
    }

    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Whom a certificate names, who signed it, and until when it counts. All of it is what a stranger has written.
fn whose(der: &[u8]) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return "a certificate that cannot be read".to_owned();
    };
    format!(
        "the certificate of {}, signed by {}, until {}",
        shown(certificate.subject()),
        shown(certificate.issuer()),
        certificate.validity().not_after,
    )
}

/// Quoted with escapes: a name may hold line feeds.
fn shown(name: &X509Name<'_>) -> String {
    let name = name.to_string();
    let cut: String = name.chars().take(NAME_CHARS_MAX).collect();
    let more = if cut.len() < name.len() { "..." } else { "" };
    format!("{cut:?}{more}")
}

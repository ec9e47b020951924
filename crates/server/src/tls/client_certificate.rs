//! Judges certificates of clients as rustls does, and says whose they are where they are refused.

use super::pair::shown;
use myriad_tls_stage::note_certificate;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

/// Bytes of a name in the log. A certificate may have one of 60 KB.
const NAME_BYTES_MAX: usize = 200;

/// A verifier that notes the subject and the issuer of each certificate that it refuses.
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
        verified.map_err(|error| {
            note_certificate(whose(end_entity), error.clone());
            for_alert(error)
        })
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

/// The error that makes rustls send the right alert. If a signature in a certificate does not verify, or has an algorithm that nobody should
/// use, that is `bad_certificate` (RFC 8446, 6.2 and 4.4.2.4). rustls has `decrypt_error` for these, which is about the client's own signature.
fn for_alert(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(
            CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => CertificateError::BadEncoding.into(),
        error => error,
    }
}

/// A certificate's subject, its issuer, and when it ends. A stranger wrote all three, and nobody has checked them.
fn whose(der: &[u8]) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return "a certificate that cannot be read".to_owned();
    };
    format!(
        "the certificate of {}, issuer {}, valid until {}",
        quoted(certificate.subject()),
        quoted(certificate.issuer()),
        certificate.validity().not_after,
    )
}

/// Quoted with escapes: a name may hold line feeds.
fn quoted(name: &X509Name<'_>) -> String {
    format!("\"{}\"", shown(name, NAME_BYTES_MAX).replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn named(name: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        whose(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn a_name_has_one_line_and_is_cut() {
        let two_lines = named("a\nb");
        assert!(two_lines.contains(r#""CN=a\nb""#), "{two_lines}");
        for letter in ["x", "\u{1}", "\""] {
            let long = named(&letter.repeat(10_000));
            assert!(long.contains("...\""), "{long}");
            assert!(long.len() < 5 * NAME_BYTES_MAX, "{}", long.len());
        }
    }

    #[test]
    fn a_certificate_that_does_not_verify_is_bad() {
        use rustls::AlertDescription;
        for (error, alert) in [
            (
                CertificateError::BadSignature,
                AlertDescription::BadCertificate,
            ),
            (CertificateError::UnknownIssuer, AlertDescription::UnknownCA),
            (
                CertificateError::Expired,
                AlertDescription::CertificateExpired,
            ),
        ] {
            let Error::InvalidCertificate(sent) = for_alert(error.into()) else {
                panic!("another error");
            };
            assert_eq!(AlertDescription::from(sent), alert);
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_called_so() {
        assert_eq!(
            whose(b"no certificate"),
            "a certificate that cannot be read"
        );
    }
}

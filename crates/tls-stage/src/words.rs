//! Why TLS ended with a client, in sentences for an operator: what went wrong, and what to do.
//!
//! rustls says it in the words of its own types, such as `SignatureAlgorithmsExtensionRequired`. They stand behind a sentence only where a
//! client broke a rule: whoever makes that client looks for them.

use crate::connection::ConnectionFailed;
use crate::figures::NO_CERTIFICATE;
use myriad_tls::HandshakeFailed;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why a connection cannot go on.
pub(crate) fn sentence(failed: &ConnectionFailed) -> String {
    match failed {
        // The check of its chain notes whose certificate it was. Without that note it is the client's own signature.
        ConnectionFailed::Handshake(HandshakeFailed::Refused(Error::InvalidCertificate(
            CertificateError::BadSignature,
        ))) => "the client's signature does not fit its certificate: give the client the key of that certificate".to_owned(),
        ConnectionFailed::Handshake(HandshakeFailed::Refused(error)) => of_handshake(error),
        ConnectionFailed::Certificate { error, whose } => {
            format!("{whose}: {}", of_handshake(error))
        }
        ConnectionFailed::Alert(alert) => of_alert(AlertDescription::from(alert.0)),
        ConnectionFailed::Handshake(HandshakeFailed::Closed) => {
            "the client ended the connection in the middle of its handshake".to_owned()
        }
        ConnectionFailed::Handshake(_)
        | ConnectionFailed::Record(_)
        | ConnectionFailed::Channel(_)
        | ConnectionFailed::Over => failed.to_string(),
    }
}

/// The client ended the connection before it had our certificate.
pub(crate) const GONE_EARLY: &str = "the client ended the connection before the server's certificate was on its way: it gave up waiting, or is no client of TLS";

/// The client ended the connection while another thread made a step of its handshake. How far it was is not known here.
pub(crate) const GONE_MEANWHILE: &str =
    "the client ended the connection while the server worked on its handshake";

/// The client ended the connection after our first answer.
pub(crate) const GONE_ANSWERED: &str = "the client ended the connection after the server had answered it: some clients (Node.js, Python) do so when they do not trust the server's certificate: let them trust its CA, and name the file with the whole chain in tls-certificate";

fn of_handshake(error: &Error) -> String {
    let words = match error {
        Error::PeerIncompatible(incompatible) => of_incompatible(incompatible),
        Error::NoApplicationProtocol => Some(
            "the client offers other protocols than http/1.1 (ALPN), such as h2: let it offer http/1.1",
        ),
        Error::NoCertificatesPresented => Some(
            "the client has shown no certificate: give it one that a CA of tls-client-ca has signed, or let clients in without (tls-client-auth = \"optional\")",
        ),
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        Error::AlertReceived(alert) => return of_alert(*alert),
        Error::General(why) if why == NO_CERTIFICATE => Some(
            "there is no certificate yet: lines above say how far its order is, and what keeps it back",
        ),
        _ => None,
    };
    words.map_or_else(|| without_words(error), str::to_owned)
}

/// What an operator cannot mend, or what is rare.
fn without_words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(_) => format!("it is not accepted ({error})"),
        Error::General(_) | Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes => {
            format!("this server could not go on ({error}): please report it")
        }
        error => format!("the client breaks a rule of TLS ({error})"),
    }
}

fn of_incompatible(incompatible: &PeerIncompatible) -> Option<&'static str> {
    Some(match incompatible {
        PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        // Hellos before TLS 1.2 name no signatures, and rustls looks for those first.
        | PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "the client speaks TLS 1.1 or older, which nobody should (RFC 8996): update it, so that it speaks TLS 1.2"
        }
        PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::SupportedVersionsExtensionRequired => {
            "the client speaks no version that tls-min-version allows: update it, or write tls-min-version = \"1.2\""
        }
        PeerIncompatible::NoCipherSuitesInCommon => {
            "the client has no cipher suite of this server: let it offer ECDHE with AES-GCM or ChaCha20-Poly1305; with TLS 1.2 the suite also has to be of the certificate's kind, ECDSA or RSA"
        }
        PeerIncompatible::NoKxGroupsInCommon
        | PeerIncompatible::NamedGroupsExtensionRequired
        | PeerIncompatible::NoEcPointFormatsInCommon
        | PeerIncompatible::EcPointsExtensionRequired
        | PeerIncompatible::UncompressedEcPointsRequired => {
            "the client has no group for the key exchange that this server has: let it offer X25519, P-256 or P-384"
        }
        PeerIncompatible::NoSignatureSchemesInCommon => {
            "the client takes no signature that the server's key can make: an old client may need a certificate with an RSA key"
        }
        PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon => {
            "the key of the client's certificate makes no signature that this server takes: make it an ECDSA P-256 key"
        }
        _ => return None,
    })
}

/// About the certificate of a client.
fn of_certificate(error: &CertificateError) -> Option<&'static str> {
    Some(match error {
        CertificateError::UnknownIssuer => {
            "no CA of tls-client-ca has signed it: add its CA there, or let the client send the certificates between them too"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired: give the client a new one, or check this machine's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: check the clocks of this machine and of its CA"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not made for clients: sign it again with extendedKeyUsage = clientAuth"
        }
        CertificateError::BadSignature => {
            "its signature is wrong: its CA has the name of one of tls-client-ca and another key, or somebody changed it"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that this server does not take: sign it again with SHA-256 and an ECDSA key, or an RSA key with 2048 bits or more"
        }
        CertificateError::BadEncoding => "it is no certificate, or a part of one",
        CertificateError::Other(other) => return of_webpki(&other.to_string()),
        _ => return None,
    })
}

/// rustls hands on the other errors of webpki by their names alone.
fn of_webpki(name: &str) -> Option<&'static str> {
    Some(match name {
        "CaUsedAsEndEntity" => {
            "it is that of a CA (CA:TRUE): sign one for the client with basicConstraints = CA:FALSE"
        }
        "UnsupportedCertVersion" => {
            "it is of X.509 version 1: sign it again with extensions, which makes it version 3"
        }
        "UnsupportedCriticalExtension" => {
            "it has a critical extension that this server does not know: sign it again without"
        }
        _ => return None,
    })
}

/// About what a client says before it gives up.
fn of_alert(alert: AlertDescription) -> String {
    let name = name_of(alert);
    match alert {
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => format!(
            "the client does not trust the server's certificate (alert {name}): let it trust its CA, and name the file with the whole chain in tls-certificate"
        ),
        AlertDescription::CertificateExpired => format!(
            "for the client the server's certificate has expired (alert {name}): renew it, or check the client's clock"
        ),
        AlertDescription::UserCanceled => format!("the client's user gave up (alert {name})"),
        _ => format!("the client gave up (alert {name})"),
    }
}

/// The name of an alert in its RFC: `UnknownCA` is `unknown_ca` (RFC 8446, section 6).
fn name_of(alert: AlertDescription) -> String {
    // rustls spells some in its own way.
    match alert {
        AlertDescription::Unknown(number) => return number.to_string(),
        AlertDescription::UnknownPSKIdentity => return "unknown_psk_identity".to_owned(),
        AlertDescription::UnrecognisedName => return "unrecognized_name".to_owned(),
        AlertDescription::EncryptedClientHelloRequired => return "ech_required".to_owned(),
        _ => {}
    }
    let mut name = String::new();
    let mut was_lower = false;
    for letter in format!("{alert:?}").chars() {
        if letter.is_uppercase() && was_lower {
            name.push('_');
        }
        was_lower = letter.is_lowercase();
        name.extend(letter.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_tls::Alert;

    #[test]
    fn alerts_have_the_names_of_the_rfc() {
        for (alert, name) in [
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::UnknownPSKIdentity, "unknown_psk_identity"),
            (AlertDescription::UnrecognisedName, "unrecognized_name"),
            (AlertDescription::BadRecordMac, "bad_record_mac"),
            (AlertDescription::HandshakeFailure, "handshake_failure"),
            (
                AlertDescription::NoApplicationProtocol,
                "no_application_protocol",
            ),
            (AlertDescription::from(99), "99"),
        ] {
            assert_eq!(name_of(alert), name);
        }
        let failed = ConnectionFailed::Alert(Alert(48));
        assert!(sentence(&failed).contains("(alert unknown_ca)"));
    }

    #[test]
    fn what_an_operator_can_mend_has_no_word_of_rustls() {
        let errors: [Error; 12] = [
            PeerIncompatible::Tls12NotOffered.into(),
            PeerIncompatible::Tls12NotOfferedOrEnabled.into(),
            PeerIncompatible::SignatureAlgorithmsExtensionRequired.into(),
            PeerIncompatible::SupportedVersionsExtensionRequired.into(),
            PeerIncompatible::NoCipherSuitesInCommon.into(),
            PeerIncompatible::NoKxGroupsInCommon.into(),
            PeerIncompatible::NoSignatureSchemesInCommon.into(),
            CertificateError::UnknownIssuer.into(),
            CertificateError::Expired.into(),
            CertificateError::NotValidYet.into(),
            Error::NoApplicationProtocol,
            Error::General(NO_CERTIFICATE.to_owned()),
        ];
        for error in errors {
            let debug = format!("{error:?}");
            let said = sentence(&ConnectionFailed::Handshake(error.into()));
            assert!(said.contains(": "), "what to do: {said}");
            for word in debug.split(['(', ')']).filter(|word| word.len() > 8) {
                assert!(!said.contains(word), "{word}: {said}");
            }
        }
    }

    #[test]
    fn what_a_client_does_wrong_is_said_as_rustls_says_it() {
        let said = sentence(&ConnectionFailed::Handshake(Error::DecryptError.into()));
        assert_eq!(
            said,
            "the client breaks a rule of TLS (cannot decrypt peer's message)"
        );
    }
}

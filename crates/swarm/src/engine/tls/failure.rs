//! What can go wrong with TLS, by kind.

use super::connection::ConnectionFailed;
use myriad_tls::{ChannelFailed, HandshakeFailed, LegacyFailed};
use serde::{Deserialize, Serialize};
use std::fmt;
use tokio_rustls::rustls::{CertificateError, Error};

/// Why a connection with TLS was not made, or did not last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TlsFailure {
    /// Nobody whom we trust has signed the server's certificate.
    UnknownIssuer,
    /// The server's certificate has expired.
    Expired,
    /// The server's certificate is not valid yet.
    NotValidYet,
    /// The server's certificate is for other names.
    NameMismatch,
    /// The server's certificate cannot be used for another reason.
    Certificate,
    /// The TLS handshake did not end in time.
    Timeout,
    /// The server answered in plain text.
    PlainText,
    /// The server ended the connection in the middle of the TLS handshake.
    Ended,
    /// The server and the crowd have no version of TLS, or no cipher suite, in common.
    Incompatible,
    /// The server broke the TLS protocol, or somebody changed what it sent.
    Invalid,
    /// The server began records and finished none, until they were more than the crowd keeps.
    Unfinished,
    /// The connection ended in the middle of a message, and without a word of TLS that it was over.
    Truncated,
    /// The server gave up with this alert (RFC 8446, section 6).
    Alert(u8),
}

impl ConnectionFailed {
    /// The kind of the failure.
    pub(super) fn kind(&self) -> TlsFailure {
        match self {
            Self::Handshake(HandshakeFailed::Refused(error))
            | Self::Channel(ChannelFailed::Legacy(LegacyFailed::Refused(error)))
            | Self::Ticket(error) => TlsFailure::of(error),
            Self::Handshake(HandshakeFailed::Closed) => TlsFailure::Ended,
            Self::Alert(alert) => TlsFailure::Alert(alert.0),
            Self::Handshake(_) | Self::Record(_) | Self::Channel(_) | Self::Over => {
                TlsFailure::Invalid
            }
        }
    }
}

/// The kinds without a number, in the order of [`TlsFailure::errno`].
const KINDS: [TlsFailure; 12] = [
    TlsFailure::UnknownIssuer,
    TlsFailure::Expired,
    TlsFailure::NotValidYet,
    TlsFailure::NameMismatch,
    TlsFailure::Certificate,
    TlsFailure::Timeout,
    TlsFailure::PlainText,
    TlsFailure::Ended,
    TlsFailure::Incompatible,
    TlsFailure::Invalid,
    TlsFailure::Unfinished,
    TlsFailure::Truncated,
];

/// The errno of an end without a word of TLS that it was over (RFC 8446, section 6.1). Whether something is missing depends on
/// what came before.
pub(crate) const ABRUPT_END: i32 = -0x1000;

/// Errnos of alerts begin below this one.
const ALERTS: i32 = -0x100;

/// The names of alerts in RFC 8446, section 6, and RFC 5246, section 7.2.
const ALERT_NAMES: [(u8, &str); 34] = [
    (0, "close_notify"),
    (10, "unexpected_message"),
    (20, "bad_record_mac"),
    (21, "decryption_failed"),
    (22, "record_overflow"),
    (30, "decompression_failure"),
    (40, "handshake_failure"),
    (41, "no_certificate"),
    (42, "bad_certificate"),
    (43, "unsupported_certificate"),
    (44, "certificate_revoked"),
    (45, "certificate_expired"),
    (46, "certificate_unknown"),
    (47, "illegal_parameter"),
    (48, "unknown_ca"),
    (49, "access_denied"),
    (50, "decode_error"),
    (51, "decrypt_error"),
    (60, "export_restriction"),
    (70, "protocol_version"),
    (71, "insufficient_security"),
    (80, "internal_error"),
    (86, "inappropriate_fallback"),
    (90, "user_canceled"),
    (100, "no_renegotiation"),
    (109, "missing_extension"),
    (110, "unsupported_extension"),
    (111, "certificate_unobtainable"),
    (112, "unrecognized_name"),
    (113, "bad_certificate_status_response"),
    (114, "bad_certificate_hash_value"),
    (115, "unknown_psk_identity"),
    (116, "certificate_required"),
    (120, "no_application_protocol"),
];

impl TlsFailure {
    /// The kind of an error.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::UnknownIssuer => Self::UnknownIssuer,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::Expired
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Self::NotValidYet
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::NameMismatch,
                _ => Self::Certificate,
            },
            Error::NoCertificatesPresented => Self::Certificate,
            Error::AlertReceived(alert) => Self::Alert(u8::from(*alert)),
            Error::PeerIncompatible(_) => Self::Incompatible,
            _ => Self::Invalid,
        }
    }

    /// As an errno of a completion: negative, as no errno of a kernel is.
    pub(crate) fn errno(self) -> i32 {
        if let Self::Alert(alert) = self {
            return ALERTS - i32::from(alert);
        }
        let mut numbers = KINDS.into_iter().zip(1..);
        let found = numbers.find(|(kind, _)| *kind == self);
        let (_, number) = found.expect("all kinds without a number are there");
        -number
    }

    /// The kind of such an errno; none if it is a kernel's.
    pub(crate) fn of_errno(errno: i32) -> Option<Self> {
        match errno {
            0.. => None,
            ABRUPT_END => Some(Self::Truncated),
            ..=ALERTS => u8::try_from(ALERTS - errno).ok().map(Self::Alert),
            errno => KINDS
                .into_iter()
                .zip(1..)
                .find_map(|(kind, number)| (number == -errno).then_some(kind)),
        }
    }

    /// What to do about it, where there is something to do on this side.
    pub(crate) fn next_step(self) -> Option<&'static str> {
        Some(match self {
            Self::UnknownIssuer => {
                "nobody whom this machine trusts has signed the server's certificate: name your own CA with --ca FILE (the certificate of the CA itself, and not the server's), or give --insecure in a test"
            }
            Self::Expired => {
                "the server's certificate has expired: renew it, or check this machine's clock"
            }
            Self::NotValidYet => {
                "the server's certificate is not valid yet: check this machine's clock"
            }
            Self::NameMismatch => {
                "the server's certificate is for other names: use one of them in the URL, or give --insecure in a test"
            }
            Self::Certificate => {
                "the server's certificate cannot be used. One that `openssl req -x509` made is a CA's itself (CaUsedAsEndEntity): make it with -addext basicConstraints=critical,CA:FALSE"
            }
            Self::Timeout => {
                "the server accepts connections faster than it does TLS handshakes: lower --connect-rate or --connecting-max, or raise --connect-timeout"
            }
            Self::PlainText => {
                "the server answered in plain text: use ws:// or http://, or the port where it speaks TLS"
            }
            Self::Ended => {
                "the server ended the connection in the middle of the TLS handshake: does it speak TLS on this port? Its log may say why"
            }
            Self::Incompatible => {
                "the crowd speaks TLS 1.2 and 1.3: allow one of them on the server"
            }
            Self::Alert(112) => {
                "the server does not know the host's name: use a name that it serves in the URL"
            }
            Self::Alert(116 | 41 | 42) => {
                "the server wants a certificate of the client, and the crowd has none"
            }
            Self::Alert(120) => {
                "the server does not speak HTTP/1.1 (ALPN http/1.1): check its protocols"
            }
            Self::Alert(_) => "the server gave up with this alert: its log may say why",
            Self::Invalid | Self::Unfinished | Self::Truncated => return None,
        })
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownIssuer => "unknown_issuer",
            Self::Expired => "expired",
            Self::NotValidYet => "not_valid_yet",
            Self::NameMismatch => "name_mismatch",
            Self::Certificate => "certificate",
            Self::Timeout => "timeout",
            Self::PlainText => "plain_text",
            Self::Ended => "ended",
            Self::Incompatible => "incompatible",
            Self::Invalid => "invalid",
            Self::Unfinished => "unfinished",
            Self::Truncated => "truncated",
            Self::Alert(alert) => {
                let known = ALERT_NAMES.iter().find(|(number, _)| number == alert);
                return match known {
                    Some((_, name)) => write!(f, "alert_{name}"),
                    None => write!(f, "alert_{alert}"),
                };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::AlertDescription;

    #[test]
    fn every_kind_comes_back_from_its_errno() {
        let alerts = (0..=255).map(TlsFailure::Alert);
        for kind in KINDS.into_iter().chain(alerts) {
            assert!(kind.errno() < 0, "{kind}");
            assert_eq!(TlsFailure::of_errno(kind.errno()), Some(kind));
        }
        assert_eq!(
            TlsFailure::of_errno(ABRUPT_END),
            Some(TlsFailure::Truncated)
        );
        for errno in [0, 104, i32::MAX, -50, ABRUPT_END - 1, i32::MIN] {
            assert_eq!(TlsFailure::of_errno(errno), None, "{errno}");
        }
    }

    #[test]
    fn alerts_have_the_names_of_the_rfc() {
        let name =
            |alert: AlertDescription| TlsFailure::of(&Error::AlertReceived(alert)).to_string();
        assert_eq!(
            name(AlertDescription::HandshakeFailure),
            "alert_handshake_failure"
        );
        assert_eq!(name(AlertDescription::UnknownCA), "alert_unknown_ca");
        assert_eq!(TlsFailure::Alert(99).to_string(), "alert_99");
        assert!(ALERT_NAMES.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}

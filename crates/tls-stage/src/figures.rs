//! What a stage counts, for whoever shows metrics.

use crate::connection::ConnectionFailed;
use myriad_reactor::Refusal;
use myriad_tls::{Fault, HandshakeFailed};
use rustls::{AlertDescription, Error};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why handshakes fail, as the metric's label tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// The client's first bytes are not TLS.
    NotTls,
    /// The client has no version, cipher suite, group, signature or protocol that the server has.
    NothingInCommon,
    /// The client's certificate is missing or not accepted.
    ClientCertificate,
    /// The client gave up with an alert: it does not accept our certificate, as a rule.
    Alert,
    /// The client broke a rule of the protocol.
    Protocol,
    /// The client went away.
    Gone,
    /// Others needed its place and it had been silent, or its owner ended it: it took too long, or the server ends.
    Slow,
    /// There is no certificate yet.
    NoCertificate,
    /// The fault is ours: the keys could not be taken over, or the configuration is no good.
    Ours,
}

impl Failure {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::NotTls,
        Self::NothingInCommon,
        Self::ClientCertificate,
        Self::Alert,
        Self::Protocol,
        Self::Gone,
        Self::Slow,
        Self::NoCertificate,
        Self::Ours,
    ];

    /// Its label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::NothingInCommon => "nothing_in_common",
            Self::ClientCertificate => "client_certificate",
            Self::Alert => "alert",
            Self::Protocol => "protocol",
            Self::Gone => "gone",
            Self::Slow => "slow",
            Self::NoCertificate => "no_certificate",
            Self::Ours => "ours",
        }
    }

    /// The kind of a failure.
    pub(crate) fn of(failed: &ConnectionFailed) -> Self {
        match failed {
            ConnectionFailed::Handshake(HandshakeFailed::Refused(error))
            | ConnectionFailed::Certificate { error, .. } => Self::of_rustls(error),
            ConnectionFailed::Handshake(HandshakeFailed::Closed) => Self::Gone,
            ConnectionFailed::Handshake(HandshakeFailed::Keys) => Self::Ours,
            ConnectionFailed::Record(Fault::Unexpected(_)) => Self::NotTls,
            ConnectionFailed::Alert(_) => Self::Alert,
            ConnectionFailed::Handshake(HandshakeFailed::TooLong | HandshakeFailed::Trailing)
            | ConnectionFailed::Record(_)
            | ConnectionFailed::Channel(_)
            | ConnectionFailed::Over => Self::Protocol,
        }
    }

    fn of_rustls(error: &Error) -> Self {
        match error {
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::NothingInCommon,
            Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                Self::ClientCertificate
            }
            Error::AlertReceived(AlertDescription::CloseNotify) => Self::Gone,
            Error::AlertReceived(_) => Self::Alert,
            Error::General(why) if why == NO_CERTIFICATE => Self::NoCertificate,
            Error::General(_) | Error::FailedToGetCurrentTime | Error::FailedToGetRandomBytes => {
                Self::Ours
            }
            _ => Self::Protocol,
        }
    }
}

/// Bytes of a refusal's words. rustls prints all purposes and algorithms that a certificate names, and a stranger's may name thousands.
pub(crate) const WORDS_BYTES_MAX: usize = 1_000;

/// A handshake or a connection that failed, as the log tells it.
pub(crate) fn refusal(label: &'static str, mut words: String) -> Box<Refusal> {
    if words.len() > WORDS_BYTES_MAX {
        words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
        words.push_str("...");
        words.shrink_to_fit();
    }
    Box::new(Refusal { label, words })
}

/// What rustls says if its resolver has no certificate for a client. `tests/acme` fails if it says something else.
pub(crate) const NO_CERTIFICATE: &str = "no server certificate chain resolved";

/// The figures of one stage. Its thread writes, and any thread reads.
#[derive(Debug, Default)]
pub struct Figures {
    /// Connections with TLS 1.3 that are open at this stage.
    pub open: AtomicU64,
    /// Connections with TLS 1.2 that are open at this stage; each costs some 3.5 KB.
    pub open_legacy: AtomicU64,
    /// Handshakes that made new keys, with a signature.
    pub full: AtomicU64,
    /// Handshakes that a ticket shortened.
    pub resumed: AtomicU64,
    /// Handshakes that ended with TLS 1.2; counted among the other two as well.
    pub legacy: AtomicU64,
    /// Handshakes of an authority that asked whether a name is ours.
    pub challenges: AtomicU64,
    /// Handshakes that failed, by [`Failure`].
    pub failed: [AtomicU64; Failure::ALL.len()],
    /// Connections that ended because of a record behind their handshake.
    pub broken: AtomicU64,
    /// Handshakes under way.
    pub under_way: AtomicU64,
    /// Handshakes whose signature waits for a thread, or is being made by one.
    pub signing: AtomicU64,
    /// Connections that wait for their handshake to begin.
    pub waiting: AtomicU64,
}

impl Figures {
    pub(crate) fn count_failure(&self, failure: Failure) {
        self.failed[failure as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_challenge(&self) {
        self.challenges.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_established(&self, is_resumed: bool, is_legacy: bool) {
        let kind = if is_resumed {
            &self.resumed
        } else {
            &self.full
        };
        kind.fetch_add(1, Relaxed);
        if is_legacy {
            self.legacy.fetch_add(1, Relaxed);
        }
        self.count_open(is_legacy);
    }

    pub(crate) fn count_open(&self, is_legacy: bool) {
        self.of_version(is_legacy).fetch_add(1, Relaxed);
    }

    pub(crate) fn count_closed(&self, is_legacy: bool) {
        self.of_version(is_legacy).fetch_sub(1, Relaxed);
    }

    fn of_version(&self, is_legacy: bool) -> &AtomicU64 {
        if is_legacy {
            &self.open_legacy
        } else {
            &self.open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_log_are_bounded() {
        let words = |count: usize| refusal("protocol", "ä".repeat(count)).words;
        assert_eq!(words(WORDS_BYTES_MAX / 2).len(), WORDS_BYTES_MAX);
        let long = words(WORDS_BYTES_MAX);
        assert!(long.ends_with("ä..."));
        assert!(long.len() <= WORDS_BYTES_MAX + 3);
    }
}

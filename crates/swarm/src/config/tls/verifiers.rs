//! How the crowd checks the certificates of servers: each chain once a minute, or not at all (`--insecure`).

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A chain that was accepted is checked again after this time: it may have expired meanwhile.
const LASTS: Duration = Duration::from_secs(60);

/// Chains that are remembered. A crowd meets one for each certificate of each server's name.
const CHAINS_MAX: usize = 64;

/// Checks each distinct chain once a minute, and not in each of a million handshakes.
///
/// With ECDSA P-256 a chain costs one verified signature with a CA of one's own, and two with a public one. The signature of the handshake is
/// verified each time, because it alone proves that the server has the key.
#[derive(Debug)]
pub(super) struct CheckedOnce {
    verifier: Arc<dyn ServerCertVerifier>,
    accepted: RwLock<Vec<Accepted>>,
}

/// A chain that was accepted for a name.
#[derive(Debug)]
struct Accepted {
    name: ServerName<'static>,
    /// The server's own certificate first.
    chain: Vec<CertificateDer<'static>>,
    at: UnixTime,
}

impl Accepted {
    fn is_fresh(&self, now: UnixTime) -> bool {
        let age = now.as_secs().checked_sub(self.at.as_secs());
        age.is_some_and(|age| age < LASTS.as_secs())
    }
}

impl CheckedOnce {
    pub(super) fn new(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self {
            verifier,
            accepted: RwLock::default(),
        }
    }

    fn is_accepted(&self, name: &ServerName<'_>, chain: &Chain<'_>, now: UnixTime) -> bool {
        let accepted = self.accepted.read().unwrap_or_else(PoisonError::into_inner);
        accepted
            .iter()
            .any(|known| known.is_fresh(now) && known.name == *name && chain.equals(&known.chain))
    }

    fn accept(&self, name: &ServerName<'_>, chain: &Chain<'_>, now: UnixTime) {
        let mut accepted = self
            .accepted
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        accepted.retain(|known| {
            known.is_fresh(now) && (known.name != *name || !chain.equals(&known.chain))
        });
        if accepted.len() == CHAINS_MAX {
            // To evict one would let none of many chains in turn be found again.
            return;
        }
        accepted.push(Accepted {
            name: name.to_owned(),
            chain: chain
                .certificates()
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
            at: now,
        });
    }
}

/// What a server shows.
struct Chain<'a> {
    end_entity: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
}

impl<'a> Chain<'a> {
    fn certificates(&self) -> impl Iterator<Item = &'a CertificateDer<'a>> + use<'a> {
        std::iter::once(self.end_entity).chain(self.intermediates)
    }

    fn equals(&self, known: &[CertificateDer<'_>]) -> bool {
        let bytes = self.certificates().map(AsRef::<[u8]>::as_ref);
        bytes.eq(known.iter().map(AsRef::<[u8]>::as_ref))
    }
}

impl ServerCertVerifier for CheckedOnce {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = Chain {
            end_entity,
            intermediates,
        };
        if self.is_accepted(server_name, &chain, now) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        self.accept(server_name, &chain, now);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Takes every certificate.
#[derive(Debug)]
pub(super) struct Unverified(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio_rustls::rustls::CertificateError;

    /// Accepts certificates that do not begin with `x`, and counts how often it is asked.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl ServerCertVerifier for Counting {
        fn verify_server_cert(
            &self,
            own: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            self.0.fetch_add(1, Relaxed);
            match own.starts_with(b"x") {
                true => Err(CertificateError::UnknownIssuer.into()),
                false => Ok(ServerCertVerified::assertion()),
            }
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(CertificateError::BadSignature.into())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(CertificateError::BadSignature.into())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    struct Asked {
        once: CheckedOnce,
        counting: Arc<Counting>,
    }

    impl Asked {
        fn new() -> Self {
            let counting = Arc::new(Counting::default());
            let once = CheckedOnce::new(counting.clone());
            Self { once, counting }
        }

        /// Whether a chain is accepted at a time, and how often the verifier below was asked so far.
        fn ask(&self, name: &str, chain: &[&str], at_s: u64) -> (bool, usize) {
            let chain: Vec<_> = chain
                .iter()
                .map(|certificate| CertificateDer::from(certificate.as_bytes()))
                .collect();
            let name = ServerName::try_from(name).expect("a name");
            let at = UnixTime::since_unix_epoch(Duration::from_secs(at_s));
            let result = self
                .once
                .verify_server_cert(&chain[0], &chain[1..], &name, &[], at);
            (result.is_ok(), self.counting.0.load(Relaxed))
        }
    }

    #[test]
    fn a_chain_is_checked_once_for_each_name_and_again_a_minute_later() {
        let asked = Asked::new();
        assert_eq!(asked.ask("a.example", &["own", "ca"], 1_000), (true, 1));
        assert_eq!(asked.ask("a.example", &["own", "ca"], 1_059), (true, 1));
        assert_eq!(asked.ask("a.example", &["own", "ca"], 1_060), (true, 2));
        assert_eq!(asked.ask("a.example", &["own", "ca"], 1_119), (true, 2));
        // A clock that was set back proves nothing.
        assert_eq!(asked.ask("a.example", &["own", "ca"], 900), (true, 3));
        let others: [(&str, &[&str]); 5] = [
            ("b.example", &["own", "ca"]),
            ("a.example", &["own"]),
            ("a.example", &["own", "ca", "root"]),
            ("a.example", &["ca", "own"]),
            ("a.example", &["ownca"]),
        ];
        for (nth, (name, chain)) in others.into_iter().enumerate() {
            assert_eq!(asked.ask(name, chain, 900), (true, 4 + nth), "{chain:?}");
        }
    }

    #[test]
    fn a_chain_that_is_refused_is_checked_each_time() {
        let asked = Asked::new();
        for times in 1..4 {
            assert_eq!(asked.ask("a.example", &["x"], 5), (false, times));
        }
    }

    #[test]
    fn few_chains_are_remembered() {
        let asked = Asked::new();
        for nth in 0..3 * CHAINS_MAX {
            asked.ask("a.example", &[&format!("own {nth}")], 5);
        }
        let accepted = asked.once.accepted.read().expect("no panic");
        assert_eq!(accepted.len(), CHAINS_MAX);
    }
}

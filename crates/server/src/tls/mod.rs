//! TLS of the server's own port: certificates, and what handshakes are made with.
//!
//! [`Sources`] says where certificates are. [`Sources::load`] reads and checks them, at the start, at a reload and when a file changes
//! ([`follow`]). The stages of the shards take the newest [`Loaded`] for each handshake that begins; connections keep what they have.

mod acme;
mod client_certificate;
mod client_user;
mod files;
mod pair;
mod readers;
mod resolver;
mod shown;
mod tickets;
mod words;

pub(crate) use acme::{AcmeSettings, Orders, begin_answers, begin_renewal, read_ca};
pub(crate) use client_user::ClientUser;
pub(crate) use files::{follow, near_ends, sentence};
pub(crate) use pair::read_file;
pub(crate) use shown::ShownTls;

use acme::CHALLENGES;
use arc_swap::ArcSwap;
use client_certificate::NamingVerifier;
use files::Marks;
use myriad_tls::Secrets;
use myriad_tls_stage::{Figures, Offer};
use pair::Pair;
use readers::open_to_everybody;
use resolver::ByName;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use tickets::SharedTickets;

/// The protocol that clients may speak above TLS (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// Keys of tickets where no file has them. They change every six hours, and those before stay for as long. A certificate that is renewed
/// leaves them, so a session goes on.
static TICKETS: LazyLock<Result<Arc<dyn ProducesTickets>, rustls::Error>> =
    LazyLock::new(aws_lc_rs::Ticketer::new);

/// What the server was told about TLS, and what it found there.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Where clients with TLS connect. Port 0 lets the kernel choose.
    pub listen: SocketAddr,
    pub(crate) sources: Arc<Sources>,
    pub(crate) loaded: Arc<Loaded>,
}

/// Where certificates are, and whom to let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    /// The first is for clients that name no server, or one that no certificate names.
    pub(crate) pairs: Vec<PairFiles>,
    /// Whom to ask for one more.
    pub(crate) acme: Option<Arc<AcmeSettings>>,
    /// Who signs the certificates of clients.
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuth,
    /// The name in a client's certificate that is its user.
    pub(crate) client_user: Option<ClientUser>,
    pub(crate) min_version: MinVersion,
    /// Keys of tickets, which several nodes share. Without them each server makes its own.
    pub(crate) ticket_keys: Option<PathBuf>,
}

/// A certificate's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PairFiles {
    /// The chain, the server's own certificate first (PEM).
    pub(crate) certificate: PathBuf,
    /// Its private key (PEM).
    pub(crate) key: PathBuf,
    /// The options that name them.
    pub(crate) fields: (String, String),
}

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    None,
    Optional,
    Required,
}

/// The oldest version that clients may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MinVersion {
    Tls12,
    Tls13,
}

/// Certificates that can be used.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) offer: Arc<Offer>,
    pub(crate) certificates: Vec<Shown>,
    /// Names that an authority has been asked about, or will be: there is no certificate for them.
    pub(crate) awaited: Vec<String>,
    /// What is odd about the rest of the files, but no reason to refuse them.
    remarks: Vec<String>,
    /// Of the files, just before they were read.
    marks: Marks,
}

/// What people are told about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Whom it names: hosts and addresses.
    pub(crate) names: Vec<String>,
    /// The beginning and the end of its time, in seconds since 1970.
    pub(crate) begins_at: i64,
    pub(crate) expires_at: i64,
    /// We get the next one ourselves.
    pub(crate) is_renewed: bool,
    /// Where it was read.
    pub(crate) path: PathBuf,
    /// What is odd about it, but no reason to refuse it.
    pub(crate) remarks: Vec<String>,
}

/// Why certificates cannot be used: the option at fault, its value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadFault {
    pub(crate) field: String,
    pub(crate) path: PathBuf,
    pub(crate) advice: String,
}

impl LoadFault {
    fn new(field: &str, path: &Path, advice: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            path: path.to_owned(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for LoadFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            path,
            advice,
        } = self;
        write!(
            formatter,
            "{field} = {:?}: {advice}",
            path.display().to_string()
        )
    }
}

/// All files that cannot be used, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadFaults(Vec<LoadFault>);

impl LoadFaults {
    pub(crate) fn each(&self) -> &[LoadFault] {
        &self.0
    }
}

impl From<LoadFault> for LoadFaults {
    fn from(fault: LoadFault) -> Self {
        Self(vec![fault])
    }
}

impl fmt::Display for LoadFaults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<_> = self.0.iter().map(LoadFault::to_string).collect();
        formatter.write_str(&each.join("; "))
    }
}

/// What the files hold.
struct Contents {
    pairs: Vec<Pair>,
    /// Who signs the certificates of clients; none if nobody is asked for one.
    roots: Option<RootCertStore>,
    /// None if no file has keys of tickets.
    tickets: Option<SharedTickets>,
    /// What is odd about files, but no reason to refuse them.
    remarks: Vec<String>,
}

impl Sources {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// All files that cannot be used.
    pub(crate) fn load(&self) -> Result<Loaded, LoadFaults> {
        let marks = files::marks(self);
        let provider = Arc::new(provider());
        let Contents {
            mut pairs,
            roots,
            tickets,
            remarks,
        } = self.read(&provider)?;
        let awaited = self.add_ordered(&mut pairs, &provider);
        let certificates = pairs.iter().map(|pair| pair.shown.clone()).collect();
        let signs_slowly = pairs.iter().any(|pair| pair.signs_slowly);
        let config = self.config(provider, pairs, roots, tickets);
        let challenge = self.acme.as_ref().map(|_| CHALLENGES.config());
        let ours = |error| self.ours(&error);
        let offer = Offer {
            config: Arc::new(config.map_err(ours)?),
            challenge: challenge.transpose().map_err(ours)?.map(Arc::new),
            read_user: self.client_user.map(ClientUser::read_user),
            signs_slowly,
        };
        Ok(Loaded {
            offer: Arc::new(offer),
            certificates,
            awaited,
            remarks,
            marks,
        })
    }

    /// A fault that no file has.
    fn ours(&self, error: &dyn fmt::Display) -> LoadFault {
        let first = self.paths().next().unwrap_or_default();
        let advice = format!("TLS cannot be set up: {error}");
        LoadFault::new("tls-listen", &first, advice)
    }

    /// Reads the files that options name.
    fn read(&self, provider: &CryptoProvider) -> Result<Contents, LoadFaults> {
        let mut faults = Vec::new();
        let mut remarks = Vec::new();
        let mut pairs = Vec::with_capacity(self.pairs.len());
        for files in &self.pairs {
            match Pair::read(files, provider) {
                Ok(pair) => pairs.push(pair),
                Err(fault) => {
                    let of_key = pair::key_fault(files, &fault);
                    faults.extend(std::iter::once(fault).chain(of_key));
                }
            }
            remarks.extend(open_to_everybody(&files.key, "the private key"));
        }
        let mut roots = None;
        match self.client_roots(&mut remarks) {
            Ok(read) => roots = read,
            Err(fault) => faults.push(fault),
        }
        let mut tickets = None;
        if let Some(path) = &self.ticket_keys {
            match SharedTickets::read(path) {
                Ok(read) => tickets = Some(read),
                Err(fault) => faults.push(fault),
            }
            remarks.extend(open_to_everybody(path, "the keys of tickets"));
        }
        match faults.is_empty() {
            true => Ok(Contents {
                pairs,
                roots,
                tickets,
                remarks,
            }),
            false => Err(LoadFaults(faults)),
        }
    }

    fn config(
        &self,
        provider: Arc<CryptoProvider>,
        pairs: Vec<Pair>,
        roots: Option<RootCertStore>,
        tickets: Option<SharedTickets>,
    ) -> Result<ServerConfig, rustls::Error> {
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&version::TLS13, &version::TLS12],
            MinVersion::Tls13 => &[&version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?;
        let verifier = roots.map(|roots| {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match self.client_auth {
                ClientAuth::Required => verifier,
                ClientAuth::None | ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let built = verifier.build();
            built.map_err(|error| rustls::Error::General(error.to_string()))
        });
        let verifier = verifier.transpose()?;
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => {
                let verifier = NamingVerifier(Arc::clone(verifier));
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName::new(pairs)));
        fit_for_stage(&mut config, ALPN);
        // Many clients name AES with 256 bits first. Its SHA-384 took a fifth of a shard's time in 15,000 handshakes (AMD EPYC, which has
        // instructions for SHA-256 only).
        config.ignore_client_order = true;
        let tickets: Arc<dyn ProducesTickets> = match tickets {
            Some(shared) => Arc::new(shared),
            None => TICKETS.as_ref().map_err(Clone::clone)?.clone(),
        };
        // A session that resumes has the certificate of its first handshake, for as long as each session gives the ticket of the next one.
        // Meanwhile the certificate may have expired, and its CA may be gone. rustls cannot refuse the ticket then, and an alert behind the
        // handshake lets a client with a new certificate offer the ticket again. So who may show a certificate shows it each time.
        if verifier.is_none() {
            config.ticketer = tickets;
        }
        // Each costs a record of 200 bytes, and a client needs one.
        config.send_tls13_tickets = usize::from(verifier.is_none());
        Ok(config)
    }

    /// Reads the certificate that an authority has made, and returns the names without one. A certificate that cannot be used counts as none:
    /// another is ordered.
    fn add_ordered(&self, pairs: &mut Vec<Pair>, provider: &CryptoProvider) -> Vec<String> {
        let Some(acme) = &self.acme else {
            return Vec::new();
        };
        match Pair::read(&acme.files(), provider) {
            Ok(mut pair) => {
                pair.shown.is_renewed = true;
                pairs.push(pair);
                Vec::new()
            }
            Err(fault) => {
                tracing::debug!("TLS: {fault}");
                acme.names.clone()
            }
        }
    }

    /// Who signs the certificates of clients; none if nobody is asked for one. Remarks go to `remarks`.
    fn client_roots(&self, remarks: &mut Vec<String>) -> Result<Option<RootCertStore>, LoadFault> {
        let Some(path) = &self.client_ca else {
            return Ok(None);
        };
        if self.client_auth == ClientAuth::None {
            remarks.push(
                "tls-client-ca has no effect beside tls-client-auth = \"none\": nobody is asked for a certificate".into(),
            );
            return Ok(None);
        }
        let field = "tls-client-ca";
        let mut roots = RootCertStore::empty();
        for certificate in pair::read_certificates(field, path)? {
            let authority = pair::check_authority(&certificate);
            let authority = authority.map_err(|advice| LoadFault::new(field, path, advice))?;
            if authority.has_ended {
                remarks.push(format!(
                    "tls-client-ca: the CA {} in {} has expired: take it out, with those whom it signed",
                    authority.name,
                    path.display()
                ));
            }
            let added = roots.add(certificate);
            added.map_err(|error| {
                let advice = format!("holds a certificate that can sign no other one ({error})");
                LoadFault::new(field, path, advice)
            })?;
        }
        Ok(Some(roots))
    }

    /// All files, to be watched.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let pairs = self.pairs.iter();
        let pairs = pairs.flat_map(|pair| [pair.certificate.clone(), pair.key.clone()]);
        let ordered = self.acme.iter().map(|acme| acme.files().certificate);
        pairs
            .chain(self.client_ca.clone())
            .chain(self.ticket_keys.clone())
            .chain(ordered)
    }
}

impl Loaded {
    /// What somebody who reads the log should know about the files.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let each = self.certificates.iter().flat_map(|shown| {
            let path = shown.path.display();
            let remarks = shown.remarks.iter();
            remarks.map(move |remark| format!("the certificate in {path}: {remark}"))
        });
        let mut remarks: Vec<_> = each.collect();
        remarks.extend(shadowed_names(&self.certificates));
        remarks.extend(self.remarks.iter().cloned());
        remarks
    }
}

/// Pairs of certificates that have names in common. Clients that ask for such a name get the first one.
fn shadowed_names(certificates: &[Shown]) -> Vec<String> {
    let mut first_of = HashMap::new();
    let mut remarks = Vec::new();
    for shown in certificates {
        let mut shared = shown.names.iter().filter_map(|name| {
            let first: &Shown = first_of.entry(name.to_ascii_lowercase()).or_insert(shown);
            // A certificate may have one name twice.
            (!std::ptr::eq(first, shown)).then_some((first, name))
        });
        let Some((first, name)) = shared.next() else {
            continue;
        };
        if first.path == shown.path {
            let path = shown.path.display();
            remarks.push(format!(
                "the certificate in {path} is named by two pairs: the second one is never shown; remove it"
            ));
            continue;
        }
        let others = match shared.count() {
            0 => String::new(),
            count => format!(" and {count} others"),
        };
        remarks.push(format!(
            "the certificates in {} and {} both have the name {name}{others}: clients that ask for it get the first one; remove the one that you do not want",
            first.path.display(),
            shown.path.display()
        ));
    }
    remarks
}

/// Gives a configuration what the stage needs of each, and the one protocol that its clients may speak.
fn fit_for_stage(config: &mut ServerConfig, protocol: &[u8]) {
    config.alpn_protocols = vec![protocol.to_vec()];
    config.key_log = Arc::new(Secrets);
    config.enable_secret_extraction = true;
    // Nobody keeps sessions here: a client that comes back brings its ticket.
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// The ciphers and groups that handshakes choose from, the cheapest first: AES with 128 bits, and X25519. A post-quantum group costs a
/// quarter of the handshakes a second. Clients that offer no other get it.
fn provider() -> CryptoProvider {
    use aws_lc_rs::{cipher_suite, kx_group};
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![
            kx_group::X25519,
            kx_group::SECP256R1,
            kx_group::SECP384R1,
            kx_group::X25519MLKEM768,
        ],
        ..aws_lc_rs::default_provider()
    }
}

/// What the shards' stages take for the next handshake.
pub(crate) type Current = Arc<ArcSwap<Offer>>;

/// The TLS of a running server. All clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) sources: Arc<ArcSwap<Sources>>,
    pub(crate) loaded: Arc<ArcSwap<Loaded>>,
    pub(crate) current: Current,
    /// Of each shard's stage.
    pub(crate) figures: Arc<[Arc<Figures>]>,
    /// What became of our orders; none without an authority.
    pub(crate) orders: Option<Arc<Orders>>,
    /// Whether the files that were read last are in force.
    pub(crate) is_in_force: Arc<AtomicBool>,
}

impl Running {
    pub(crate) fn new(settings: &TlsSettings, shards: usize) -> Self {
        let figures = std::iter::repeat_with(Arc::default).take(shards);
        Self {
            sources: Arc::new(ArcSwap::new(Arc::clone(&settings.sources))),
            loaded: Arc::new(ArcSwap::new(Arc::clone(&settings.loaded))),
            current: Arc::new(ArcSwap::new(Arc::clone(&settings.loaded.offer))),
            figures: figures.collect(),
            orders: settings.sources.acme.as_ref().map(|_| Arc::default()),
            is_in_force: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Takes what a reload has read. Handshakes that begin from now on use it.
    pub(crate) fn replace(&self, settings: &TlsSettings) {
        self.sources.store(Arc::clone(&settings.sources));
        let last = self.take(Arc::clone(&settings.loaded));
        if last.marks != settings.loaded.marks {
            tracing::info!("TLS: files have changed: {}", sentence(&settings.loaded));
        }
    }

    /// Handshakes that begin from now on use it. Gives what was in force before.
    fn take(&self, loaded: Arc<Loaded>) -> Arc<Loaded> {
        self.is_in_force.store(true, Relaxed);
        self.current.store(Arc::clone(&loaded.offer));
        self.loaded.swap(loaded)
    }
}

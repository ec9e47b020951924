//! Certificates from an authority (ACME, RFC 8555), such as Let's Encrypt.
//!
//! A certificate lies in a folder ([`cache`]) as one file, and is read there like any other pair: at the start, at a reload, and when the
//! file changes. One task ([`renew`]) orders a new one when there is none, or when a third of its time is left ([`schedule`]), and writes
//! that file. So a server that starts again orders nothing, and nodes that share the folder share the certificate.
//!
//! The authority asks whether the names are ours: in a TLS handshake at the server's own port, or by a request of HTTP ([`challenges`]).

mod answering;
mod cache;
mod challenges;
mod http;
mod order;
mod schedule;

pub(super) use challenges::CHALLENGES;

use super::files::{blocking, load, marks, take};
use super::{LoadFault, Loaded, PairFiles, Running, pair};
use crate::error::ServerError;
use crate::shards::{random_bits, refusal};
use cache::{Cache, Lock};
use instant_acme::{Account, AccountCredentials, ChallengeType, NewAccount};
use order::{Fault, Issued};
use schedule::{BackOff, Validity};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Whom to ask for a certificate, and for which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmeSettings {
    /// In lower case. One certificate has all of them.
    pub(crate) names: Vec<String>,
    /// Where the authority may write to.
    pub(crate) email: Option<String>,
    /// The address of the authority's directory.
    pub(crate) directory: String,
    /// The only CAs that may sign for the directory (PEM); none for those that the machine trusts.
    pub(crate) ca: Option<String>,
    /// Where the account and the certificate are kept.
    pub(crate) folder: PathBuf,
    /// Where requests of the authority come without TLS; none to answer in handshakes of TLS.
    pub(crate) http: Option<SocketAddr>,
}

impl AcmeSettings {
    /// The file of the certificate, which holds its key as well.
    pub(super) fn files(&self) -> PairFiles {
        let path = Cache::of(self).certificate;
        PairFiles {
            certificate: path.clone(),
            key: path,
            fields: ("tls-acme-cache".into(), "tls-acme-cache".into()),
        }
    }

    /// How the authority finds out whether names are ours.
    fn challenge_type(&self) -> ChallengeType {
        match self.http {
            Some(_) => ChallengeType::Http01,
            None => ChallengeType::TlsAlpn01,
        }
    }
}

/// A challenge as RFC 8555 and RFC 8737 write it.
fn name_of(challenge: &ChallengeType) -> &'static str {
    match challenge {
        ChallengeType::Http01 => "HTTP-01",
        _ => "TLS-ALPN-01",
    }
}

/// What became of orders.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// They brought a certificate.
    pub(super) issued: AtomicU64,
    /// The authority said no.
    pub(super) refused: AtomicU64,
    /// The authority could not be asked.
    pub(super) unreachable: AtomicU64,
    /// The certificate could not be written.
    pub(super) unsaved: AtomicU64,
}

impl Orders {
    fn count_failed(&self, fault: &Fault) {
        let count = match fault {
            Fault::Refused(_) | Fault::NoAccount(_) => &self.refused,
            Fault::Unreachable(_) => &self.unreachable,
            Fault::Unsaved(_) => &self.unsaved,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// How often the clock is read while a certificate is good: it may be set, and a machine may sleep.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// Wait while another process has the folder to itself: it orders the same certificate.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// The only CAs that may sign for a directory.
pub(crate) fn read_ca(path: &Path) -> Result<String, LoadFault> {
    let field = "tls-acme-ca";
    pair::read_certificates(field, path)?;
    let text = pair::read_file(path).map_err(|error| error.to_string());
    let text = text.and_then(|text| String::from_utf8(text).map_err(|error| error.to_string()));
    text.map_err(|why| LoadFault::new(field, path, format!("cannot be read: {why}")))
}

/// Makes ready what orders need: the folder, and the address for requests of the authority.
pub(crate) fn begin_answers(settings: &AcmeSettings) -> Result<(), ServerError> {
    // Without the folder a server would order anew at each start, until the authority refuses.
    let cache = Cache::of(settings);
    let prepared = cache.prepare().and_then(|()| cache.is_open_to_everybody());
    let is_open = prepared.map_err(|error| {
        let advice = format!(
            "cannot be used: {error}; choose a folder that the server's user may make and write to"
        );
        let fault = LoadFault::new("tls-acme-cache", &settings.folder, advice);
        ServerError::Config(fault.into())
    })?;
    if is_open {
        tracing::warn!(
            "everybody on this machine may replace the certificate in tls-acme-cache = {:?}: run chmod o-w on it",
            settings.folder
        );
    }
    let Some(address) = settings.http else {
        return Ok(());
    };
    let refused = |error| refusal(address, "tls-acme-http", error);
    let listener = std::net::TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(refused)?;
    tokio::spawn(answering::answer(listener));
    Ok(())
}

/// Begins to order certificates in time, if there are names for them. The authority may ask at once, so shards have to listen.
pub(crate) fn begin_renewal(running: &Running) {
    let settings = running.sources.load().acme.clone();
    if let (Some(settings), Some(orders)) = (settings, running.orders.clone()) {
        // Spreads servers that start together.
        let seed = random_bits().unwrap_or_default();
        tokio::spawn(renew(settings, orders, running.clone(), seed));
    }
}

/// Orders certificates in time, for as long as the server runs.
async fn renew(settings: Arc<AcmeSettings>, orders: Arc<Orders>, running: Running, seed: u64) {
    let cache = Cache::of(&settings);
    let mut renewal = Renewal {
        settings,
        cache,
        running,
        back_off: BackOff::default(),
        seed,
    };
    loop {
        let pause = match renewal.time_left() {
            Some(left) => left.min(LOOK),
            None => renewal.attempt(&orders).await,
        };
        tokio::time::sleep(pause).await;
    }
}

/// What the task of a certificate knows.
struct Renewal {
    settings: Arc<AcmeSettings>,
    cache: Cache,
    running: Running,
    back_off: BackOff,
    seed: u64,
}

/// How an attempt went that did not fail.
enum Attempt {
    /// There is a certificate that need not be replaced yet.
    Done,
    /// Another process is at it.
    Elsewhere,
}

impl Renewal {
    /// Time until a certificate has to be ordered; none if that is now.
    fn time_left(&self) -> Option<Duration> {
        let loaded = self.running.loaded.load();
        let validity = self.validity(&loaded)?;
        schedule::time_left(validity, pair::now(), self.seed)
    }

    /// Of the certificate that clients get; none without one.
    fn validity(&self, loaded: &Loaded) -> Option<Validity> {
        let mut certificates = loaded.certificates.iter();
        let shown = certificates.find(|shown| shown.path == self.cache.certificate)?;
        Some(Validity {
            begins_at: shown.begins_at,
            expires_at: shown.expires_at,
        })
    }

    /// Tries once, and answers how long to wait.
    async fn attempt(&mut self, orders: &Orders) -> Duration {
        let (result, retry_after) = match http::Client::new(self.settings.ca.as_deref()) {
            Ok(client) => (self.order(&client, orders).await, client.take_retry_after()),
            Err(why) => (Err(Fault::Unreachable(why)), None),
        };
        let fault = match result {
            Ok(Attempt::Elsewhere) => return ELSEWHERE,
            Ok(Attempt::Done) if self.time_left().is_some() => {
                self.back_off.reset();
                return Duration::ZERO;
            }
            // To order again at once would go on for ever.
            Ok(Attempt::Done) => Fault::Refused(
                "the new certificate has to be renewed already: is the clock of this machine right?".into(),
            ),
            Err(fault) => fault,
        };
        orders.count_failed(&fault);
        let random = random_bits().unwrap_or(u64::MAX / 2);
        let pause = self.back_off.next(&fault, retry_after, random);
        let names = self.settings.names.join(", ");
        tracing::error!(
            "TLS: no new certificate for {names}: {fault}; the next try is in {}",
            schedule::words(pause)
        );
        pause
    }

    /// Orders a certificate, unless another process has done so or is about to.
    async fn order(&mut self, client: &http::Client, orders: &Orders) -> Result<Attempt, Fault> {
        let Some(_lock) = Lock::take(&self.cache).map_err(|error| self.unsaved(&error))? else {
            return Ok(Attempt::Elsewhere);
        };
        // Somebody may have ordered one before we had the lock.
        self.take_newest().await;
        if self.time_left().is_some() {
            return Ok(Attempt::Done);
        }
        tracing::info!(
            "TLS: ordering a certificate for {} from {} ({})",
            self.settings.names.join(", "),
            self.settings.directory,
            name_of(&self.settings.challenge_type()),
        );
        let issued = match self.issue(client).await {
            // The authority may have forgotten it, or somebody has deactivated it.
            Err(Fault::NoAccount(_)) => {
                let forgotten = self.cache.forget_account();
                forgotten.map_err(|error| self.unsaved(&error))?;
                self.issue(client).await?
            }
            result => result?,
        };
        self.cache
            .keep_certificate(&issued)
            .map_err(Fault::Unsaved)?;
        orders.issued.fetch_add(1, Relaxed);
        self.take_newest().await;
        Ok(Attempt::Done)
    }

    async fn issue(&self, client: &http::Client) -> Result<Issued, Fault> {
        let account = self.account(client).await?;
        order::order(&account, &self.settings, &CHALLENGES).await
    }

    /// The account that is kept, or else a new one.
    async fn account(&self, client: &http::Client) -> Result<Account, Fault> {
        let builder = || Account::builder_with_http(client.boxed());
        if let Some(credentials) = self.cache.account() {
            return Ok(builder().from_credentials(credentials).await?);
        }
        let contact = self.settings.email.as_ref();
        let contact = contact.map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = order::patiently!(
            builder()
                .create(&wanted, self.settings.directory.clone(), None)
                .await
        );
        let (account, credentials): (Account, AccountCredentials) = made?;
        let kept = self.cache.keep_account(&credentials);
        kept.map_err(|error| self.unsaved(&error))?;
        Ok(account)
    }

    /// The folder cannot be used.
    fn unsaved(&self, error: &io::Error) -> Fault {
        Fault::Unsaved(format!("{:?}: {error}", self.cache.folder))
    }

    /// Gives new clients what lies in the folder, if it is not what they get already.
    async fn take_newest(&self) {
        let sources = self.running.sources.load_full();
        let Some(now) = blocking(&sources, marks).await else {
            return;
        };
        if now == self.running.loaded.load().marks {
            return;
        }
        match load(&self.running, &sources).await {
            Some(Ok(loaded)) => take(&self.running, loaded),
            Some(Err(faults)) => {
                tracing::error!("TLS: certificates cannot be used; those before stay: {faults}");
            }
            None => {}
        }
    }
}

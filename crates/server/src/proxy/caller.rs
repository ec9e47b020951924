//! One proxy: calls to one address of the application, over HTTP.
//!
//! A bounded number of calls is under way, and a bounded number waits for a place ([`Places`]). A proxy whose application fails again and
//! again is left alone for a while ([`Circuit`]). What the application sends is bounded in time and in bytes.

use super::circuit::{Change, Circuit, Sign, Who};
use super::metrics::{Counted, Outcome, ProxyCounts};
use super::names::{Names, ask_system};
use super::places::{Bounds, NoPlace, Place, Places};
use super::settings::{Asks, ProxySettings};
use super::tls::{Tls, innermost};
use axum::http::{HeaderMap, StatusCode};
use myriad_shard::{AskingClient, ClientId, Refusal};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Calls that may wait for a place, for each that may be under way.
const WAITING_PER_CALL: usize = 4;
/// Connects that may wait for a place. Each is the only one of its client: a crowd that comes at once is no reason to turn clients
/// away whom the application could let in within their time. Shards bound them, too (`ProcessLimits::connect_asks_max`).
const CONNECTS_WAITING_MAX: usize = 16_384;
/// A connect waits so long for its place and its answer together: a shard answers the client after 4 s.
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);
/// The least that a connect waits for a place, if its proxy has 4 s for an answer.
const CONNECT_WAIT_MIN: Duration = Duration::from_millis(500);
/// Idle connections to the application are closed after this: before common servers do it, 5 s and later. A call on a connection
/// that closes just then would fail.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle connections to one host.
const POOL_IDLE_MAX: usize = 256;
/// How rustls says that nobody whom we trust has signed a certificate.
const UNKNOWN_ISSUER: &str = "UnknownIssuer";
/// One log line about failures of a proxy in so much time.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// A client for all proxies with the same TLS, with their pool of connections. Without TLS the machine needs no certificates.
pub(super) fn http_client(tls: Option<&Tls>) -> reqwest::Result<reqwest::Client> {
    let builder = reqwest::Client::builder();
    let builder = match tls {
        Some(tls) => tls.apply(builder)?,
        None => builder.tls_certs_only([]),
    };
    builder
        // A redirected call would send what clients told us to an address that nobody configured.
        .redirect(reqwest::redirect::Policy::none())
        // Neither would the environment's proxy be expected between a server and its application.
        .no_proxy()
        // A call may have been carried out although its connection broke: only the client knows whether to ask again.
        .retry(reqwest::retry::never())
        .referer(false)
        .dns_resolver(Names::new(ask_system))
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(POOL_IDLE_MAX)
        .tcp_nodelay(true)
        .build()
}

/// Why a call has no answer that can be read. The application is at fault, or the way to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    /// As many calls are under way and wait as may be.
    Busy,
    /// The client has its share of these calls.
    Share,
    /// The circuit is open.
    CircuitOpen,
    /// No answer in time.
    Timeout(Duration),
    /// No connection. The cause is for the log.
    Unreachable(String),
    /// The connection ended before the answer was complete, or what came was no HTTP.
    Broken(String),
    /// A status that is neither 200 nor configured.
    Status(StatusCode),
    /// More bytes than an answer may have.
    TooLarge(usize),
}

impl CallFault {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Busy | Self::Share => Outcome::Busy,
            Self::CircuitOpen => Outcome::CircuitOpen,
            Self::Timeout(_) => Outcome::Timeout,
            Self::Unreachable(_) => Outcome::Unreachable,
            Self::Broken(_) => Outcome::Broken,
            Self::Status(_) => Outcome::Status,
            Self::TooLarge(_) => Outcome::TooLarge,
        }
    }

    /// What it says of the application as a whole. A client can provoke all but one of the faults with what it sends, and must not
    /// be able to cut off everybody else by it.
    fn sign(&self) -> Sign {
        match self {
            Self::Unreachable(_) => Sign::Down,
            Self::Timeout(_) | Self::Broken(_) => Sign::Doubtful,
            Self::Status(status) => match *status {
                StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT => Sign::Doubtful,
                _ => Sign::Well,
            },
            Self::Busy | Self::Share | Self::CircuitOpen | Self::TooLarge(_) => Sign::Well,
        }
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many calls are under way and wait"),
            Self::Share => f.write_str("the client has too many calls under way"),
            Self::CircuitOpen => f.write_str("the application is left alone for a while"),
            Self::Timeout(timeout) => write!(f, "no answer within {timeout:?}"),
            Self::Unreachable(cause) => write!(f, "cannot connect: {cause}"),
            Self::Broken(cause) => write!(f, "the answer is broken: {cause}"),
            Self::Status(status) => write!(f, "status {status} instead of 200"),
            Self::TooLarge(max) => write!(f, "the answer has more than {max} bytes"),
        }
    }
}

/// What a call has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// The body of an answer with status 200.
    Body(Vec<u8>),
    /// A status that the operator has given a meaning.
    Refused(Refusal),
}

/// One proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    settings: ProxySettings,
    http: reqwest::Client,
    places: Places<ClientId>,
    circuit: Circuit,
    counts: ProxyCounts,
    log: LogGate,
}

impl Proxy {
    pub(super) fn new(settings: ProxySettings, http: reqwest::Client, counts: ProxyCounts) -> Self {
        counts.circuit.set(Circuit::default().figure());
        Self {
            places: Places::new(Bounds {
                calls_max: settings.calls_max,
                waiting_max: match settings.asks {
                    Asks::Connects => CONNECTS_WAITING_MAX,
                    Asks::Commands => settings.calls_max * WAITING_PER_CALL,
                },
            }),
            settings,
            http,
            circuit: Circuit::default(),
            counts,
            log: LogGate::default(),
        }
    }

    pub(super) fn settings(&self) -> &ProxySettings {
        &self.settings
    }

    pub(super) fn counts(&self) -> &ProxyCounts {
        &self.counts
    }

    /// Calls the application for a client. `request` writes the headers and the body, once there is a place for the call. The
    /// fault is neither counted nor logged yet.
    pub(super) async fn call(
        &self,
        asker: &AskingClient,
        request: impl FnOnce() -> (HeaderMap, Vec<u8>),
    ) -> Result<Called, CallFault> {
        let who = who(asker);
        // Before the wait as well: nobody waits for what will fail at once.
        if self.circuit.is_open(who, Instant::now()) {
            return Err(CallFault::CircuitOpen);
        }
        let _place = self.place(asker.client).await?;
        let (headers, body) = request();
        // In a box of its own, because thousands of calls may wait for a place and need little memory until they have it.
        Box::pin(self.attempt(who, headers, body)).await
    }

    async fn attempt(
        &self,
        who: Who,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Called, CallFault> {
        let begun = Instant::now();
        let attempt = self.circuit.begin(who, begun);
        let attempt = attempt.map_err(|_| CallFault::CircuitOpen)?;
        self.show_circuit();
        let _under_way = Counted::new(&self.counts.under_way);
        let limit = self.settings.timeout;
        let called = timeout(limit, self.exchange(headers, body)).await;
        let called = called.unwrap_or(Err(CallFault::Timeout(limit)));
        self.counts.observe(begun.elapsed());
        tracing::debug!(
            "{}: {} after {:?}",
            self.settings.name,
            if called.is_ok() { "answered" } else { "failed" },
            begun.elapsed()
        );
        let sign = called.as_ref().map_or_else(CallFault::sign, |_| Sign::Well);
        let change = attempt.end(sign, Instant::now());
        self.show_circuit();
        if let Some(change) = change {
            self.log_change(change, called.as_ref().err());
        }
        called
    }

    /// A place among the calls, once there is one.
    async fn place(&self, client: ClientId) -> Result<Place<'_, ClientId>, CallFault> {
        let fault = |no_place| match no_place {
            NoPlace::Full | NoPlace::Late => CallFault::Busy,
            NoPlace::Share => CallFault::Share,
        };
        if let Some(place) = self.places.take_free(client).map_err(fault)? {
            return Ok(place);
        }
        let patience = match self.settings.asks {
            Asks::Connects => CONNECT_PATIENCE
                .saturating_sub(self.settings.timeout)
                .max(CONNECT_WAIT_MIN),
            Asks::Commands => self.settings.timeout,
        };
        let _shown = Counted::new(&self.counts.waiting);
        self.places.wait(client, patience).await.map_err(fault)
    }

    async fn exchange(&self, headers: HeaderMap, body: Vec<u8>) -> Result<Called, CallFault> {
        let endpoint = self.settings.endpoint.clone();
        let request = self.http.post(endpoint).headers(headers).body(body);
        let response = request.send().await.map_err(|error| fault_of(&error))?;
        let status = response.status();
        // Read whatever the status is: a connection with an unread body cannot be used again.
        let body = read(response, self.settings.answer_bytes_max).await;
        if status == StatusCode::OK {
            return body.map(Called::Body);
        }
        match self.settings.transforms.get(&status.as_u16()) {
            Some(refusal) => Ok(Called::Refused(refusal.clone())),
            None => Err(CallFault::Status(status)),
        }
    }

    fn show_circuit(&self) {
        self.counts.circuit.set(self.circuit.figure());
    }

    fn log_change(&self, change: Change, fault: Option<&CallFault>) {
        let name = &self.settings.name;
        match (change, fault) {
            (Change::Opened(backoff), Some(fault)) => tracing::warn!(
                "{name}: the application fails ({fault}); it is not called for {backoff:?}"
            ),
            (Change::Opened(backoff), None) => {
                tracing::warn!("{name}: the application fails; it is not called for {backoff:?}")
            }
            (Change::Closed, _) => {
                tracing::info!("{name}: the application answers again");
            }
        }
    }

    /// Logs that a call failed, or that its answer is of no use: one line a second for each proxy.
    pub(super) fn log_fault(&self, call: &str, fault: &dyn fmt::Display) {
        if let Some(left_out) = self.log.admit(Instant::now()) {
            let name = &self.settings.name;
            let more = match left_out {
                0 => String::new(),
                count => format!(" ({count} more failures since the last such line)"),
            };
            tracing::warn!("{name}: {call} failed: {fault}{more}");
        }
    }
}

/// All clients of a user are one: he may have many.
fn who(asker: &AskingClient) -> Who {
    let mut hasher = DefaultHasher::new();
    match &asker.user {
        Some(user) => user.hash(&mut hasher),
        None => asker.client.hash(&mut hasher),
    }
    Who(hasher.finish())
}

async fn read(mut response: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, CallFault> {
    let announced = response.content_length().unwrap_or(0);
    if announced > bytes_max as u64 {
        return Err(CallFault::TooLarge(bytes_max));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| fault_of(&error))? {
        if body.len() + chunk.len() > bytes_max {
            return Err(CallFault::TooLarge(bytes_max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Without the address, whose user and query may be secret. The innermost cause is the one that says what happened.
fn fault_of(error: &reqwest::Error) -> CallFault {
    let mut cause = innermost(error);
    if !error.is_connect() {
        return CallFault::Broken(cause);
    }
    if cause.contains(UNKNOWN_ISSUER) {
        cause.push_str(": nobody whom we trust has signed it. If your own CA has, name it in http.tls.server_ca_pem_file of the proxy");
    }
    CallFault::Unreachable(cause)
}

/// Lets one line through in [`LOG_EVERY`].
#[derive(Debug, Default)]
struct LogGate(Mutex<(Option<Instant>, u64)>);

impl LogGate {
    /// How many were left out since the last one; none if this one is left out too.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = &mut *gate;
        if last.is_some_and(|last| now.duration_since(last) < LOG_EVERY) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

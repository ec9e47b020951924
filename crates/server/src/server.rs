//! A running server, from start to drain.

use crate::announce::announce;
use crate::auth::Authority;
use crate::broker::Broker;
use crate::config::Config;
use crate::control::{self, Admission, ClientStream, Control, Room, Rules, Shards, Source, Stage};
use crate::debug_log::{DebugLog, run_sentence};
use crate::error::ServerError;
use crate::handover::{Arrival, Receiver, WayBack};
use crate::history::{self, DiskHistory, DiskOfShard, Found};
use crate::mailbox::{Letters, ShardEvent, ThroughMailbox, mailbox};
use crate::nodes;
use crate::reload::{self, Reloader, Reloads};
use crate::shards::{
    self, CONTROL_CONNECTIONS_MAX, HeldAddress, Launch, LaunchTls, Plan, Tables, Threads, Wanted,
    choose_driver, enough_rings, refusal,
};
use crate::tls;
use crate::webhooks::Webhooks;
use myriad_reactor::{Driver, Waker, descriptor_limit};
use myriad_shard::{ClientIds, Epoch, LogSettings, Mesh, ShardRequests};
use myriad_tls_stage::Workers;
use myriad_units::{count, counted};
use myriad_wire::http::HeadLimits;
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;

/// A server in this process.
///
/// It runs on after a drop; [`Server::stop`] ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    tls_address: Option<SocketAddr>,
    /// Whom the certificates name, for the line at the start.
    certificates: Option<String>,
    internal_address: Option<SocketAddr>,
    driver: Driver,
    shards: usize,
    max_connections: u64,
    is_development: bool,
    key: Option<Arc<str>>,
    stage: watch::Sender<Stage>,
    reloader: Reloader,
    control: JoinHandle<Result<(), ServerError>>,
}

/// Begins to drain a server. Works from any thread that shares the descriptor table in which it was started.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<Stage>);

impl Stop {
    /// Health checks fail at once. After a short grace, connections are closed evenly over the configured time.
    pub fn drain(&self) {
        self.0.send_if_modified(|stage| {
            let begins = *stage == Stage::Serving;
            if begins {
                *stage = Stage::Draining;
            }
            begins
        });
    }
}

/// What the control plane's thread is made from.
struct Assembly {
    config: Config,
    plan: Plan,
    held: Held,
    internal: Option<TcpListener>,
    key: Option<Arc<str>>,
    stage: watch::Sender<Stage>,
    reloads: Reloads,
}

/// The addresses of clients, ours alone until every shard listens.
#[derive(Debug)]
struct Held {
    plain: HeldAddress,
    tls: Option<HeldAddress>,
}

impl Server {
    /// Starts a server, and returns once every shard accepts connections.
    ///
    /// Raises the soft RLIMIT_NOFILE to the hard one.
    ///
    /// # Errors
    /// The server could not start. All of its threads have ended by then.
    pub fn start(config: Config) -> Result<Self, ServerError> {
        for remark in &config.remarks {
            tracing::warn!("{remark}");
        }
        tracing::info!("memory: {}", config.memory);
        let plan = plan(&config)?;
        let held = HeldAddress::take(config.listen, "listen")?;
        let tls_listen = config.tls.as_ref().map(|tls| tls.listen);
        let held_tls = tls_listen.map(|address| HeldAddress::take(address, "tls-listen"));
        let held_tls = held_tls.transpose()?;
        let tls_address = held_tls.as_ref().map(HeldAddress::address);
        let certificates = config.certificates();
        let internal = config.internal_listen.map(listen_internally).transpose()?;
        let key = control::decide_key(&config.api.lone)
            .map_err(ServerError::system("make an API key"))?;
        let (stage, _) = watch::channel(Stage::Serving);
        let max_connections = config.max_connections;
        let is_development = config.settings.echo;
        let internal_address = match &internal {
            Some(listener) => Some(
                listener
                    .local_addr()
                    .map_err(ServerError::system("read our own address"))?,
            ),
            None => None,
        };
        let address = held.address();
        let (reloader, reloads) = Reloader::new(config.clone());
        let assembly = Assembly {
            config,
            plan,
            held: Held {
                plain: held,
                tls: held_tls,
            },
            internal,
            key: key.clone(),
            stage: stage.clone(),
            reloads,
        };
        let control = launch(assembly)?;
        let (driver, shards) = (plan.driver, plan.shards);
        Ok(Self {
            address,
            tls_address,
            certificates,
            internal_address,
            driver,
            shards,
            max_connections,
            is_development,
            key,
            stage,
            reloader,
            control,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect with TLS, if they may.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// The line that says where clients connect with TLS, and with which certificates.
    pub(crate) fn tls_line(&self) -> Option<String> {
        let (address, certificates) = (self.tls_address?, self.certificates.as_ref()?);
        Some(format!("TLS on {address} for {certificates}"))
    }

    /// Where the control plane listens, when it has an address of its own.
    #[must_use]
    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.internal_address
    }

    /// The driver in use.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Shards, each a thread.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The key of the API; none when it is open.
    #[must_use]
    pub fn api_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The line that announces that the server is ready.
    #[must_use]
    pub fn ready_line(&self) -> String {
        format!(
            "listening on {} ({}, {}, up to {})",
            self.address,
            self.driver.name(),
            counted(self.shards as u64, "shard"),
            counted(self.max_connections, "connection"),
        )
    }

    /// The line that says where a development server shows its page.
    pub(crate) fn page_line(&self) -> Option<String> {
        if !self.is_development {
            return None;
        }
        let address = self.internal_address.unwrap_or(self.address);
        // A server that listens at all addresses listens here.
        let host = match address.ip() {
            ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Some(format!("open http://{host}:{}/", address.port()))
    }

    /// A handle that begins the drain while another thread waits.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop(self.stage.clone())
    }

    /// A handle that gives the server other options.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Waits until the server has drained.
    ///
    /// # Errors
    /// A shard failed.
    pub fn wait(self) -> Result<(), ServerError> {
        let panicked = || ServerError::Panicked {
            thread: "the control plane".into(),
        };
        self.control.join().unwrap_or_else(|_| Err(panicked()))
    }

    /// Drains the server and waits for its end.
    ///
    /// # Errors
    /// A shard failed.
    pub fn stop(self) -> Result<(), ServerError> {
        self.stopper().drain();
        self.wait()
    }
}

fn plan(config: &Config) -> Result<Plan, ServerError> {
    let table = descriptor_limit().map_err(ServerError::system("raise the descriptor limit"))?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let driver = choose_driver(config.driver, || {
        Driver::probe_io_uring()?;
        enough_rings(config.rings_max, config.shards.unwrap_or(cores))
    })?;
    let plan = shards::plan(
        driver,
        Wanted {
            connections: config.max_connections,
            shards: config.shards,
            cores,
            table,
        },
    )?;
    let room = Room::of(plan.control_connections);
    if room.places < Room::of(CONTROL_CONNECTIONS_MAX).places {
        tracing::warn!(
            "the HTTP API, health and metrics have {} connections and not {}, because RLIMIT_NOFILE is {}: raise it (ulimit -Hn, \
             LimitNOFILE= in a systemd unit)",
            count(room.places as u64),
            count(Room::of(CONTROL_CONNECTIONS_MAX).places as u64),
            count(table as u64),
        );
    }
    if plan.tables == Tables::PerShard {
        tracing::info!(
            "{} shards, each with a descriptor table of its own: one table has {} slots (RLIMIT_NOFILE)",
            plan.shards,
            count(table as u64),
        );
    }
    Ok(plan)
}

fn listen_internally(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let explain = |source| refusal(address, "internal-listen", source);
    // The standard library sets SO_REUSEADDR and not SO_REUSEPORT: a second listener is refused.
    let listener = TcpListener::bind(address).map_err(explain)?;
    listener.set_nonblocking(true).map_err(explain)?;
    Ok(listener)
}

/// Starts the control plane's thread, which starts the shards, and waits until all are ready.
fn launch(assembly: Assembly) -> Result<JoinHandle<Result<(), ServerError>>, ServerError> {
    // A channel of the standard library, because it wakes by futex: it works between descriptor tables.
    let (ready, readiness) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || control_plane(assembly, ready))
        .map_err(ServerError::system("start a thread"))?;
    match readiness.recv() {
        Ok(()) => Ok(thread),
        // It ended before it was ready, and says why.
        Err(_) => Err(match thread.join() {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => ServerError::Panicked {
                thread: "the control plane".into(),
            },
        }),
    }
}

/// Names of clients, with a secret of this process.
fn new_client_ids() -> Result<ClientIds, ServerError> {
    let secret = u128::from(shards::random_bits()?) << 64 | u128::from(shards::random_bits()?);
    Ok(ClientIds::new(secret))
}

/// The control plane's thread. One is enough: requests are few, and shards do the work.
fn control_plane(assembly: Assembly, ready: SyncSender<()>) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServerError::system("start the control plane's runtime"))?;
    let ended = runtime.block_on(supervise(assembly, ready));
    // Without waiting for threads that block: they look up names of hosts, or read files of a file system that hangs.
    runtime.shutdown_background();
    ended
}

/// Starts everything that a server has, and follows it to its end.
async fn supervise(assembly: Assembly, ready: SyncSender<()>) -> Result<(), ServerError> {
    let Assembly {
        config,
        plan,
        held,
        internal,
        key,
        stage,
        reloads,
    } = assembly;
    let (mailbox, events) = mailbox().map_err(ServerError::system("make a pipe"))?;
    let wakers = wakers(plan.shards)?;
    // Offsets start again with each process: clients see that by the epoch.
    let epoch = Epoch::new(shards::random_bits()?);
    let tokens = start_tokens(&config)?;
    let client_ids = new_client_ids()?;
    // Before anybody can connect, as long as it takes.
    let found = config.disk.as_ref().map(history::open).transpose()?;
    let mut broker = start_broker(&config, client_ids)?;
    let mesh = make_mesh(
        &config,
        wakers.clone(),
        epoch,
        client_ids,
        ThroughMailbox {
            mailbox: Arc::clone(&mailbox),
            tokens: Arc::clone(&tokens),
            broker: broker.as_ref().map(Broker::tasks),
        },
    );
    let mut control = Control::new(
        &config,
        mesh.clone(),
        tokens,
        key,
        plan.driver.name(),
        stage.subscribe(),
        broker.as_ref().map(Broker::cluster),
    )?;
    let tls = begin_tls(&config, &mut control, held.tls.as_ref(), plan.shards)?;
    let control = Arc::new(control);
    let webhooks = start_webhooks(&config, &control)?;
    let (history, disk) = begin_history(&config, found, &mesh)?;
    let launch = Launch {
        plan,
        disk,
        address: held.plain.address(),
        send_buffer_bytes: config.send_buffer_bytes,
        settings: control.settings(&config),
        wakers,
        tls,
    };
    let started = shards::start(launch, &mesh, &mailbox, broker.as_ref().map(Broker::raw));
    // If one shard did not start, those that did must not stay.
    let threads = started.inspect_err(|_| mesh.drain(Duration::ZERO))?;
    begin_broker(&mut broker, mesh, &control).await;
    tokio::spawn(reload::follow(reloads, Arc::clone(&control)));
    Supervisor {
        config,
        history,
        broker,
        webhooks,
        plan,
        control,
        stage,
        held: Some(held),
        internal,
        ready: Some(ready),
    }
    .run(threads, events)
    .await
}

fn start_tokens(config: &Config) -> Result<Arc<Authority>, ServerError> {
    Authority::start(config.tokens.clone())
        .map(Arc::new)
        .map_err(ServerError::system("start a thread"))
}

/// Starts the thread that writes histories, and gives each shard its way there.
fn begin_history(
    config: &Config,
    found: Option<Found>,
    mesh: &Mesh,
) -> Result<(Option<DiskHistory>, Vec<DiskOfShard>), ServerError> {
    let (Some(settings), Some(found)) = (&config.disk, found) else {
        return Ok((None, Vec::new()));
    };
    let (history, shares) = found.begin(settings, mesh)?;
    let shares = shares.into_iter().enumerate();
    let disk = shares.map(|(shard, share)| (history.journal(shard), share));
    let disk = disk.collect();
    Ok((Some(history), disk))
}

/// Starts the tasks that tell the application what happens, if it wants to know.
fn start_webhooks(config: &Config, control: &Control) -> Result<Option<Webhooks>, ServerError> {
    let mesh = control.mesh.clone();
    let webhooks = Webhooks::start(&config.webhooks, mesh, control.metrics.webhooks())?;
    if let Some(webhooks) = &webhooks {
        // Nobody else sets it.
        let _ = control.webhooks.set(webhooks.receivers());
    }
    Ok(webhooks)
}

/// Makes what shards need for clients with TLS, and follows its files.
fn begin_tls(
    config: &Config,
    control: &mut Control,
    held: Option<&HeldAddress>,
    shards: usize,
) -> Result<Option<LaunchTls>, ServerError> {
    let (Some(settings), Some(held)) = (&config.tls, held) else {
        return Ok(None);
    };
    // As many as may be busy beside the shards without taking more than half of the machine.
    let workers = Workers::start(shards.min(WORKERS_MAX));
    let workers = workers.map_err(ServerError::system("start a thread"))?;
    if let Some(acme) = &settings.sources.acme {
        tls::begin_answers(acme)?;
    }
    let running = control.begin_tls(settings, shards);
    let launch = LaunchTls {
        address: held.address(),
        current: running.current.clone(),
        workers,
        figures: Arc::clone(&running.figures),
    };
    tokio::spawn(tls::follow(running));
    Ok(Some(launch))
}

/// Threads that make handshakes with slow signatures.
const WORKERS_MAX: usize = 8;

/// Becomes one of the nodes of a cluster, if there is one.
async fn begin_broker(broker: &mut Option<Broker>, mesh: Mesh, control: &Arc<Control>) {
    if let Some(broker) = broker {
        broker.begin(mesh);
        join_cluster(control).await;
    }
}

/// Becomes one of the nodes of a cluster.
async fn join_cluster(control: &Arc<Control>) {
    if let Some(nodes) = &control.nodes {
        tokio::spawn(nodes::answer(Arc::clone(nodes), Arc::clone(control)));
        let newcomers = nodes.follow(control.mesh.clone()).await;
        tokio::spawn(Arc::clone(control).follow_newcomers(newcomers));
    }
}

/// Connects to the broker, if there is one.
fn start_broker(config: &Config, client_ids: ClientIds) -> Result<Option<Broker>, ServerError> {
    let Some(settings) = config.broker.clone() else {
        return Ok(None);
    };
    let namespaces = Arc::clone(&config.settings.namespaces);
    Broker::start(settings, namespaces, client_ids.node()).map(Some)
}

fn make_mesh(
    config: &Config,
    wakers: Vec<Waker>,
    epoch: Epoch,
    client_ids: ClientIds,
    way: ThroughMailbox,
) -> Mesh {
    let (limits, way) = (config.limits, Box::new(way));
    let Some(broker) = &config.broker else {
        return Mesh::new(wakers, limits, epoch, client_ids, way);
    };
    let logs = LogSettings {
        count: config.settings.namespaces.log_count(),
        by_channel: broker.interest.keeps_only_wanted(),
    };
    Mesh::with_broker(wakers, limits, epoch, client_ids, logs, way)
}

fn wakers(shards: usize) -> Result<Vec<Waker>, ServerError> {
    let wakers = (0..shards).map(|_| Waker::new());
    wakers
        .collect::<io::Result<_>>()
        .map_err(ServerError::system("make an eventfd"))
}

/// Follows the shards from their start over their answers to the end of their drain.
struct Supervisor {
    config: Config,
    /// None where histories are in memory alone.
    history: Option<DiskHistory>,
    /// None where homes order their channels.
    broker: Option<Broker>,
    /// None where nobody is told what happens.
    webhooks: Option<Webhooks>,
    plan: Plan,
    control: Arc<Control>,
    stage: watch::Sender<Stage>,
    /// Until every shard listens.
    held: Option<Held>,
    internal: Option<TcpListener>,
    ready: Option<SyncSender<()>>,
}

/// Time that connections of the control plane have for their answers after the last shard ended.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);
/// The same with a broker: 3.3 s until a publication is stored and read, or refused, and half a second for a check and its epoch. What
/// clients have left behind is published in this time, too.
const LAST_PUBLICATIONS_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time between the failing health check and the first close.
const GRACE_MAX: Duration = Duration::from_secs(2);

impl Supervisor {
    async fn run(
        mut self,
        mut threads: Threads,
        mut events: Letters<ShardEvent>,
    ) -> Result<(), ServerError> {
        let admission = self.open(&mut threads)?;
        let mut log = DebugLog::new(
            self.control.mesh.clone(),
            Arc::clone(&self.control.publish_log),
        );
        let draining_since = tokio::spawn(drain_begins(self.stage.subscribe()));
        let (mut ready, mut finished) = (Vec::new(), 0);
        while finished < self.plan.shards {
            let batch = next_events(&mut events, &mut log)
                .await
                .map_err(ServerError::system("read a pipe"))?;
            for event in batch {
                match event {
                    ShardEvent::Published { id, position } => {
                        self.control.api.positions.settle(id, position);
                    }
                    ShardEvent::Answered { id, answer } => {
                        self.control.api.inquiries.settle(id, answer);
                    }
                    ShardEvent::Asked(ask) => {
                        let mesh = self.control.mesh.clone();
                        let answerer = control::WithTokens {
                            tokens: Arc::clone(&self.control.tokens),
                            application: self.control.application.load_full(),
                        };
                        tokio::spawn(control::answer(mesh, ask, answerer));
                    }
                    ShardEvent::AskedMembers(question) => {
                        tokio::spawn(Arc::clone(&self.control).answer_members(question));
                    }
                    ShardEvent::Ready { thread } => {
                        ready.push(thread);
                        if ready.len() == self.plan.shards {
                            self.begin(std::mem::take(&mut ready));
                        }
                    }
                    ShardEvent::Finished => finished += 1,
                    ShardEvent::Failed(error) => return Err(self.fail(error)),
                }
            }
        }
        self.stage.send_replace(Stage::Stopped);
        let draining_since = draining_since.await;
        self.finish(&admission, &mut events, draining_since).await;
        for handle in threads.handles.drain(..) {
            // Each has said that it is finished, and panics were reported by then.
            let _ = handle.join();
        }
        // The last one that holds it: it writes what waits, and the index.
        drop(self.history.take());
        if let Some(sentence) = run_sentence(&self.control.mesh) {
            tracing::info!("{sentence}");
        }
        Ok(())
    }

    /// No shard runs any more: answers the last publishers, and tells the application what is left to tell.
    async fn finish(
        &mut self,
        admission: &Admission,
        events: &mut Letters<ShardEvent>,
        draining_since: Result<Instant, JoinError>,
    ) {
        if let Some(nodes) = &self.control.nodes {
            nodes.leave().await;
        }
        let control = Arc::clone(&self.control);
        let patience = match self.config.broker {
            Some(_) => LAST_PUBLICATIONS_TIMEOUT,
            None => LAST_ANSWERS_TIMEOUT,
        };
        let mut broker = self.broker.take();
        let answers = tokio::time::timeout(patience, async {
            admission.emptied().await;
            // Clients who have gone may have left publications behind.
            if let Some(broker) = &mut broker {
                broker.finish().await;
            }
        });
        let notices = self.finish_webhooks(draining_since);
        let last = async { tokio::join!(answers, notices) };
        tokio::select! {
            _ = last => {}
            () = settle_last(&control, events) => {}
        }
    }

    /// Takes in connections from the shards and from the control plane's own listener.
    fn open(&mut self, threads: &mut Threads) -> Result<Admission, ServerError> {
        let settings = &self.config.settings;
        let router = control::router(Arc::clone(&self.control));
        let router_of_shards = match self.internal {
            Some(_) => control::router_of_clients(Arc::clone(&self.control)),
            None => router.clone(),
        };
        let rules = Rules {
            router,
            router_of_shards,
            limits: HeadLimits {
                bytes_max: settings.head_bytes_max,
                headers_max: settings.headers_max,
            },
            keys: Arc::clone(&self.control.keys),
        };
        let receivers = threads.hand_overs.drain(..).map(Receiver::new);
        let receivers: Vec<Receiver> =
            receivers
                .collect::<io::Result<_>>()
                .map_err(ServerError::system(
                    "watch the sockets between shards and control plane",
                ))?;
        let shards = Shards {
            requests: ShardRequests {
                echo: settings.echo,
                transports: settings.transports,
            },
            way: WayBack::new(&receivers, self.control.mesh.clone()),
        };
        let room = Room::of(self.plan.control_connections);
        let admission = Admission::new(
            rules,
            self.stage.subscribe(),
            self.control.metrics.requests().clone(),
            self.control.metrics.connections().clone(),
            room,
            self.control.unsent_bytes_max,
            Some(shards),
        );
        for receiver in receivers {
            let at_a_time = room.arrivals_at_a_time();
            tokio::spawn(receive(receiver, admission.clone(), at_a_time));
        }
        if let Some(listener) = self.internal.take() {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(ServerError::system("listen internally"))?;
            tokio::spawn(accept(listener, admission.clone()));
        }
        Ok(admission)
    }

    /// All shards accept.
    fn begin(&mut self, threads: Vec<rustix::thread::Pid>) {
        if self.plan.tables == Tables::PerShard {
            self.control.metrics.know_tables(threads);
        }
        self.control.tokens.warm_up();
        self.held = None;
        if let Some(running) = &self.control.tls {
            tls::begin_renewal(running);
        }
        for announcement in self.config.announce.drain(..) {
            tokio::spawn(announce(
                announcement,
                self.control.mesh.clone(),
                Arc::clone(&self.control.publish_log),
                self.stage.subscribe(),
            ));
        }
        tokio::spawn(drain_when_told(
            self.control.mesh.clone(),
            self.stage.subscribe(),
            self.config.drain,
        ));
        if let Some(ready) = self.ready.take() {
            // Whoever started us waits for this; if not, nobody does.
            let _ = ready.send(());
        }
    }

    /// Sends the events that are left, in what the drain leaves of its time, or at least as long as the last answers have.
    async fn finish_webhooks(&mut self, draining_since: Result<Instant, JoinError>) {
        if let Some(webhooks) = self.webhooks.take() {
            let now = Instant::now();
            let since = draining_since.unwrap_or(now);
            let deadline = (since + self.config.drain).max(now + LAST_ANSWERS_TIMEOUT);
            webhooks.finish(deadline).await;
        }
    }

    /// A shard failed. No other shard can do its work, so the rest is told to end at once.
    fn fail(&self, error: ServerError) -> ServerError {
        self.stage.send_replace(Stage::Stopped);
        self.control.mesh.drain(Duration::ZERO);
        error
    }
}

/// Answers the last publishers for ever: a broker answers also when no shard runs any more.
async fn settle_last(control: &Control, events: &mut Letters<ShardEvent>) {
    while let Ok(batch) = events.next().await {
        for event in batch {
            match event {
                ShardEvent::Published { id, position } => {
                    control.api.positions.settle(id, position)
                }
                ShardEvent::Answered { id, answer } => control.api.inquiries.settle(id, answer),
                ShardEvent::Asked(_)
                | ShardEvent::AskedMembers(_)
                | ShardEvent::Ready { .. }
                | ShardEvent::Finished
                | ShardEvent::Failed(_) => {}
            }
        }
    }
    // Without events the others have their time all the same.
    std::future::pending().await
}

/// Waits for events of the shards' threads, and writes the debug log in the meantime.
async fn next_events(
    events: &mut Letters<ShardEvent>,
    log: &mut DebugLog,
) -> io::Result<Vec<ShardEvent>> {
    loop {
        tokio::select! {
            () = log.due() => log.write(),
            batch = events.next() => return batch,
        }
    }
}

/// When the drain begins.
async fn drain_begins(mut stage: watch::Receiver<Stage>) -> Instant {
    // It fails when the server has gone.
    let _ = stage.wait_for(|stage| *stage != Stage::Serving).await;
    Instant::now()
}

/// Begins the drain: gives load balancers a moment to see the failing health check, then closes connections.
async fn drain_when_told(mesh: Mesh, mut stage: watch::Receiver<Stage>, over: Duration) {
    if stage
        .wait_for(|stage| *stage != Stage::Serving)
        .await
        .is_err()
    {
        return;
    }
    tracing::info!(
        "draining: closing connections over {}",
        myriad_units::option::Span(over)
    );
    let grace_ends = Instant::now() + (over / 5).min(GRACE_MAX);
    // A server that nobody is connected to has nobody to spare.
    while is_anybody_connected(&mesh) && Instant::now() < grace_ends {
        tokio::time::sleep_until(grace_ends.min(Instant::now() + GLANCE)).await;
    }
    mesh.drain(over);
}

fn is_anybody_connected(mesh: &Mesh) -> bool {
    let mut shards = mesh.metrics().iter();
    shards.any(|shard| shard.connections.value() > 0)
}

/// How often the server checks whether the last client has gone.
const GLANCE: Duration = Duration::from_millis(20);

/// Wait after an error such as a lack of descriptors or memory. Without it, the loop would spin.
const PAUSE: Duration = Duration::from_millis(100);

/// What follows an error that other connections cause. Calls to applications may have taken the last descriptors: whoever comes next finds
/// one.
async fn recover(error: &io::Error, admission: &Admission) {
    if Errno::from_io_error(error) == Some(Errno::MFILE) && admission.make_room() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes in what one shard hands over, until the shard is gone: so many connections before other tasks run.
async fn receive(mut receiver: Receiver, admission: Admission, arrivals_at_a_time: usize) {
    let mut arrivals: usize = 0;
    loop {
        // What goes wrong with one connection (no memory, no epoll watch left) must not cut its shard off.
        let admitted = match receiver.receive().await {
            Ok(Some(Arrival {
                carried,
                received,
                origin,
            })) => ClientStream::take(carried).map(|stream| {
                admission.admit(stream, Source::Shard { received, origin });
            }),
            Ok(None) => return,
            Err(error) => {
                recover(&error, &admission).await;
                Err(error)
            }
        };
        if let Err(error) = admitted {
            tracing::warn!("a connection from a shard was dropped: {error}");
        }
        arrivals += 1;
        if arrivals.is_multiple_of(arrivals_at_a_time) {
            // Whoever made room leaves now. Yielding more often would let the shards' queue fill up.
            tokio::task::yield_now().await;
        }
    }
}

/// Accepts on the control plane's own address.
async fn accept(listener: tokio::net::TcpListener, admission: Admission) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admission.admit(ClientStream::plain(stream), Source::Listener),
            Err(error) => {
                tracing::warn!("cannot accept on the internal address: {error}");
                recover(&error, &admission).await;
            }
        }
    }
}

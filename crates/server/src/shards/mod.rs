//! Shards on threads.

mod address;
mod plan;

pub(crate) use address::{HeldAddress, backlog, refusal};
pub(crate) use plan::{
    CONTROL_CONNECTIONS_MAX, Plan, Tables, Wanted, choose_driver, enough_rings, plan,
};

use crate::error::ServerError;
use crate::handover::{self, FarEnd, Sender};
use crate::history::DiskOfShard;
use crate::mailbox::{Mailbox, ShardEvent};
use crate::tls::Current;
use myriad_reactor::{Driver, Epoll, Reactor, Setup, Uring, Waker, listen, unshare_descriptors};
use myriad_shard::{Mesh, Now, Settings, Shard, Turn};
use myriad_tls_stage::{Figures, TlsStage, Workers};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What the threads are started with; the same for all of them.
pub(crate) struct Launch {
    pub(crate) plan: Plan,
    pub(crate) address: SocketAddr,
    pub(crate) send_buffer_bytes: u32,
    pub(crate) settings: Settings,
    pub(crate) wakers: Vec<Waker>,
    /// For clients with TLS, and where they connect.
    pub(crate) tls: Option<LaunchTls>,
    /// For each shard its way to the disk, and what the disk has; empty where histories are in memory alone.
    pub(crate) disk: Vec<DiskOfShard>,
}

/// What shards need for clients with TLS.
#[derive(Clone, Debug)]
pub(crate) struct LaunchTls {
    pub(crate) address: SocketAddr,
    pub(crate) current: Current,
    /// They make handshakes that take long.
    pub(crate) workers: Workers,
    /// One for each shard.
    pub(crate) figures: Arc<[Arc<Figures>]>,
}

/// Handshakes that a shard makes at once: 4096 cost some 20 MB. Others wait in line.
const HANDSHAKES_MAX: usize = 4096;

/// The number of the listener for clients with TLS.
const TLS_LISTENER: u8 = 1;

/// The running threads, and the control plane's ends of their hand-over sockets.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) handles: Vec<JoinHandle<()>>,
    pub(crate) hand_overs: Vec<FarEnd>,
    /// The shards' ends: where tables are not shared, this table has a copy of each that nobody else closes.
    _near_ends: Vec<Arc<OwnedFd>>,
}

/// Everything one thread needs.
struct Seat {
    index: usize,
    plan: Plan,
    address: SocketAddr,
    tls: Option<LaunchTls>,
    backlog: u32,
    send_buffer_bytes: u32,
    settings: Settings,
    mesh: Mesh,
    waker: Waker,
    disk: Option<DiskOfShard>,
    sender: Sender,
    mailbox: Arc<Mailbox<ShardEvent>>,
    keep: Vec<RawFd>,
    spread_from: u32,
}

/// Starts one thread per shard. Each posts [`ShardEvent::Ready`] when it accepts.
///
/// # Errors
/// No descriptor, or no thread. Threads that were started already must be drained by the caller.
pub(crate) fn start(
    launch: Launch,
    mesh: &Mesh,
    mailbox: &Arc<Mailbox<ShardEvent>>,
    broker: Option<RawFd>,
) -> Result<Threads, ServerError> {
    let Launch { plan, .. } = launch;
    // All descriptors that threads share come before the first thread: one made after it has unshared is not in its table.
    let pairs: Vec<(Sender, FarEnd)> = (0..plan.shards)
        .map(|_| handover::pair())
        .collect::<io::Result<_>>()
        .map_err(ServerError::system(
            "make the sockets between shards and control plane",
        ))?;
    let wakers = launch.wakers.iter().filter_map(Waker::descriptor);
    let shared: Vec<RawFd> = wakers.chain([mailbox.raw()]).chain(broker).collect();
    let backlog = backlog();
    let mut threads = Threads {
        handles: Vec::new(),
        hand_overs: Vec::new(),
        _near_ends: Vec::new(),
    };
    let mut disk = launch.disk.into_iter();
    for (index, ((sender, far), waker)) in pairs.into_iter().zip(launch.wakers).enumerate() {
        threads.hand_overs.push(far);
        threads._near_ends.push(sender.socket());
        let seat = Seat {
            index,
            plan,
            address: launch.address,
            tls: launch.tls.clone(),
            backlog,
            send_buffer_bytes: launch.send_buffer_bytes,
            settings: launch.settings.clone(),
            mesh: mesh.clone(),
            disk: disk.next(),
            waker,
            keep: shared.iter().copied().chain([sender.raw()]).collect(),
            sender,
            mailbox: Arc::clone(mailbox),
            spread_from: (random_bits()? >> u32::BITS) as u32,
        };
        let thread = std::thread::Builder::new().name(format!("shard-{index}"));
        let handle = thread
            .spawn(move || seat.occupy())
            .map_err(ServerError::system("start a thread"))?;
        threads.handles.push(handle);
    }
    Ok(threads)
}

/// The shards' clock. Not `Instant`, whose zero is hidden: ticks of it would mean nothing to another process.
pub(crate) fn monotonic_now() -> Now {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the clock begins at 0");
    let nanoseconds = u64::try_from(time.tv_nsec).expect("a part of a second");
    Now(seconds * 1_000_000_000 + nanoseconds)
}

/// A random number. It is no secret, but differs between servers that start together.
///
/// # Errors
/// The kernel has none to give.
pub(crate) fn random_bits() -> Result<u64, ServerError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(
        |errno| ServerError::System {
            what: "get random bytes",
            source: errno.into(),
        },
    )?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Says that the thread panicked, unless it is told that it did not.
///
/// The release profile aborts on panic; everywhere else this ends the server instead of leaving half of it.
struct Witness {
    mailbox: Arc<Mailbox<ShardEvent>>,
    index: usize,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = format!("shard {}", self.index);
            self.mailbox
                .post(ShardEvent::Failed(ServerError::Panicked { thread }));
        }
    }
}

impl Seat {
    /// The thread's life.
    fn occupy(self) {
        let mailbox = Arc::clone(&self.mailbox);
        let _witness = Witness {
            mailbox: Arc::clone(&mailbox),
            index: self.index,
        };
        match self.run() {
            Ok(()) => mailbox.post(ShardEvent::Finished),
            Err(error) => mailbox.post(ShardEvent::Failed(error)),
        }
    }

    fn run(self) -> Result<(), ServerError> {
        if self.plan.tables == Tables::PerShard {
            unshare_descriptors(&self.keep).map_err(ServerError::system(
                "give a shard its own descriptor table (unshare)",
            ))?;
        }
        let mut listeners = vec![self.listen(self.address, "listen")?];
        if let Some(tls) = &self.tls {
            listeners.push(self.listen(tls.address, "tls-listen")?);
        }
        let setup = Setup {
            waker: self.waker.clone(),
            listeners,
            sockets_max: self.plan.sockets_per_shard,
            reactors: self.plan.shards,
            speaks_first: false,
        };
        let index = self.index;
        let unusable = ServerError::system("make a shard's event loop");
        let served = match self.plan.driver {
            Driver::IoUring => self.serve(Uring::new(setup).map_err(unusable)?),
            Driver::Epoll => self.serve(Epoll::new(setup).map_err(unusable)?),
        };
        served.map_err(|source| ServerError::Shard { index, source })
    }

    fn listen(&self, address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServerError> {
        let listener = listen(address, self.backlog, Some(self.send_buffer_bytes), true);
        listener.map_err(|source| refusal(address, flag, source))
    }

    fn serve<R: Reactor<Handle = OwnedFd>>(self, sockets: R) -> io::Result<()> {
        let reactor = match &self.tls {
            None => TlsStage::plain(sockets),
            Some(tls) => TlsStage::new(
                sockets,
                myriad_tls_stage::Setup {
                    listener: TLS_LISTENER,
                    offer: Arc::clone(&tls.current),
                    workers: Some((tls.workers.clone(), self.waker.clone())),
                    figures: Arc::clone(&tls.figures[self.index]),
                    handshakes_max: HANDSHAKES_MAX,
                    clock: || Duration::from_nanos(monotonic_now().0),
                },
            ),
        };
        let hand_over = Box::new(self.sender);
        let mut shard = Shard::new(
            self.index,
            reactor,
            self.mesh,
            self.settings,
            hand_over,
            self.spread_from,
            monotonic_now(),
        );
        if let Some((journal, share)) = self.disk {
            let now = monotonic_now();
            let (channels, keys, unix_now_ms) = share.into_parts(now);
            shard = shard.with_journal(journal, channels, keys, unix_now_ms, now);
        }
        self.mailbox.post(ShardEvent::Ready {
            thread: rustix::thread::gettid(),
        });
        loop {
            shard.wait(monotonic_now())?;
            if shard.turn(monotonic_now()) == Turn::Finished {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::monotonic_now;
    use std::process::Command;

    /// Another process's reading lies between two of ours.
    #[test]
    fn every_process_reads_the_same_clock() {
        let script = "import time; print(time.clock_gettime_ns(time.CLOCK_MONOTONIC))";
        let before = monotonic_now();
        let output = Command::new("python3").args(["-c", script]).output();
        let after = monotonic_now();
        let output = output.expect("python3, which the other tests need too");
        let text = String::from_utf8(output.stdout).expect("digits");
        let theirs: u64 = text.trim().parse().expect("nanoseconds");
        assert!((before.0..=after.0).contains(&theirs), "{theirs}");
    }
}

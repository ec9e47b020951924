//! What a driver does per second, both ends on this machine: connections, pushes, round trips, closes.
//!
//! ```text
//! cargo run --release -p myriad-reactor --example reactor_bench -- io_uring 20000 epoll
//! ```
//!
//! The first argument is the server's driver, the last the crowd's.

use myriad_reactor::{
    Close, Completion, Completions, Epoll, Reactor, SendOp, Sent, Setup, Socket, Token, Uring,
    Waker, listen,
};
use rustix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MESSAGE: [u8; 32] = *b"one push, 32 bytes, to everyone.";
const PUSHES: usize = 10;
const ECHO_ROUNDS: usize = 10;
const BATCH: usize = 4096;
/// Attempts under way: the server's queue holds 4096, and whoever does not fit tries again a second later.
const UNDER_WAY_MAX: usize = 500;
/// Connections per source address: the kernel's search for a port slows down as a range fills.
const PER_SOURCE: u32 = 2_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How far the two sides are; each waits for the other through these.
#[derive(Default)]
struct Progress {
    registered: AtomicUsize,
    heard: AtomicUsize,
    echoed: AtomicUsize,
    gone: AtomicUsize,
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (server, count, crowd) = (next("io_uring"), next("10000").parse()?, next("io_uring"));
    println!("server {server}, crowd {crowd}, {count} connections");
    match server.as_str() {
        "epoll" => run(Epoll::new, count, crowd),
        "io_uring" => run(Uring::new, count, crowd),
        other => Err(format!("unknown driver {other}: io_uring or epoll").into()),
    }
}

fn run<R: Reactor>(
    make: fn(Setup) -> std::io::Result<R>,
    count: u32,
    driver: String,
) -> Result<(), Failure> {
    let listener = listen(([127, 0, 0, 1], 0).into(), 4096, None, false)?;
    let target = listener.local_addr()?;
    let progress = Arc::new(Progress::default());
    let setup = Setup {
        waker: Waker::new()?,
        listeners: vec![listener],
        sockets_max: count as usize + 1,
        reactors: 1,
        speaks_first: false,
    };
    let shared = progress.clone();
    let crowd = std::thread::spawn(move || {
        let outcome = match driver.as_str() {
            "epoll" => crowd(Epoll::new, target, count, &shared),
            _ => crowd(Uring::new, target, count, &shared),
        };
        if let Err(why) = outcome {
            // The server would wait for it without end.
            eprintln!("the crowd broke down: {why}");
            std::process::exit(1);
        }
    });
    serve(make(setup)?, count as usize, &progress)?;
    crowd.join().map_err(|_| "the crowd broke down".into())
}

/// Wall clock and this thread's processor time since a moment.
struct Stopwatch(Instant, Duration);

impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now(), thread_time())
    }

    fn report(&self, what: &str, count: usize) {
        let (wall, cpu) = (self.0.elapsed(), thread_time() - self.1);
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{what:>12}: {count} in {wall:.3?}, {:.0}/s; server {:.2} us of processor time each",
            1e6 / each(wall),
            each(cpu)
        );
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).expect("below 10^9"),
    )
}

fn serve<R: Reactor>(mut reactor: R, count: usize, progress: &Progress) -> Result<(), Failure> {
    let mut completions = Completions::new();
    let mut sockets: Vec<Socket> = Vec::with_capacity(count);
    reactor.accept(true);
    let watch = Stopwatch::start();
    while sockets.len() < count {
        reactor.wait(None, &mut completions)?;
        for completion in &completions.list {
            if let Completion::Accepted { socket, .. } = completion {
                reactor.register(*socket, token(sockets.len()));
                sockets.push(*socket);
            }
        }
        progress.registered.store(sockets.len(), Ordering::Release);
    }
    watch.report("accepts", count);
    while progress.heard.load(Ordering::Acquire) == 0 {
        reactor.wait(Some(Duration::from_millis(1)), &mut completions)?;
    }

    let watch = Stopwatch::start();
    for _ in 0..PUSHES {
        let started = progress.heard.load(Ordering::Acquire);
        for some in sockets.chunks(BATCH) {
            push(&mut reactor, some)?;
        }
        while progress.heard.load(Ordering::Acquire) < started + count {
            // Slept, so that the processor time is that of the sends.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    watch.report("sends", PUSHES * count);

    progress.echoed.store(1, Ordering::Release);
    let watch = Stopwatch::start();
    echo(
        &mut reactor,
        &mut completions,
        &sockets,
        ECHO_ROUNDS * count,
    )?;
    watch.report("echoes", ECHO_ROUNDS * count);

    let watch = Stopwatch::start();
    for (index, socket) in sockets.iter().enumerate() {
        reactor.close(*socket, token(index), Close::Orderly);
    }
    reactor.wait(Some(Duration::ZERO), &mut completions)?;
    while progress.gone.load(Ordering::Acquire) < count {
        reactor.wait(Some(Duration::from_millis(1)), &mut completions)?;
    }
    watch.report("closes", count);
    Ok(())
}

fn push<R: Reactor>(reactor: &mut R, sockets: &[Socket]) -> Result<(), Failure> {
    let mut ops: Vec<SendOp<'_>> = sockets
        .iter()
        .map(|socket| SendOp::new(*socket, &MESSAGE))
        .collect();
    reactor.send_batch(&mut ops);
    match ops.iter().find(|op| op.sent != Sent::All) {
        Some(op) => Err(format!("a push was not taken: {:?}", op.sent).into()),
        None => Ok(()),
    }
}

fn echo<R: Reactor>(
    reactor: &mut R,
    completions: &mut Completions,
    sockets: &[Socket],
    count: usize,
) -> Result<(), Failure> {
    let mut echoed = 0;
    while echoed < count {
        reactor.wait(None, completions)?;
        let (list, buffer) = (&completions.list, &completions.buffer);
        let received = list.iter().filter_map(|completion| match completion {
            Completion::Received { token, range } => {
                Some((sockets[token.index as usize], range.clone()))
            }
            _ => None,
        });
        let mut ops: Vec<SendOp<'_>> = received
            .map(|(socket, range)| SendOp::new(socket, &buffer[range]))
            .collect();
        reactor.send_batch(&mut ops);
        echoed += ops.len();
    }
    Ok(())
}

fn token(index: usize) -> Token {
    Token {
        index: u32::try_from(index).expect("counts are u32"),
        generation: 0,
    }
}

/// Connects, listens to the pushes, plays ping-pong, and sees everybody off.
fn crowd<R: Reactor>(
    make: fn(Setup) -> std::io::Result<R>,
    target: SocketAddr,
    count: u32,
    progress: &Progress,
) -> Result<(), Failure> {
    let setup = Setup {
        waker: Waker::new()?,
        listeners: Vec::new(),
        sockets_max: count as usize,
        reactors: 1,
        speaks_first: false,
    };
    let mut reactor = make(setup)?;
    let mut completions = Completions::new();
    let sockets = connect_all(&mut reactor, &mut completions, target, count)?;
    while progress.registered.load(Ordering::Acquire) < sockets.len() {
        std::thread::sleep(Duration::from_millis(1));
    }

    progress.heard.store(1, Ordering::Release);
    let mut bytes = 0;
    while bytes < PUSHES * sockets.len() * MESSAGE.len() {
        reactor.wait(None, &mut completions)?;
        bytes += received(&completions)
            .map(|(_, length)| length)
            .sum::<usize>();
        progress
            .heard
            .store(1 + bytes / MESSAGE.len(), Ordering::Release);
    }
    while progress.echoed.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }

    let mut gone = play(&mut reactor, &mut completions, &sockets)?;
    loop {
        progress.gone.store(gone, Ordering::Release);
        if gone == sockets.len() {
            return Ok(());
        }
        reactor.wait(None, &mut completions)?;
        gone += finished(&completions);
    }
}

fn connect_all<R: Reactor>(
    reactor: &mut R,
    completions: &mut Completions,
    target: SocketAddr,
    count: u32,
) -> Result<Vec<Socket>, Failure> {
    let mut sockets: Vec<Socket> = Vec::with_capacity(count as usize);
    let mut connected = 0;
    while connected < count as usize {
        while sockets.len() < count as usize && sockets.len() - connected < UNDER_WAY_MAX {
            let index = u32::try_from(sockets.len())?;
            let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + 1 + index / PER_SOURCE);
            sockets.push(reactor.connect(
                token(sockets.len()),
                Some((source, 0).into()),
                target,
            )?);
        }
        reactor.wait(None, completions)?;
        for completion in &completions.list {
            match completion {
                Completion::Connected { token } => {
                    reactor.register(sockets[token.index as usize], *token);
                    connected += 1;
                }
                Completion::ConnectFailed { errno, .. } => {
                    return Err(std::io::Error::from_raw_os_error(*errno).into());
                }
                _ => {}
            }
        }
    }
    reactor.wait(Some(Duration::ZERO), completions)?;
    Ok(sockets)
}

/// Everybody says something, and again at each answer; returns who was seen leaving, because the server
/// closes while the last answers are on their way.
fn play<R: Reactor>(
    reactor: &mut R,
    completions: &mut Completions,
    sockets: &[Socket],
) -> Result<usize, Failure> {
    for some in sockets.chunks(BATCH) {
        push(reactor, some)?;
    }
    let (mut asked, mut answered, mut gone) = (sockets.len(), 0, 0);
    while answered < ECHO_ROUNDS * sockets.len() {
        reactor.wait(None, completions)?;
        gone += finished(completions);
        let mut some: Vec<Socket> = received(completions)
            .map(|(token, _)| sockets[token.index as usize])
            .collect();
        answered += some.len();
        some.truncate(ECHO_ROUNDS * sockets.len() - asked);
        asked += some.len();
        push(reactor, &some)?;
    }
    Ok(gone)
}

fn finished(completions: &Completions) -> usize {
    completions
        .list
        .iter()
        .filter(|completion| matches!(completion, Completion::Finished { .. }))
        .count()
}

fn received(completions: &Completions) -> impl Iterator<Item = (Token, usize)> + '_ {
    completions
        .list
        .iter()
        .filter_map(|completion| match completion {
            Completion::Received { token, range } => Some((*token, range.len())),
            _ => None,
        })
}

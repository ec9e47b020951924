//! The crowd for contestants without WebSockets: it holds connections, or requests without an answer.
//!
//! These contestants speak protocols of their own, which `myriad swarm` does not know. So this crowd consists of plain sockets of
//! this process, as many as it has descriptors. It measures the server's memory and idle CPU. It has no figure for the rate of
//! connecting: that would be the rate of this loop, and not comparable.

use crate::failure::{Failure, Phase};
use crate::figures::Column;
use crate::manifest::Kind;
use crate::scenario::{Attempt, Round};
use crate::server::{Mode, Server, float};
use myriad_units::count;
use myriad_usage::Memory;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Descriptors kept for other uses.
const SPARE: u64 = 200;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(1);
/// How often the guard is checked.
const CHECK_EVERY: usize = 1_000;

/// A round: up to a quarter, up to the whole, idle, down.
pub(crate) fn run(attempt: &mut Attempt<'_, '_>) -> Result<(), Failure> {
    let connections = attempt.plan.connections.min(room());
    if connections < attempt.plan.connections {
        attempt.round.warnings.push(format!(
            "its crowd was {}: the arena's own process holds these sockets and has descriptors for no more",
            count(connections)
        ));
        attempt.plan.connections = connections;
    }
    let mut server = attempt.serve(Mode::Push)?;
    attempt.round.note_start(&server);
    let mut held = HeldSockets {
        kind: attempt.contestant.kind,
        addresses: server.addresses(),
        sockets: Vec::new(),
    };
    warm_up(attempt, &mut held, &mut server)?;
    let base = server.memory();

    attempt.enter(Phase::Quarter);
    let few = (connections / 4).max(1);
    held.grow_to(few, &mut server, Phase::Quarter)?;
    let quarter = settled(&mut server, Phase::Quarter)?;

    attempt.enter(Phase::CrowdUp);
    held.grow_to(connections, &mut server, Phase::CrowdUp)?;
    let whole = settled(&mut server, Phase::CrowdUp)?;
    note_memory(attempt.round, base, (few, quarter), (connections, whole));

    attempt.enter(Phase::Idle);
    let (cpu_s, began) = (server.cpu_s(), Instant::now());
    wait(attempt.plan.idle, &mut server, Phase::Idle)?;
    let used_s = server.cpu_s() - cpu_s;
    let share = used_s / began.elapsed().as_secs_f64();
    attempt.round.figures.insert(Column::IdleCpuShare, share);
    server.wait_for_connections(connections, Phase::Idle)?;

    attempt.enter(Phase::CrowdDown);
    let began = Instant::now();
    held.sockets.clear();
    server.wait_for_connections(0, Phase::CrowdDown)?;
    attempt.round.figures.extend([
        (Column::CrowdDownS, began.elapsed().as_secs_f64()),
        (Column::ConnectionsHeld, float(connections)),
        (Column::Errors, 0.0),
    ]);
    server.stop();
    Ok(())
}

/// The warm-up: as many connections as the manifest asks for, until the server has none again.
fn warm_up(
    attempt: &mut Attempt<'_, '_>,
    held: &mut HeldSockets,
    server: &mut Server<'_>,
) -> Result<(), Failure> {
    let wanted = attempt.contestant.warm_up.connections;
    let connections = wanted.min(attempt.plan.connections);
    if connections == 0 {
        return Ok(());
    }
    attempt.enter(Phase::WarmUp);
    held.grow_to(connections, server, Phase::WarmUp)?;
    held.sockets.clear();
    server.wait_for_connections(0, Phase::WarmUp)?;
    Ok(())
}

/// Sockets that this process may still open.
fn room() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX).saturating_sub(SPARE)
}

struct HeldSockets {
    kind: Kind,
    addresses: Vec<SocketAddr>,
    sockets: Vec<TcpStream>,
}

impl HeldSockets {
    /// Opens connections to the addresses in turn until there are so many, and waits until the server has seen all.
    fn grow_to(
        &mut self,
        wanted: u64,
        server: &mut Server<'_>,
        phase: Phase,
    ) -> Result<(), Failure> {
        let target = usize::try_from(wanted).unwrap_or(usize::MAX);
        while self.sockets.len() < target {
            if self.sockets.len().is_multiple_of(CHECK_EVERY) {
                server.check(phase)?;
            }
            let index = self.sockets.len();
            let socket = self.open(index).map_err(|error| Failure::Crowd {
                phase,
                why: format!("connection {}: {error}", index + 1),
            })?;
            self.sockets.push(socket);
        }
        server.wait_for_connections(wanted, phase)?;
        Ok(())
    }

    fn open(&self, index: usize) -> std::io::Result<TcpStream> {
        let address = self.addresses[index % self.addresses.len()];
        let mut socket = TcpStream::connect_timeout(&address, CONNECT_PATIENCE)?;
        if self.kind == Kind::Longpoll {
            let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
            socket.write_all(request.as_bytes())?;
        }
        Ok(socket)
    }
}

fn settled(server: &mut Server<'_>, phase: Phase) -> Result<Memory, Failure> {
    wait(SETTLE, server, phase)?;
    Ok(server.memory())
}

fn wait(time: Duration, server: &mut Server<'_>, phase: Phase) -> Result<(), Failure> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::sleep(left.min(Duration::from_millis(200)));
        server.check(phase)?;
    }
    Ok(())
}

fn note_memory(round: &mut Round, base: Memory, few: (u64, Memory), many: (u64, Memory)) {
    let figures = &mut round.figures;
    figures.insert(Column::UserBaseBytes, base.pss_bytes);
    figures.insert(Column::RssBaseBytes, base.rss_bytes);
    figures.insert(Column::UserBytes, many.1.pss_bytes);
    figures.insert(Column::RssBytes, many.1.rss_bytes);
    let more = many.0.saturating_sub(few.0);
    if more > 0 {
        let slope = |few: f64, many: f64| (many - few) / float(more);
        let user = slope(few.1.pss_bytes, many.1.pss_bytes);
        let rss = slope(few.1.rss_bytes, many.1.rss_bytes);
        figures.insert(Column::UserBytesPerConnection, user);
        figures.insert(Column::RssBytesPerConnection, rss);
    }
}

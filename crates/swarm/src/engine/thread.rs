//! A thread of the crowd: makes its reactor, then takes turns until everything is closed.

use crate::clock::{Clock as _, RunClock};
use crate::engine::crowd::{Crowd, Turned};
use crate::engine::plan::Plan;
use crate::engine::shared::{Fatal, Shared, Stage};
use crate::engine::tls::TlsReactor;
use myriad_reactor::{Driver, Epoll, Reactor, Setup, Uring, Waker, unshare_descriptors};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Descriptors of a table that are not terminals: stdio, the reactor's own, and some to spare.
pub(crate) const DESCRIPTORS_SPARE: usize = 64;

/// Whether threads share the process's descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// One table is enough for all.
    Shared,
    /// Each thread has its own (`unshare(CLONE_FILES)`), because RLIMIT_NOFILE bounds a table and not a process.
    Own,
}

/// Starts the thread of one part.
pub(crate) fn spawn(
    plan: Arc<Plan>,
    thread: u32,
    driver: Driver,
    tables: Tables,
    shared: Arc<Shared>,
    clock: RunClock,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("crowd-{thread}"))
        .spawn(move || {
            let outcome = run(plan, thread, driver, tables, &shared, clock);
            let mut account = shared.account(thread as usize);
            account.stage = Stage::Gone;
            account.fatal = outcome.err().map(|error| Fatal::Reactor(error.to_string()));
        })
}

fn run(
    plan: Arc<Plan>,
    thread: u32,
    driver: Driver,
    tables: Tables,
    shared: &Arc<Shared>,
    clock: RunClock,
) -> io::Result<()> {
    if tables == Tables::Own {
        unshare_descriptors(&[])?;
    }
    // Made after the table is this thread's own, or it would be lost with the old one. Nobody else holds
    // it: orders come through an atomic that every turn looks at.
    let waker = Waker::new()?;
    let sockets_max = plan.sockets_max(plan.part(thread));
    let setup = Setup {
        waker,
        listeners: Vec::new(),
        sockets_max,
        reactors: plan.deal.own().threads as usize,
        speaks_first: plan.speaks_first(),
    };
    if plan.has_secure_targets() {
        // A call through a table costs nothing beside encryption, and saves a copy of all that terminals do.
        let sockets: Box<dyn Reactor<Handle = OwnedFd>> = match driver {
            Driver::IoUring => Box::new(Uring::new(setup)?),
            Driver::Epoll => Box::new(Epoll::new(setup)?),
        };
        let part = plan.part(thread);
        let reactor = TlsReactor::new(sockets, Arc::clone(&plan), part, Arc::clone(shared));
        return turns(reactor, plan, thread, shared, clock);
    }
    match driver {
        Driver::IoUring => turns(Uring::new(setup)?, plan, thread, shared, clock),
        Driver::Epoll => turns(Epoll::new(setup)?, plan, thread, shared, clock),
    }
}

fn turns<R: Reactor>(
    reactor: R,
    plan: Arc<Plan>,
    thread: u32,
    shared: &Arc<Shared>,
    clock: RunClock,
) -> io::Result<()> {
    let part = plan.part(thread);
    let mut crowd = Crowd::new(reactor, plan, part, Arc::clone(shared), clock.now());
    while crowd.turn(&clock)? == Turned::Running {}
    Ok(())
}

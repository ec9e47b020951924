//! Outgoing connections. The ring makes, binds and connects the socket: no ordinary descriptor and no extra system
//! call is needed.

use super::super::outgoing;
use super::super::slots::SlotFlag;
use super::Uring;
use super::operations::Addresses;
use super::ring::Ring;
use crate::{Socket, Token};
use rustix::io::Errno;
use socket2::SockAddr;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of connects queued between two submissions.
const ADDRESSES_MAX: usize = 64;
/// Maximum number of source addresses remembered as bindable.
const SOURCES_MAX: usize = 65_536;

/// Addresses that the kernel reads during connects, and source addresses known to be bindable.
#[derive(Default)]
pub(super) struct Outgoing {
    /// They stay in place until every ring has submitted.
    addresses: Vec<Addresses>,
    /// Source addresses that could be bound. Each address is tried once by a system call, because a ring reports a
    /// failed bind only after the next step, the connect, has started from the wrong address.
    bindable: HashSet<IpAddr>,
    speaks_first: bool,
}

impl Outgoing {
    pub(super) fn new(speaks_first: bool) -> Self {
        Self {
            speaks_first,
            ..Self::default()
        }
    }

    /// Drops the addresses if the kernel has read all of them.
    pub(super) fn reclaim(&mut self, rings: &mut [Ring]) {
        if !self.addresses.is_empty() && rings.iter_mut().all(Ring::is_submitted) {
            self.addresses.clear();
        }
    }

    fn check_source(&mut self, source: SocketAddr, target: SocketAddr) -> io::Result<()> {
        if !self.bindable.contains(&source.ip()) {
            drop(outgoing::open(Some(source), target, false)?);
            if self.bindable.len() < SOURCES_MAX {
                self.bindable.insert(source.ip());
            }
        }
        Ok(())
    }
}

impl Uring {
    pub(super) fn start_connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        outgoing::check_families(source, target)?;
        if let Some(source) = source {
            self.outgoing.check_source(source, target)?;
        }
        if self.outgoing.addresses.len() == ADDRESSES_MAX {
            self.submit_connects()?;
        }
        let table = self.table_with_room()?;
        let ring = &mut self.rings[table];
        let slot = ring.reserve().ok_or(Errno::MFILE)?;
        ring.slots.open(slot);
        ring.slots.set(slot, SlotFlag::Connecting);
        self.outgoing
            .addresses
            .reserve_exact(ADDRESSES_MAX - self.outgoing.addresses.len());
        self.outgoing.addresses.push(Addresses {
            source: source.map(SockAddr::from),
            target: target.into(),
            speaks_first: self.outgoing.speaks_first,
        });
        let addresses = self.outgoing.addresses.last().expect("one was just pushed");
        // SAFETY: the addresses stay in place, within the capacity reserved above, until `reclaim` finds
        // that everything is submitted; and they are dropped with the ring.
        let queued = unsafe { ring.connect(slot, token, addresses, &mut self.state) };
        if let Err(errno) = queued {
            // The connect is the last step, so it is the one that was not queued.
            ring.slots.take(slot, SlotFlag::Connecting);
            ring.cancel_and_close(slot, token);
            return Err(errno.into());
        }
        Ok(Socket::new(table, slot))
    }

    fn submit_connects(&mut self) -> io::Result<()> {
        for ring in &mut self.rings {
            if !ring.is_submitted() {
                ring.submit(&mut self.state)?;
            }
        }
        self.outgoing.reclaim(&mut self.rings);
        if self.outgoing.addresses.len() == ADDRESSES_MAX {
            Err(Errno::AGAIN.into())
        } else {
            Ok(())
        }
    }
}

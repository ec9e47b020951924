//! Outgoing connections, made by the ring from the socket on: no ordinary descriptor and no system call
//! of their own.

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

/// Connects queued between two submissions.
const ADDRESSES_MAX: usize = 64;
/// Source addresses remembered as usable.
const SOURCES_MAX: usize = 65_536;

/// What connects lend to the kernel, and what they have learnt.
#[derive(Default)]
pub(super) struct Outgoing {
    /// In place until every ring has submitted.
    addresses: Vec<Addresses>,
    /// Source addresses that could be bound. A bind queued in a ring reports its failure only after the
    /// connect behind it has started, from the wrong address; so each is tried once before.
    bindable: HashSet<IpAddr>,
}

impl Outgoing {
    /// Forgets the addresses if the kernel has read them all.
    pub(super) fn reclaim(&mut self, rings: &mut [Ring]) {
        if !self.addresses.is_empty() && rings.iter_mut().all(Ring::is_submitted) {
            self.addresses.clear();
        }
    }

    fn check_source(&mut self, source: SocketAddr, target: SocketAddr) -> io::Result<()> {
        if !self.bindable.contains(&source.ip()) {
            drop(outgoing::open(Some(source), target)?);
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
        });
        let addresses = self.outgoing.addresses.last().expect("one was just pushed");
        // SAFETY: the addresses stay in place, within the capacity reserved above, until `reclaim` finds
        // that everything is submitted; and they are dropped with the ring.
        let queued = unsafe { ring.connect(slot, token, addresses, &mut self.state) };
        if let Err(errno) = queued {
            // The connect itself is what was not queued, as the last of the steps.
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

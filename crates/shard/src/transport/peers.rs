//! Where clients come from. Changes `peers` and `inputs`; counts addresses in `mesh`.
//!
//! Nobody looks at addresses unless a limit or a proxy needs them. Then a connection is judged at one of three moments: when it
//! is accepted, when the header of the PROXY protocol is whole, or when its request says who is behind a trusted proxy. One that
//! comes back from the control plane is judged again, but does not count as one that begins.

use super::refusals::Refused;
use crate::limits::Limit;
use crate::shard::{Origin, Shard};
use myriad_hub::{AddressKey, Arrival, Excess, Now};
use myriad_reactor::{Completion, Reactor, Socket};
use myriad_wheel::Key;
use myriad_wire::http::RequestHead;
use myriad_wire::peer::{forwarded_address, parse_proxy_header};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// What a shard knows of its clients' addresses. Empty while nobody needs them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By the index of the connection.
    known: HashMap<u32, Peer>,
    /// Addresses of the sockets that this turn's completions say were accepted, in their order.
    arrivals: VecDeque<Option<IpAddr>>,
}

impl Peers {
    /// Connections whose address is kept, for checks.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// One connection's address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The client's; that of a proxy until it has said who its client is.
    address: IpAddr,
    /// A header of the PROXY protocol named the address. A connection that changes hands keeps it.
    is_named: bool,
    /// The trusted proxy whose connection it is, once a request has named a client.
    proxy: Option<IpAddr>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// A trusted proxy's, which must send a header of the PROXY protocol first.
    AwaitsHeader,
    /// A trusted proxy's, whose request may name the client.
    Proxy,
    /// The same. An earlier request was counted for the client at this address.
    ProxyCountedFor(IpAddr),
    /// Not counted.
    Free,
    /// Counted among those of its address.
    Counted,
    /// To be refused.
    Refused(Excess),
}

impl Peer {
    fn new(address: IpAddr, standing: Standing) -> Self {
        Self {
            address,
            is_named: false,
            proxy: None,
            standing,
        }
    }

    /// Why it is to be refused.
    pub(crate) fn refusal(self) -> Option<Limit> {
        match self.standing {
            Standing::Refused(excess) => Some(limit_of(excess)),
            _ => None,
        }
    }
}

fn limit_of(excess: Excess) -> Limit {
    match excess {
        Excess::Open => Limit::ConnectionsPerAddress,
        Excess::Rate => Limit::ConnectionRatePerAddress,
    }
}

/// What becomes of a connection that was accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judged {
    /// It goes on, and this is to be kept of it.
    Kept(Option<Peer>),
    /// Its address has been answered often enough.
    Ignored,
}

impl<R: Reactor> Shard<R> {
    /// Asks for the addresses of the sockets that were accepted, if somebody needs them.
    pub(crate) fn note_arrivals(&mut self, completions: &[Completion]) {
        if self.looks_at_no_address() {
            return;
        }
        let accepted = completions
            .iter()
            .filter_map(|completion| match completion {
                Completion::Accepted { socket, .. } => Some(*socket),
                _ => None,
            });
        let sockets: Vec<Socket> = accepted.collect();
        if sockets.is_empty() {
            return;
        }
        let mut addresses = Vec::with_capacity(sockets.len());
        self.reactor.peer_addresses(&sockets, &mut addresses);
        let addresses = addresses.into_iter();
        self.peers
            .arrivals
            .extend(addresses.map(|address| address.map(|address| address.ip().to_canonical())));
    }

    fn looks_at_no_address(&self) -> bool {
        let allowance = self.settings.limits.of_address();
        allowance.is_unlimited() && self.settings.proxies.networks.is_empty()
    }

    /// Judges the next of the connections that were accepted.
    pub(crate) fn judge_arrival(&mut self, now: Now) -> Judged {
        let Some(address) = self.peers.arrivals.pop_front().flatten() else {
            return Judged::Kept(None);
        };
        let proxies = &self.settings.proxies;
        let kept = |standing| Judged::Kept(Some(Peer::new(address, standing)));
        if proxies.networks.contains(address) {
            return kept(if proxies.proxy_protocol {
                Standing::AwaitsHeader
            } else {
                Standing::Proxy
            });
        }
        match self.count(address, false, now) {
            None => Judged::Kept(None),
            Some(Arrival::Admitted) => kept(Standing::Counted),
            Some(Arrival::Refused(excess)) => kept(Standing::Refused(excess)),
            Some(Arrival::Ignored(_)) => Judged::Ignored,
        }
    }

    /// What a connection takes along when it goes to the control plane.
    pub(super) fn origin(&self, key: Key) -> Origin {
        let Some(peer) = self.peer(key) else {
            return Origin::default();
        };
        let is_counted = peer.standing == Standing::Counted;
        Origin {
            address: (peer.is_named || is_counted).then_some(peer.address),
            is_named: peer.is_named,
            is_counted,
            ..Origin::default()
        }
    }

    /// Judges a connection that comes back from the control plane. Its address is that of the socket, or the one that the PROXY
    /// protocol has named. A proxy without that protocol may send another client's request next, so its request is looked at
    /// again.
    pub(super) fn judge_returned(
        &mut self,
        socket: Socket,
        origin: Origin,
        now: Now,
    ) -> Option<Peer> {
        if self.looks_at_no_address() {
            return None;
        }
        let is_named = origin.is_named;
        let address = match origin.address.filter(|_| is_named) {
            Some(address) => address,
            None => self.address_of(socket)?,
        };
        let is_of_proxy = self.settings.proxies.networks.contains(address);
        let judged = if is_of_proxy {
            let counted = origin.address.filter(|_| origin.is_counted);
            let standing = counted.map_or(Standing::Proxy, Standing::ProxyCountedFor);
            Peer::new(address, standing)
        } else {
            self.judge_client(address, origin.is_counted, now)
        };
        let is_worth_keeping = is_named || judged.standing != Standing::Free;
        is_worth_keeping.then_some(Peer { is_named, ..judged })
    }

    /// Counts one more connection of an address; none if nobody counts those. With `is_again` it has begun before.
    fn count(&self, address: IpAddr, is_again: bool, now: Now) -> Option<Arrival> {
        let limits = &self.settings.limits;
        let mut allowance = limits.of_address();
        if allowance.is_unlimited() || limits.unlimited_addresses.contains(address) {
            return None;
        }
        if is_again {
            allowance.rate = None;
        }
        let tallies = self.mesh.tallies();
        let arrival = tallies.addresses.arrive(&address.into(), allowance, now);
        if let Arrival::Refused(excess) | Arrival::Ignored(excess) = arrival {
            self.metrics().count_limited(limit_of(excess));
        }
        Some(arrival)
    }

    /// What is known of a client that a proxy has named. It is told why it is refused, however often: the proxy takes the answers.
    fn judge_client(&self, address: IpAddr, is_again: bool, now: Now) -> Peer {
        let standing = match self.count(address, is_again, now) {
            None => Standing::Free,
            Some(Arrival::Admitted) => Standing::Counted,
            Some(Arrival::Refused(excess) | Arrival::Ignored(excess)) => Standing::Refused(excess),
        };
        Peer::new(address, standing)
    }

    /// Keeps what is known of a connection.
    pub(crate) fn keep_peer(&mut self, key: Key, peer: Peer) {
        self.peers.known.insert(key.index, peer);
    }

    /// What is known of a connection.
    pub(super) fn peer(&self, key: Key) -> Option<Peer> {
        self.peers.known.get(&key.index).copied()
    }

    /// A connection that was accepted gets no record.
    pub(crate) fn drop_peer(&self, peer: Peer) {
        if peer.standing == Standing::Counted {
            let key = AddressKey::from(peer.address);
            self.mesh.tallies().addresses.leave(&key);
        }
    }

    /// The record of a connection is freed.
    pub(crate) fn forget_peer(&mut self, key: Key) {
        if self.peers.known.is_empty() {
            return;
        }
        if let Some(peer) = self.peers.known.remove(&key.index) {
            self.drop_peer(peer);
        }
    }

    /// The address of a client, as far as it is known.
    pub(crate) fn client_address(&mut self, key: Key) -> Option<IpAddr> {
        if let Some(peer) = self.peer(key) {
            return Some(peer.address);
        }
        self.address_of(Socket::from_bits(self.hub.connection(key.index).socket))
    }

    /// The client of a request, if a trusted proxy has named it.
    pub(crate) fn forwarded_client(&self, key: Key) -> Option<IpAddr> {
        let peer = self.peer(key)?;
        peer.proxy.map(|_| peer.address)
    }

    fn address_of(&mut self, socket: Socket) -> Option<IpAddr> {
        let mut addresses = Vec::with_capacity(1);
        self.reactor.peer_addresses(&[socket], &mut addresses);
        addresses
            .pop()
            .flatten()
            .map(|address| address.ip().to_canonical())
    }

    /// Takes the header of the PROXY protocol off the front of a connection, if there has to be one. Returns its bytes; none
    /// while it is not whole, or if the connection ends for it.
    pub(super) fn take_proxy_header(&mut self, key: Key, bytes: &[u8], now: Now) -> Option<usize> {
        if self.peers.known.is_empty() {
            return Some(0);
        }
        let peer = self.peer(key);
        let Some(peer) = peer.filter(|peer| peer.standing == Standing::AwaitsHeader) else {
            return Some(0);
        };
        let header = match parse_proxy_header(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => {
                self.keep_head(key, bytes, now);
                return None;
            }
            Err(error) => {
                self.refuse(key, error.into(), now);
                return None;
            }
        };
        let known = match header.source {
            // The proxy itself asks, for our health.
            None => Peer {
                standing: Standing::Free,
                ..peer
            },
            Some(address) if self.settings.proxies.networks.contains(address) => {
                Peer::new(address, Standing::Proxy)
            }
            Some(address) => self.judge_client(address, false, now),
        };
        let is_named = true;
        self.keep_peer(key, Peer { is_named, ..known });
        // The client has not sent anything, if nothing follows.
        (header.bytes < bytes.len()).then_some(header.bytes)
    }

    /// Notes whom a request of a trusted proxy is for.
    pub(super) fn note_forwarded(&mut self, key: Key, head: &RequestHead<'_>, now: Now) {
        if self.peers.known.is_empty() {
            return;
        }
        let Some(peer) = self.peer(key) else {
            return;
        };
        let counted = match peer.standing {
            Standing::Proxy => None,
            Standing::ProxyCountedFor(client) => Some(client),
            _ => return,
        };
        let proxies = &self.settings.proxies;
        if let Some(address) = forwarded_address(head, proxies.header, &proxies.networks) {
            // The same client's next request is no other connection.
            let known = self.judge_client(address, counted == Some(address), now);
            let proxy = Some(peer.address);
            self.keep_peer(key, Peer { proxy, ..known });
        }
    }

    /// A request is answered and its connection kept: the next one of a trusted proxy's may be another client's.
    pub(crate) fn await_forwarded(&mut self, key: Key) {
        let Some(peer) = self.peer(key) else {
            return;
        };
        let Some(proxy) = peer.proxy else {
            return;
        };
        self.drop_peer(peer);
        let standing = match peer.standing {
            Standing::Counted => Standing::ProxyCountedFor(peer.address),
            _ => Standing::Proxy,
        };
        self.keep_peer(key, Peer::new(proxy, standing));
    }

    /// Why a connection is to be refused for its address.
    pub(super) fn refused_address(&self, key: Key) -> Option<Refused> {
        let limit = self.peer(key)?.refusal()?;
        Some(Refused::limited(limit))
    }
}

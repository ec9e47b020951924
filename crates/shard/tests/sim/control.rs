//! A control plane of a few lines: takes what shards hand over, reads the request whole, answers. Some connections it hands back
//! instead, at any moment.

use crate::secured::Net;
use myriad_reactor::sim::{PeerId, Prng, SimHandle};
use myriad_shard::{HandOver, HandedBack, Mesh, Origin, TurnedAway};
use myriad_tls_stage::Carried;
use myriad_wire::http::write_response;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// Bytes of an answer, at most.
pub(crate) const ANSWER_BYTES_MAX: u64 = 200;

#[derive(Debug)]
pub(crate) struct ControlPlane {
    net: Net,
    held: Vec<(Carried<SimHandle>, Vec<u8>)>,
    /// Connections whose request is for a shard, and what was read of it.
    leaving: Vec<(Carried<SimHandle>, Vec<u8>)>,
    /// Connections that have their answer, but for what the socket has not taken.
    ending: Vec<Carried<SimHandle>>,
    /// By shard: what it has not taken back yet. None once the shard has ended.
    returned: Vec<Option<VecDeque<HandedBack<Carried<SimHandle>>>>>,
    pub(crate) taken: u64,
    /// Connections that no shard took.
    pub(crate) turned_away: u64,
    /// It is sometimes full.
    prng: Prng,
    pub(crate) refuses: bool,
}

/// Whether a connection has TLS and cannot go on.
fn is_over(handle: &Carried<SimHandle>) -> bool {
    handle.tls.as_ref().is_some_and(|tls| tls.is_over())
}

/// A shard's way to it.
pub(crate) struct Door {
    pub(crate) plane: Rc<RefCell<ControlPlane>>,
    pub(crate) shard: usize,
}

impl HandOver<Carried<SimHandle>> for Door {
    fn hand_over(
        &mut self,
        handle: Carried<SimHandle>,
        received: &[u8],
        _: Origin,
    ) -> io::Result<()> {
        let mut plane = self.plane.borrow_mut();
        if plane.refuses && plane.prng.one_in(8) {
            plane.net.may_be_cut(handle.handle.peer());
            return Err(io::Error::other("full"));
        }
        plane.taken += 1;
        plane.net.note_carried(
            &handle,
            "tls: the control plane takes a connection",
            "tls: the control plane takes a connection in the middle of a record",
            "tls: the control plane takes a connection whose last record has not left",
        );
        plane.held.push((handle, received.to_vec()));
        Ok(())
    }

    fn take_back(&mut self) -> Option<HandedBack<Carried<SimHandle>>> {
        let mut plane = self.plane.borrow_mut();
        plane.returned[self.shard].as_mut()?.pop_front()
    }

    fn turn_away(&mut self, handle: Carried<SimHandle>, why: TurnedAway) {
        self.plane.borrow_mut().turn_away(handle, why);
    }
}

impl ControlPlane {
    pub(crate) fn new(net: Net, shards: usize, mut prng: Prng) -> Self {
        Self {
            net,
            held: Vec::new(),
            leaving: Vec::new(),
            ending: Vec::new(),
            returned: (0..shards).map(|_| Some(VecDeque::new())).collect(),
            taken: 0,
            turned_away: 0,
            refuses: prng.one_in(4),
            prng,
        }
    }

    /// Takes a connection whose request is for a shard: it has answered others on it.
    pub(crate) fn keep(&mut self, handle: Carried<SimHandle>) {
        self.leaving.push((handle, Vec::new()));
    }

    fn turn_away(&mut self, mut handle: Carried<SimHandle>, why: TurnedAway) {
        self.turned_away += 1;
        let mut answer = Vec::new();
        write_response(&mut answer, 503, &[("retry-after", "1")], why.sentence());
        self.net.handle_write(&mut handle, &answer);
        self.net.send_close_notify(&mut handle);
        self.ending.push(handle);
    }

    /// Closes connections of which everything has left.
    fn end_answered(&mut self) {
        let net = &self.net;
        self.ending.retain_mut(|handle| !net.send_rest(handle));
    }

    /// Hands some connections back, each with what has come of its request so far. True while any are left.
    pub(crate) fn hand_back(&mut self, mesh: &Mesh) -> bool {
        for (mut handle, mut received) in std::mem::take(&mut self.leaving) {
            if self.prng.one_in(2) {
                received.extend(self.net.handle_read(&mut handle));
            }
            if is_over(&handle) {
                // Its alert may have left in part.
                self.ending.push(handle);
                continue;
            }
            if self.prng.one_in(2) {
                self.leaving.push((handle, received));
                continue;
            }
            let open = (0..self.returned.len()).filter(|shard| self.returned[*shard].is_some());
            let open: Vec<usize> = open.collect();
            if open.is_empty() {
                self.turn_away(handle, TurnedAway::Draining);
                continue;
            }
            let shard = *self.prng.pick(&open);
            let origin = Origin::default();
            self.net.note_carried(
                &handle,
                "tls: a connection is handed back",
                "tls: a connection is handed back in the middle of a record",
                "tls: a connection is handed back whose last record has not left",
            );
            let queue = self.returned[shard].as_mut().expect("it has not ended");
            queue.push_back(HandedBack {
                handle,
                received,
                origin,
            });
            mesh.hand_back(shard);
        }
        !self.leaving.is_empty()
    }

    /// A shard has ended: what it has not taken back is answered in its place.
    pub(crate) fn end_shard(&mut self, shard: usize) {
        for returned in self.returned[shard].take().into_iter().flatten() {
            self.turn_away(returned.handle, TurnedAway::Draining);
        }
    }

    /// Handles that are on their way back.
    fn returning(&self) -> usize {
        let waiting: usize = self.returned.iter().flatten().map(VecDeque::len).sum();
        waiting + self.leaving.len() + self.ending.len()
    }

    /// Reads on. A request that is what `request_of` says its peer sends is answered. True when anything came.
    pub(crate) fn attend(
        &mut self,
        net: &Net,
        request_of: impl Fn(PeerId) -> Option<Vec<u8>>,
    ) -> bool {
        let held = self.held.len();
        let mut has_come = false;
        for (mut handle, mut received) in std::mem::take(&mut self.held) {
            let bytes = net.handle_read(&mut handle);
            has_come |= !bytes.is_empty();
            received.extend(bytes);
            let Some(request) = request_of(handle.handle.peer()) else {
                net.may_be_cut(handle.handle.peer());
                continue;
            };
            assert!(
                request.starts_with(&received),
                "bytes were lost on the way to the control plane"
            );
            if received == request {
                let body = "taken: nothing else to say";
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                net.handle_write(&mut handle, answer.as_bytes());
                net.send_close_notify(&mut handle);
            }
            if received == request || is_over(&handle) {
                self.ending.push(handle);
            } else {
                self.held.push((handle, received));
            }
        }
        self.end_answered();
        // Asking makes the net notice which handles have been dropped.
        assert_eq!(net.open_handles(), self.held.len() + self.returning());
        has_come || self.held.len() != held || !self.ending.is_empty()
    }

    /// Drops what never became whole.
    pub(crate) fn give_up(&mut self, net: &Net) {
        for (handle, _) in std::mem::take(&mut self.held) {
            net.may_be_cut(handle.handle.peer());
        }
        for (handle, _) in std::mem::take(&mut self.leaving) {
            self.turn_away(handle, TurnedAway::Draining);
        }
        for mut handle in std::mem::take(&mut self.ending) {
            net.send_all(&mut handle);
        }
        assert_eq!(net.open_handles(), 0);
    }
}

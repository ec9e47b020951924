//! The events of one wait: accepts, input, writability, and late completions.

use super::connection::{Connection, InputEnd, errno};
use super::driver::{Accepting, Sim};
use super::net::{Owner, World};
use super::table::{Entry, Phase};
use crate::{Completion, Completions, Socket, Token};

/// Maximum number of completions in one wait. A small number makes the turns of shards interleave.
const EVENTS_MAX: usize = 256;

/// A completion that arrives after its connection was closed.
#[derive(Debug)]
pub(super) struct LateCompletion {
    /// Number of waits before it arrives, 0 or 1. A real driver has cancelled its polls by then.
    waits: usize,
    completion: Completion,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LateCompletionKind {
    Writable,
    Failed,
    Finished,
    Received,
}

impl LateCompletionKind {
    pub(super) const ALL: [Self; 4] =
        [Self::Writable, Self::Failed, Self::Finished, Self::Received];
}

/// The receive buffer, and how many bytes of it this wait has filled.
struct Output<'a> {
    completions: &'a mut Completions,
    filled: usize,
}

impl Output<'_> {
    fn room(&self) -> usize {
        self.completions.buffer.len() - self.filled
    }

    fn receive(&mut self, token: Token, bytes: impl ExactSizeIterator<Item = u8>) {
        let range = self.filled..self.filled + bytes.len();
        for (target, byte) in self.completions.buffer[range.clone()].iter_mut().zip(bytes) {
            *target = byte;
        }
        self.filled = range.end;
        self.completions
            .list
            .push(Completion::Received { token, range });
    }
}

/// Where the next event can come from.
#[derive(Clone, Copy, Debug)]
enum EventSource {
    Listener,
    Slot(u32),
}

impl Sim {
    /// Lets the network deliver, reports events of this reactor's sockets, and returns how many bytes of the buffer
    /// they fill.
    pub(super) fn run_events(&mut self, world: &mut World, completions: &mut Completions) -> usize {
        // Overwrites the last wait's bytes: the caller must not read them any more.
        completions.buffer[..self.filled].fill(0xEE);
        self.begin_wait();
        world.flow();
        let mut output = Output {
            completions,
            filled: 0,
        };
        if world.prng.one_in(2) {
            self.deliver_late(world, &mut output);
            self.run(world, &mut output);
        } else {
            self.run(world, &mut output);
            self.deliver_late(world, &mut output);
        }
        if world.faults.wake.happens(&mut world.prng) {
            output.completions.list.push(Completion::Woken);
        }
        output.filled
    }

    fn begin_wait(&mut self) {
        self.table.reuse_closed();
        self.accepting = match self.accepting {
            Accepting::Paused(0) => Accepting::On,
            Accepting::Paused(waits) => Accepting::Paused(waits - 1),
            Accepting::Full if !self.table.is_full() => Accepting::On,
            other => other,
        };
    }

    fn deliver_late(&mut self, world: &mut World, output: &mut Output<'_>) {
        for _ in 0..self.late.len() {
            let mut late = self.late.pop_front().expect("counted");
            if late.waits > 0 {
                late.waits -= 1;
                self.late.push_back(late);
                continue;
            }
            world.record("late", [self.shard, late.bytes.len()]);
            if let Completion::Received { token, .. } = late.completion {
                late.bytes.truncate(output.room());
                if !late.bytes.is_empty() {
                    output.receive(token, late.bytes.into_iter());
                }
            } else {
                output.completions.list.push(late.completion);
            }
        }
    }

    /// The event sources of this wait: all that are ready, except those delayed at random.
    fn sources(&self, world: &mut World) -> Vec<EventSource> {
        let port = &world.ports[self.shard];
        let is_accepting = self.accepting == Accepting::On && !port.backlog.is_empty();
        let listener = is_accepting.then_some(EventSource::Listener);
        let mut sources: Vec<EventSource> = port
            .ready
            .iter()
            .map(|&slot| EventSource::Slot(slot))
            .chain(listener)
            .collect();
        sources.retain(|_| !world.faults.delay.happens(&mut world.prng));
        sources
    }

    /// Takes events in random order. Events of one connection keep their order.
    fn run(&mut self, world: &mut World, output: &mut Output<'_>) {
        let mut sources = self.sources(world);
        while !sources.is_empty() && output.completions.list.len() < EVENTS_MAX {
            let index = world.prng.below(sources.len());
            let has_more = match sources[index] {
                EventSource::Listener => {
                    self.accept_one(world, output);
                    self.accepting == Accepting::On && !world.ports[self.shard].backlog.is_empty()
                }
                EventSource::Slot(slot) => {
                    let happened = self.take_event(world, slot, output);
                    if !happened && output.room() > 0 {
                        world.ports[self.shard].ready.remove(&slot);
                    }
                    happened
                }
            };
            if !has_more || world.faults.delay.happens(&mut world.prng) {
                sources.swap_remove(index);
            }
        }
    }

    fn accept_one(&mut self, world: &mut World, output: &mut Output<'_>) {
        if self.table.is_full() {
            self.accepting = Accepting::Full;
            world.record("accept paused", [self.shard, 0]);
            output.completions.list.push(Completion::AcceptPaused {
                errno: errno::EMFILE,
            });
        } else if world.faults.accept_pause.happens(&mut world.prng) {
            self.accepting = Accepting::Paused(world.prng.between(1, 4));
            let errno =
                *world
                    .prng
                    .pick(&[errno::EMFILE, errno::ENFILE, errno::ENOBUFS, errno::ENOMEM]);
            world.record("accept paused", [self.shard, 1]);
            output
                .completions
                .list
                .push(Completion::AcceptPaused { errno });
        } else {
            let peer = world.ports[self.shard]
                .backlog
                .pop_front()
                .expect("the listener is a source");
            let socket = self
                .table
                .open(peer, Phase::Accepted, &mut world.prng)
                .expect("not full");
            world.link(peer).owner = Owner::Socket {
                shard: self.shard,
                slot: socket.slot(),
            };
            world.record("accepted", [self.shard, peer.0]);
            let listener = world.link(peer).listener;
            let accepted = Completion::Accepted { socket, listener };
            output.completions.list.push(accepted);
        }
    }

    /// Takes one event of a socket. False if there is none.
    fn take_event(&mut self, world: &mut World, slot: u32, output: &mut Output<'_>) -> bool {
        let socket = self.table.socket(slot);
        let entry = self.table.entry(socket);
        let connection = &world.links[entry.peer.0].connection;
        let wants_writable = entry.writable_wanted.is_some() && connection.is_writable();
        match entry.phase {
            Phase::Connecting(token) => {
                self.finish_connect(world, socket, token, output);
                false
            }
            Phase::Receiving(token)
                if may_receive(entry, connection) && !(wants_writable && world.prng.one_in(2)) =>
            {
                // Past the end of the peer's side nothing holds it up.
                entry.is_paused = false;
                receive(world, entry, token, output)
            }
            _ if wants_writable => {
                let token = entry.writable_wanted.take().expect("asked above");
                world.record("writable", [self.shard, entry.peer.0]);
                output.completions.list.push(Completion::Writable { token });
                true
            }
            _ => false,
        }
    }

    fn finish_connect(
        &mut self,
        world: &mut World,
        socket: Socket,
        token: Token,
        output: &mut Output<'_>,
    ) {
        let entry = self.table.entry(socket);
        let peer = entry.peer;
        if world.faults.connect_failure.happens(&mut world.prng) {
            let errno = *world.prng.pick(&[errno::ECONNREFUSED, errno::ETIMEDOUT]);
            world.record("connect failed", [self.shard, peer.0]);
            self.table.close(socket, token);
            world.take_from_owner(peer);
            output
                .completions
                .list
                .push(Completion::ConnectFailed { token, errno });
        } else {
            world.record("connected", [self.shard, peer.0]);
            entry.phase = Phase::Connected(token);
            world.establish(peer);
            output
                .completions
                .list
                .push(Completion::Connected { token });
        }
    }

    /// May queue one more completion with a closed connection's old token, as a poll does that is being cancelled.
    pub(super) fn queue_late_completion(
        &mut self,
        world: &mut World,
        entry: &Entry,
        kinds: &[LateCompletionKind],
    ) {
        // After the end of input, only a requested writability can still arrive.
        let (token, kinds) = match (entry.phase, entry.writable_wanted) {
            (Phase::Receiving(token), _) => (token, kinds),
            (Phase::Finished(token), Some(_)) => (token, &[LateCompletionKind::Writable][..]),
            _ => return,
        };
        if !world.faults.late_completion.happens(&mut world.prng) {
            return;
        }
        let mut bytes = Vec::new();
        let completion = match world.prng.pick(kinds) {
            LateCompletionKind::Writable => Completion::Writable { token },
            LateCompletionKind::Failed => Completion::Failed {
                token,
                errno: errno::ECONNRESET,
            },
            LateCompletionKind::Finished => Completion::Finished { token },
            LateCompletionKind::Received => {
                let inbound = &world.links[entry.peer.0].connection.inbound;
                bytes.extend(inbound.iter().take(Completions::RECEIVE_BYTES_MAX));
                if bytes.is_empty() {
                    return;
                }
                Completion::Received { token, range: 0..0 }
            }
        };
        self.late.push_back(LateCompletion {
            waits: world.prng.below(2),
            completion,
            bytes,
        });
    }
}

/// Whether there is input, or its end, that the caller wants.
fn may_receive(entry: &Entry, connection: &Connection) -> bool {
    let is_wanted = !entry.is_paused || connection.input_end != InputEnd::Open;
    is_wanted && connection.has_input()
}

/// Delivers the next piece of input, or its end. False if the buffer is full.
fn receive(world: &mut World, entry: &mut Entry, token: Token, output: &mut Output<'_>) -> bool {
    let link = &mut world.links[entry.peer.0];
    let inbound = &mut link.connection.inbound;
    if !inbound.is_empty() {
        let mut count = inbound
            .len()
            .min(Completions::RECEIVE_BYTES_MAX)
            .min(output.room());
        if count == 0 {
            return false;
        }
        if world.faults.split_receive.happens(&mut world.prng) {
            count = world.prng.between(1, count);
        }
        output.receive(token, inbound.drain(..count));
        world.record("received", [entry.peer.0, count]);
        return true;
    }
    let errno = link.connection.take_input_end(&mut world.prng);
    link.is_end_reported = true;
    let completion = if let Some(errno) = errno {
        // No completion follows a failure, not even a requested writability.
        entry.writable_wanted = None;
        entry.phase = Phase::Failed(token);
        Completion::Failed { token, errno }
    } else {
        entry.phase = Phase::Finished(token);
        Completion::Finished { token }
    };
    world.record("ended", [entry.peer.0, usize::from(errno.is_some())]);
    output.completions.list.push(completion);
    true
}

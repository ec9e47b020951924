//! The output of terminals, gathered over a turn and sent in one batch.

use crate::engine::terminal::Terminal;
use myriad_reactor::{Reactor, SendOp, Sent};
use std::collections::HashMap;

/// Most unsent bytes of one terminal, and with the last message that begins below it, most that a server can have it answer in one
/// turn. Clients send little: with this much unsent, the server has stopped reading. The terminal then skips its next pongs and replies
/// until there is room.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// The batch under construction, and what earlier batches could not send.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    queued: Vec<Queued>,
    /// Unsent bytes by terminal: almost always empty.
    unsent: HashMap<u32, Vec<u8>>,
}

/// One terminal's bytes in the batch.
#[derive(Clone, Copy, Debug)]
struct Queued {
    index: u32,
    attempt: u8,
    start: usize,
    end: usize,
}

/// A terminal whose socket turned out broken while sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub index: u32,
    pub errno: i32,
}

impl Outbox {
    /// Queues what `write` appends, for one terminal. It may append nothing.
    pub(crate) fn push(&mut self, index: u32, attempt: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        if end == start {
            return;
        }
        match self.queued.last_mut() {
            Some(last) if last.index == index && last.attempt == attempt => last.end = end,
            _ => self.queued.push(Queued {
                index,
                attempt,
                start,
                end,
            }),
        }
    }

    /// Whether a terminal can be given another answer to its server: what it said last in this turn is not as much as it may have unsent.
    pub(crate) fn has_room(&self, index: u32) -> bool {
        let last = self.queued.last().filter(|last| last.index == index);
        last.is_none_or(|last| last.end - last.start < UNSENT_BYTES_MAX)
    }

    /// Sends the batch: all operations at once, unless a terminal has several.
    pub(crate) fn flush<R: Reactor>(
        &mut self,
        reactor: &mut R,
        terminals: &[Terminal],
        broken: &mut Vec<Broken>,
    ) {
        if self.queued.is_empty() {
            return;
        }
        // A batch may hold one operation per socket. The sort is stable, so a terminal's own order is kept.
        if !self.queued.is_sorted_by(|a, b| a.index < b.index) {
            self.queued.sort_by_key(|queued| queued.index);
        }
        let mut round = std::mem::take(&mut self.queued);
        while !round.is_empty() {
            let mut later = Vec::new();
            let mut previous = None;
            round.retain(|queued| {
                let repeated = previous == Some(queued.index);
                previous = Some(queued.index);
                if repeated {
                    later.push(*queued);
                }
                !repeated
            });
            self.send_round(reactor, &round, terminals, broken);
            round.clear();
            if later.is_empty() {
                break;
            }
            round = later;
        }
        self.queued = round;
        self.bytes.clear();
    }

    /// Sends at most one operation per terminal and keeps what was not taken.
    fn send_round<R: Reactor>(
        &mut self,
        reactor: &mut R,
        round: &[Queued],
        terminals: &[Terminal],
        broken: &mut Vec<Broken>,
    ) {
        let mut ops = Vec::with_capacity(round.len());
        let mut owners = Vec::with_capacity(round.len());
        for queued in round {
            let terminal = &terminals[queued.index as usize];
            if terminal.attempt != queued.attempt || !terminal.holds_socket() {
                continue;
            }
            let bytes = &self.bytes[queued.start..queued.end];
            if let Some(unsent) = self.unsent.get_mut(&queued.index) {
                if unsent.len() + bytes.len() <= UNSENT_BYTES_MAX {
                    unsent.extend_from_slice(bytes);
                }
                continue;
            }
            ops.push(SendOp::new(terminal.socket(), bytes));
            owners.push(*queued);
        }
        reactor.send_batch(&mut ops);
        let outcomes = ops.iter().map(|op| op.sent);
        for (queued, sent) in owners.iter().zip(outcomes) {
            match sent {
                Sent::All => {}
                Sent::Partly(count) => {
                    let terminal = &terminals[queued.index as usize];
                    let rest = self.bytes[queued.start + count..queued.end].to_vec();
                    self.unsent.insert(queued.index, rest);
                    reactor.notify_writable(terminal.socket(), terminal.token(queued.index));
                }
                Sent::Failed(errno) => broken.push(Broken {
                    index: queued.index,
                    errno,
                }),
            }
        }
    }

    /// Sends what a terminal has unsent, now that its socket takes bytes again.
    pub(crate) fn resume<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: u32,
        terminal: &Terminal,
    ) -> Option<Broken> {
        let rest = self.unsent.get_mut(&index)?;
        let mut ops = [SendOp::new(terminal.socket(), rest)];
        reactor.send_batch(&mut ops);
        match ops[0].sent {
            Sent::All => {
                self.unsent.remove(&index);
                None
            }
            Sent::Partly(count) => {
                rest.drain(..count);
                reactor.notify_writable(terminal.socket(), terminal.token(index));
                None
            }
            Sent::Failed(errno) => Some(Broken { index, errno }),
        }
    }

    /// Whether a terminal has anything unsent.
    pub(crate) fn has_unsent(&self, index: u32) -> bool {
        !self.unsent.is_empty() && self.unsent.contains_key(&index)
    }

    /// Drops what a terminal that lost its socket has unsent.
    pub(crate) fn forget(&mut self, index: u32) {
        if !self.unsent.is_empty() {
            self.unsent.remove(&index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Nanos;
    use myriad_reactor::{Close, Completions, NotAdopted, Parts, Socket, Token};
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;

    /// Takes so many bytes of each send, and remembers who sent what in which batch.
    struct Taking {
        bytes_max: usize,
        batches: Vec<Vec<(Socket, Vec<u8>)>>,
        awaited: Vec<Token>,
    }

    impl Reactor for Taking {
        type Handle = ();
        fn accept(&mut self, _: bool) {}
        fn connect(
            &mut self,
            _: Token,
            _: Option<SocketAddr>,
            _: SocketAddr,
        ) -> io::Result<Socket> {
            unreachable!("nothing connects here")
        }
        fn register(&mut self, _: Socket, _: Token) {}
        fn pause(&mut self, _: Socket, _: Token) {}
        fn resume(&mut self, _: Socket, _: Token) {}
        fn deafen(&mut self, _: Socket) {}
        fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
            let mut batch = Vec::new();
            for op in ops {
                let Parts::One(bytes) = op.parts else {
                    unreachable!("terminals gather nothing")
                };
                let taken = bytes.len().min(self.bytes_max);
                if taken < bytes.len() {
                    op.sent = Sent::Partly(taken);
                }
                batch.push((op.socket, bytes[..taken].to_vec()));
            }
            self.batches.push(batch);
        }
        fn peer_addresses(&mut self, _: &[Socket], _: &mut Vec<Option<SocketAddr>>) {
            unreachable!("nobody asks for addresses here")
        }
        fn notify_writable(&mut self, _: Socket, token: Token) {
            self.awaited.push(token);
        }
        fn shutdown(&mut self, _: Socket) {}
        fn close(&mut self, _: Socket, _: Token, _: Close) {}
        fn transfer(&mut self, _: Socket, _: Token) -> io::Result<()> {
            unreachable!("nothing is transferred here")
        }
        fn adopt(&mut self, (): ()) -> Result<Socket, NotAdopted<()>> {
            unreachable!("nothing is adopted here")
        }
        fn wait(&mut self, _: Option<Duration>, _: &mut Completions) -> io::Result<()> {
            unreachable!("nobody waits here")
        }
        fn capacity(&self) -> usize {
            2
        }
    }

    fn taking(bytes_max: usize) -> Taking {
        Taking {
            bytes_max,
            batches: Vec::new(),
            awaited: Vec::new(),
        }
    }

    /// Two connected terminals; their sockets are 10 and 11.
    fn terminals() -> Vec<Terminal> {
        (0..2)
            .map(|index| {
                let mut terminal = Terminal::new();
                terminal.begin_connecting(Socket::from_bits(10 + index), Nanos(0));
                terminal
            })
            .collect()
    }

    fn push(outbox: &mut Outbox, index: u32, bytes: &[u8]) {
        outbox.push(index, 0, |out| out.extend_from_slice(bytes));
    }

    fn sent(reactor: &Taking, socket: u32) -> Vec<u8> {
        let of_socket = reactor
            .batches
            .iter()
            .flatten()
            .filter(|(s, _)| s.to_bits() == socket);
        of_socket.flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    #[test]
    fn a_batch_has_one_operation_per_socket_and_keeps_the_order() {
        let (mut outbox, mut reactor, mut broken) = (Outbox::default(), taking(100), Vec::new());
        for (index, bytes) in [(1, "a"), (0, "b"), (0, "c"), (1, "d"), (0, "e"), (1, "f")] {
            push(&mut outbox, index, bytes.as_bytes());
        }
        outbox.flush(&mut reactor, &terminals(), &mut broken);
        for batch in &reactor.batches {
            let mut sockets: Vec<u32> = batch.iter().map(|(socket, _)| socket.to_bits()).collect();
            sockets.dedup();
            assert_eq!(sockets.len(), batch.len(), "{batch:?}");
        }
        assert_eq!(
            (sent(&reactor, 10), sent(&reactor, 11)),
            (b"bce".to_vec(), b"adf".to_vec())
        );
        outbox.flush(&mut reactor, &terminals(), &mut broken);
        assert_eq!(sent(&reactor, 10), b"bce", "nothing is sent twice");
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later_and_in_order() {
        let (mut outbox, mut reactor, mut broken) = (Outbox::default(), taking(3), Vec::new());
        let terminals = terminals();
        push(&mut outbox, 0, b"abcdefg");
        outbox.flush(&mut reactor, &terminals, &mut broken);
        assert_eq!(reactor.awaited, [terminals[0].token(0)]);
        push(&mut outbox, 0, b"hi");
        outbox.flush(&mut reactor, &terminals, &mut broken);
        assert_eq!(sent(&reactor, 10), b"abc", "it waits for what came before");
        for taken in [6, 9] {
            assert_eq!(outbox.resume(&mut reactor, 0, &terminals[0]), None);
            assert_eq!(sent(&reactor, 10).len(), taken);
        }
        assert_eq!(sent(&reactor, 10), b"abcdefghi");
        assert_eq!(reactor.awaited.len(), 2, "the last was taken whole");
        assert_eq!(outbox.resume(&mut reactor, 0, &terminals[0]), None);
    }

    #[test]
    fn what_a_terminal_cannot_send_is_bounded() {
        let (mut outbox, mut reactor, mut broken) = (Outbox::default(), taking(0), Vec::new());
        for _ in 0..100 {
            push(&mut outbox, 0, &[b'.'; 1000]);
            outbox.flush(&mut reactor, &terminals(), &mut broken);
        }
        assert!(outbox.unsent[&0].len() <= UNSENT_BYTES_MAX);
        assert!(outbox.has_unsent(0) && !outbox.has_unsent(1));
        outbox.forget(0);
        assert!(outbox.unsent.is_empty());
    }

    #[test]
    fn answers_of_one_turn_are_bounded() {
        let (mut outbox, mut reactor, mut broken) = (Outbox::default(), taking(0), Vec::new());
        let answer = [b'.'; 1000];
        let mut answers = 0;
        while outbox.has_room(0) {
            push(&mut outbox, 0, &answer);
            answers += 1;
        }
        assert_eq!(answers, 17);
        assert!(outbox.has_room(1), "others have room");
        outbox.flush(&mut reactor, &terminals(), &mut broken);
        assert!(outbox.unsent[&0].len() < UNSENT_BYTES_MAX + answer.len());
        assert!(outbox.has_room(0), "in the next turn");
    }

    #[test]
    fn what_a_previous_attempt_had_to_say_is_not_sent() {
        let (mut outbox, mut reactor, mut broken) = (Outbox::default(), taking(100), Vec::new());
        let mut terminals = terminals();
        push(&mut outbox, 0, b"old");
        terminals[0].attempt += 1;
        push(&mut outbox, 1, b"of one that ended");
        terminals[1].phase = crate::engine::terminal::Phase::Ended;
        outbox.flush(&mut reactor, &terminals, &mut broken);
        assert!(reactor.batches.iter().flatten().next().is_none());
    }
}

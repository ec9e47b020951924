//! What terminals have to say, gathered over a turn and sent in one batch.

use crate::engine::terminal::Terminal;
use myriad_reactor::{Reactor, SendOp, Sent};
use std::collections::HashMap;

/// Bytes a terminal may be behind with. A client has little to say; one that cannot get rid of this much
/// faces a server that stopped reading, and skips its next pongs until there is room.
const BEHIND_BYTES_MAX: usize = 16 * 1024;

/// The batch under construction, and what earlier batches could not get rid of.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    queued: Vec<Queued>,
    /// Unsent bytes by terminal: almost always empty.
    behind: HashMap<u32, Vec<u8>>,
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
    /// Queues what `write` appends, for one terminal.
    pub(crate) fn push(&mut self, index: u32, attempt: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
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
            if let Some(behind) = self.behind.get_mut(&queued.index) {
                if behind.len() + bytes.len() <= BEHIND_BYTES_MAX {
                    behind.extend_from_slice(bytes);
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
                    self.behind.insert(queued.index, rest);
                    reactor.notify_writable(terminal.socket(), terminal.token(queued.index));
                }
                Sent::Failed(errno) => broken.push(Broken {
                    index: queued.index,
                    errno,
                }),
            }
        }
    }

    /// Goes on with what a terminal is behind with, now that its socket takes bytes again.
    pub(crate) fn resume<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: u32,
        terminal: &Terminal,
    ) -> Option<Broken> {
        let rest = self.behind.get_mut(&index)?;
        let mut ops = [SendOp::new(terminal.socket(), rest)];
        reactor.send_batch(&mut ops);
        match ops[0].sent {
            Sent::All => {
                self.behind.remove(&index);
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

    /// Drops what a terminal that lost its socket is behind with.
    pub(crate) fn forget(&mut self, index: u32) {
        if !self.behind.is_empty() {
            self.behind.remove(&index);
        }
    }
}

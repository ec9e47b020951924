//! Traces: everything that one connection says and hears, for somebody who looks for a fault. Off, they cost one look at an empty
//! list for each message of a client and for each batch of sends.
//!
//! A shard notes, and the control plane takes what was noted, as it does with [`crate::Events`]. A trace that is not taken in time
//! ends: part of a stream could not be read.

use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Transport};
use myriad_reactor::{GATHER_PARTS_MAX, Reactor};
use myriad_wheel::Key;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Traces of one shard.
const TRACES_MAX: usize = 8;

/// Bytes that wait to be taken.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// What a record costs beside its bytes.
const RECORD_BYTES: usize = 64;

/// What was noted of a connection.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Noted>);

/// What was noted since it was taken the last time.
#[derive(Debug, Default)]
pub struct Noted {
    /// In the order they happened.
    pub records: Vec<(Now, Traced)>,
    /// Why nothing follows; none while the trace goes on.
    pub end: Option<TraceEnd>,
    bytes: usize,
}

/// What a connection said or heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A message from the client, uncompressed.
    Said(Vec<u8>),
    /// Bytes that the kernel took for it: its messages in their framing, from the first byte of a frame on.
    Heard(Vec<u8>),
    /// What it speaks. The first record of all.
    Speaks(Transport),
    /// It ends, for this reason. A close frame may follow.
    Closed(CloseReason),
}

/// Why a trace has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// There is no such connection, or no more.
    Gone,
    /// The shard has as many traces as it may.
    TooMany,
    /// More happened than was taken in time.
    TooFast,
}

impl Trace {
    /// Takes what was noted.
    #[must_use]
    pub fn take(&self) -> Noted {
        let mut noted = self.lock();
        let end = noted.end;
        std::mem::replace(
            &mut *noted,
            Noted {
                end,
                ..Noted::default()
            },
        )
    }

    /// False once the trace has ended.
    fn note(&self, now: Now, traced: Traced) -> bool {
        let mut noted = self.lock();
        if noted.end.is_some() {
            return false;
        }
        noted.bytes += RECORD_BYTES;
        noted.bytes += match &traced {
            Traced::Said(bytes) | Traced::Heard(bytes) => bytes.len(),
            Traced::Closed(_) | Traced::Speaks(_) => 0,
        };
        if noted.bytes > WAITING_BYTES_MAX {
            noted.end = Some(TraceEnd::TooFast);
            return false;
        }
        noted.records.push((now, traced));
        true
    }

    pub(crate) fn end(&self, end: TraceEnd) {
        self.lock().end.get_or_insert(end);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The traces of a shard.
#[derive(Debug, Default)]
pub(crate) struct Traces(Vec<Tracing>);

#[derive(Debug)]
struct Tracing {
    connection: Key,
    trace: Arc<Trace>,
    /// Its queue may begin inside of a frame: nothing is noted until the queue is empty.
    waits: bool,
}

impl Traces {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&mut self, index: u32) -> Option<&mut Tracing> {
        let mut tracings = self.0.iter_mut();
        tracings.find(|tracing| tracing.connection.index == index)
    }

    /// Notes something of a connection, if that has a trace.
    fn note(&mut self, index: u32, now: Now, traced: impl FnOnce() -> Traced) {
        let mut tracings = self.0.iter();
        let Some(place) = tracings.position(|tracing| tracing.connection.index == index) else {
            return;
        };
        let Tracing { trace, waits, .. } = &self.0[place];
        let is_dropped = Arc::strong_count(trace) == 1;
        if is_dropped || !waits && !trace.note(now, traced()) {
            self.0.swap_remove(place);
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        for tracing in &self.0 {
            tracing.trace.end(TraceEnd::Gone);
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// Begins a trace.
    pub(crate) fn handle_trace(&mut self, connection: Key, trace: Arc<Trace>, now: Now) {
        let is_there =
            self.hub.contains(connection) && self.hub.connection(connection.index).has_session();
        if !is_there {
            return trace.end(TraceEnd::Gone);
        }
        self.traces
            .0
            .retain(|tracing| Arc::strong_count(&tracing.trace) > 1);
        let is_traced = self.traces.find(connection.index).is_some();
        if is_traced || self.traces.0.len() == TRACES_MAX {
            return trace.end(TraceEnd::TooMany);
        }
        let record = self.hub.connection(connection.index);
        let waits = record.has_outbound();
        trace.note(now, Traced::Speaks(record.transport()));
        self.traces.0.push(Tracing {
            connection,
            trace,
            waits,
        });
    }

    /// Notes a message of a client.
    pub(crate) fn trace_said(&mut self, index: u32, message: &[u8], now: Now) {
        self.traces
            .note(index, now, || Traced::Said(message.to_vec()));
    }

    /// Notes bytes of a frame that the kernel took.
    pub(crate) fn trace_heard(&mut self, index: u32, bytes: &[u8], now: Now) {
        if !bytes.is_empty() {
            self.traces
                .note(index, now, || Traced::Heard(bytes.to_vec()));
        }
    }

    /// Notes the first bytes of a connection's queue, which the kernel took. Call it before they leave the queue.
    pub(crate) fn trace_queue(&mut self, index: u32, count: usize, now: Now) {
        if self.traces.find(index).is_none() {
            return;
        }
        let mut bytes = Vec::with_capacity(count);
        if let Some(outbound) = self.hub.outbound(index) {
            let mut slices = Vec::new();
            outbound.slices(&mut slices, GATHER_PARTS_MAX);
            for slice in slices {
                let rest = count - bytes.len();
                bytes.extend_from_slice(&slice[..slice.len().min(rest)]);
            }
        }
        self.trace_heard(index, &bytes, now);
    }

    /// A connection's queue is empty: what follows begins with a frame.
    pub(crate) fn trace_boundary(&mut self, index: u32) {
        if let Some(tracing) = self.traces.find(index) {
            tracing.waits = false;
        }
    }

    /// Notes that a connection ends.
    pub(crate) fn trace_closed(&mut self, index: u32, reason: CloseReason, now: Now) {
        self.traces.note(index, now, || Traced::Closed(reason));
    }

    /// The record of a connection is freed.
    pub(crate) fn end_trace(&mut self, index: u32) {
        let mut tracings = self.traces.0.iter();
        let place = tracings.position(|tracing| tracing.connection.index == index);
        if let Some(place) = place {
            let tracing = self.traces.0.swap_remove(place);
            tracing.trace.end(TraceEnd::Gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(bytes: usize) -> Traced {
        Traced::Said(vec![0; bytes])
    }

    #[test]
    fn a_trace_is_taken_in_its_order_and_ends_once() {
        let trace = Trace::default();
        assert!(trace.note(Now(1), said(1)));
        assert!(trace.note(Now(2), Traced::Closed(CloseReason::Client)));
        let noted = trace.take();
        assert_eq!(
            noted.records,
            [
                (Now(1), said(1)),
                (Now(2), Traced::Closed(CloseReason::Client))
            ]
        );
        assert_eq!(noted.end, None);
        trace.end(TraceEnd::Gone);
        trace.end(TraceEnd::TooMany);
        assert!(!trace.note(Now(3), said(1)));
        let noted = trace.take();
        assert!(noted.records.is_empty());
        assert_eq!(noted.end, Some(TraceEnd::Gone));
    }

    #[test]
    fn a_trace_that_is_not_taken_ends() {
        let trace = Trace::default();
        let most = WAITING_BYTES_MAX - RECORD_BYTES;
        for _ in 0..3 {
            assert!(trace.note(Now(1), said(most)));
            assert_eq!(trace.take().records.len(), 1);
        }
        assert!(!trace.note(Now(1), said(most + 1)));
        assert_eq!(trace.take().end, Some(TraceEnd::TooFast));
    }
}

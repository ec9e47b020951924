//! A control plane of a few lines: takes what shards hand over, reads the request whole, answers.

use myriad_reactor::sim::{PeerId, Prng, SimHandle, SimNet};
use myriad_shard::HandOver;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Bytes of an answer, at most.
pub(crate) const ANSWER_BYTES_MAX: u64 = 200;

#[derive(Debug)]
pub(crate) struct ControlPlane {
    held: Vec<(SimHandle, Vec<u8>)>,
    pub(crate) taken: u64,
    /// It is sometimes full.
    prng: Prng,
    pub(crate) refuses: bool,
}

/// A shard's way to it.
pub(crate) struct Door(pub(crate) Rc<RefCell<ControlPlane>>);

impl HandOver<SimHandle> for Door {
    fn hand_over(&mut self, handle: SimHandle, received: &[u8]) -> io::Result<()> {
        let mut plane = self.0.borrow_mut();
        if plane.refuses && plane.prng.one_in(8) {
            return Err(io::Error::other("full"));
        }
        plane.taken += 1;
        plane.held.push((handle, received.to_vec()));
        Ok(())
    }
}

impl ControlPlane {
    pub(crate) fn new(mut prng: Prng) -> Self {
        Self {
            held: Vec::new(),
            taken: 0,
            refuses: prng.one_in(4),
            prng,
        }
    }

    /// Reads on. A request that is what `request_of` says its peer sends is answered. True when anything came.
    pub(crate) fn attend(
        &mut self,
        net: &SimNet,
        request_of: impl Fn(PeerId) -> Option<Vec<u8>>,
    ) -> bool {
        let held = self.held.len();
        let mut has_come = false;
        self.held.retain_mut(|(handle, received)| {
            let bytes = net.handle_read(handle);
            has_come |= !bytes.is_empty();
            received.extend(bytes);
            let Some(request) = request_of(handle.peer()) else {
                return false;
            };
            assert!(
                request.starts_with(received),
                "bytes were lost on the way to the control plane"
            );
            if *received == request {
                let body = "taken: nothing else to say";
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                net.handle_write(handle, answer.as_bytes());
            }
            *received != request
        });
        // Asking makes the net notice which handles have been dropped.
        assert_eq!(net.open_handles(), self.held.len());
        has_come || self.held.len() != held
    }

    /// Drops what never became whole.
    pub(crate) fn give_up(&mut self, net: &SimNet) {
        self.held.clear();
        assert_eq!(net.open_handles(), 0);
    }
}

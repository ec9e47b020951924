//! Publications that wait to leave together.

use super::Kept;
use crate::{Batch, Content, Delivery, Now, Permit, Position, Publication, Ticket};
use myriad_wheel::Tick;
use std::sync::Arc;

/// Publications of one batch: more are not waited for.
const PUBLICATIONS_MAX: usize = 256;

/// A publication that has its position and is not delivered yet.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) position: Position,
    /// The channel's last offset then.
    pub(super) last_offset: u64,
    pub(super) content: Arc<Content>,
    pub(super) delta_base: Option<Kept>,
    /// Whether clients are told its offset: history keeps it.
    pub(super) is_kept: bool,
    pub(super) sender: Option<Ticket>,
    pub(super) published_at: Now,
    pub(super) permit: Permit,
}

impl Accepted {
    pub(super) fn into_publication(self, channel: Arc<str>, shards: usize) -> Arc<Publication> {
        let publication = Publication::new(
            channel,
            self.position,
            self.content,
            self.published_at,
            shards,
            Some(self.permit),
        );
        let publication = publication
            .with_delta_base(self.delta_base)
            .without_sender(self.sender);
        Arc::new(if self.is_kept {
            publication.with_position()
        } else if publication.offset() == 0 {
            publication.without_offset_after(self.last_offset)
        } else {
            publication
        })
    }
}

/// Publications that wait to leave together. They know their shards only when they leave.
#[derive(Debug)]
pub(super) struct WaitingBatch {
    publications: Vec<Accepted>,
    bytes: usize,
    pub(super) deadline: Tick,
}

impl WaitingBatch {
    pub(super) fn new(deadline: Tick) -> Self {
        Self {
            publications: Vec::new(),
            bytes: 0,
            deadline,
        }
    }

    /// Adds a publication. True when the batch is to leave: it is full, or publications wait in the whole process that hold
    /// half of what they may hold.
    pub(super) fn push(&mut self, accepted: Accepted, bytes_max: usize) -> bool {
        let is_short = accepted.permit.held_quarters() >= 2;
        self.bytes += accepted.content.bytes();
        self.publications.push(accepted);
        is_short || self.publications.len() == PUBLICATIONS_MAX || self.bytes >= bytes_max
    }

    /// The batch for so many shards.
    pub(super) fn into_delivery(self, channel: &Arc<str>, shards: usize) -> Delivery {
        let publications = self.publications.into_iter();
        let publications =
            publications.map(|accepted| accepted.into_publication(Arc::clone(channel), shards));
        Delivery::Batch(Arc::new(Batch::new(publications.collect())))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.publications.len()
    }
}

//! Requests that wait for the position of their publication.
//!
//! A shard answers with an id, which is plain data, through the [mailbox](crate::mailbox); here the control plane finds the request that
//! the id belongs to.

use myriad_shard::{Position, PublishId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The waiting requests by the ids of their publications. No more than there are permits for publications.
#[derive(Debug, Default)]
pub(crate) struct Publishers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last_id: u64,
    requests: HashMap<PublishId, oneshot::Sender<Position>>,
}

impl Publishers {
    /// A new id, and its position to wait for. The wait ends with an error if there will be none.
    pub(crate) fn begin(&self) -> (PublishId, oneshot::Receiver<Position>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.last_id += 1;
        let id = PublishId(waiting.last_id);
        waiting.requests.insert(id, sender);
        (id, receiver)
    }

    /// Ends a wait: with the position, or with an error where there is none.
    pub(crate) fn settle(&self, id: PublishId, position: Option<Position>) {
        let request = self.lock().requests.remove(&id);
        if let (Some(request), Some(position)) = (request, position) {
            // The publisher may have gone; its publication has not.
            let _ = request.send(position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_shard::Epoch;
    use tokio::sync::oneshot::error::TryRecvError;

    #[test]
    fn every_wait_ends_with_its_own_position_or_an_error() {
        let publishers = Publishers::default();
        let (first, mut answer) = publishers.begin();
        let (second, mut nothing) = publishers.begin();
        let (third, gone) = publishers.begin();
        assert_ne!(first, second);
        drop(gone);
        assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        let position = Position {
            epoch: Epoch::new(7),
            offset: 7,
        };
        publishers.settle(third, Some(position));
        publishers.settle(second, None);
        publishers.settle(first, Some(position));
        // An id is answered once; later answers find nobody.
        publishers.settle(first, None);
        assert_eq!(answer.try_recv(), Ok(position));
        assert_eq!(nothing.try_recv(), Err(TryRecvError::Closed));
        assert!(publishers.lock().requests.is_empty());
    }
}

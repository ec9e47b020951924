//! Memory for what was read to fill channels, and what homes have not been told yet.
//!
//! How many bytes a channel has is known only when they have been read. So a fill takes its share as it reads. If there is no room for
//! more, it gives back what it has, waits until nobody else has any, and begins again with all of it: if several waited with what they
//! have, none of them might ever end. A fill of a single page has no share before it has read everything. It waits for what it needs.
//!
//! The page that was read last, or is being read, is in no share. So pages are smaller where more of them may be read at once
//! ([`FillLimits`]).

use super::servers::{PageSize, Stored};
use myriad_broker::MESSAGE_OVERHEAD;
use myriad_nats::raw::Headers;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that the fills of all logs may hold together. Beside them, each has a page that is not counted yet: of all logs together no more
/// than [`PAGES_BYTES_MAX`].
pub(super) const FILL_BYTES_MAX: u32 = 64 << 20;
/// Bytes of these pages, of all logs together. With [`FILL_BYTES_MAX`] that makes 128 MiB, and two messages for each fill: a page begins
/// with the last one of the page before, and ends with the one that makes it full.
const PAGES_BYTES_MAX: usize = 64 << 20;
/// Fills of all logs at once; each log may have one in any case.
const FILLS_MAX: usize = 256;
/// Fills of one log at once: each may have as much as a history.
const FILLS_OF_LOG_MAX: usize = 16;
/// Messages of a page, however many bytes it may have.
pub(super) const PAGE_MESSAGES_MAX: usize = 1_024;

/// What the fills of a log may read at once, so that all logs together keep to [`PAGES_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FillLimits {
    /// Fills at once.
    pub(super) fills_max: usize,
    /// What each page may have. A fill has one at a time.
    pub(super) page: PageSize,
}

impl FillLimits {
    /// For each of so many logs.
    pub(super) fn of_each(logs: usize) -> Self {
        let logs = logs.max(1);
        let fills_max = (FILLS_MAX / logs).clamp(1, FILLS_OF_LOG_MAX);
        let bytes = PAGES_BYTES_MAX / (fills_max * logs);
        // Servers do not count what a message takes beside its bytes. At most half of a page is for that.
        let overhead = MESSAGE_OVERHEAD as usize;
        let messages_max = (bytes / 2 / overhead).clamp(1, PAGE_MESSAGES_MAX);
        let page = PageSize {
            messages_max,
            bytes_max: bytes.saturating_sub(messages_max * overhead).max(1),
        };
        Self { fills_max, page }
    }
}

/// Bytes that fills may hold together. They take shares of it.
#[derive(Clone, Debug)]
pub(super) struct FillBudget {
    free: Arc<Semaphore>,
    bytes_max: u32,
}

impl FillBudget {
    pub(super) fn new(bytes_max: u32) -> Self {
        Self {
            free: Arc::new(Semaphore::new(bytes_max as usize)),
            bytes_max,
        }
    }

    /// How much there is.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max as usize
    }

    /// A share without a byte.
    pub(super) fn empty_share(&self) -> FillShare {
        FillShare {
            budget: self.clone(),
            held: None,
        }
    }

    /// All of it, as soon as nobody else has a share.
    pub(super) async fn whole(&self) -> FillShare {
        self.share_of(self.bytes_max()).await
    }

    /// So many bytes, but no more than all, as soon as they are free. Those who wait come in their order, and nobody gets any before
    /// them. So who waits must have no other share.
    pub(super) async fn share_of(&self, bytes: usize) -> FillShare {
        let bytes = u32::try_from(bytes).map_or(self.bytes_max, |bytes| bytes.min(self.bytes_max));
        let free = Arc::clone(&self.free);
        FillShare {
            budget: self.clone(),
            // It is never closed.
            held: free.acquire_many_owned(bytes).await.ok(),
        }
    }
}

/// The part of the budget that a fill holds; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct FillShare {
    budget: FillBudget,
    held: Option<OwnedSemaphorePermit>,
}

impl FillShare {
    /// Its bytes.
    fn bytes(&self) -> usize {
        self.held
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Whether it has no byte.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Whether it is all that there is.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes() == self.budget.bytes_max()
    }

    /// Grows until it has so many bytes. False if there is no room for that; then it stays as it is.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.bytes());
        let Ok(missing) = u32::try_from(missing) else {
            return false;
        };
        if missing == 0 {
            return true;
        }
        let free = Arc::clone(&self.budget.free);
        let Ok(more) = free.try_acquire_many_owned(missing) else {
            return false;
        };
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        true
    }
}

/// Bytes of memory that a message takes, more or less.
pub(super) fn bytes_of(message: &Stored) -> usize {
    let headers = message.headers.as_ref().map_or(0, Headers::bytes);
    message.payload.len() + headers + MESSAGE_OVERHEAD as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn pages_of_all_logs_together_are_bounded() {
        for logs in 1..=1_000 {
            let FillLimits { fills_max, page } = FillLimits::of_each(logs);
            let overhead = page.messages_max * MESSAGE_OVERHEAD as usize;
            let all = logs * fills_max * (page.bytes_max + overhead);
            assert!(all <= PAGES_BYTES_MAX, "{logs} logs: {page:?}");
            assert!(
                all > PAGES_BYTES_MAX / 2,
                "{logs} logs use less than they may"
            );
            assert!(fills_max * logs <= FILLS_MAX.max(logs), "{logs} logs");
        }
        let limits = [1, 16, 64, 1_000].map(|logs| {
            let FillLimits { fills_max, page } = FillLimits::of_each(logs);
            (fills_max, page.messages_max, page.bytes_max)
        });
        let expected = [
            (16, 1_024, (4 << 20) - (512 << 10)),
            (16, 256, 128 << 10),
            (4, 256, 128 << 10),
            (1, 65, 33_828),
        ];
        assert_eq!(limits, expected);
    }

    #[test]
    fn shares_together_never_exceed_the_budget() {
        let budget = FillBudget::new(10);
        let (mut first, mut second) = (budget.empty_share(), budget.empty_share());
        assert!(first.grow_to(0) && first.grow_to(6) && first.grow_to(5));
        assert!(!second.grow_to(5) && second.grow_to(4));
        assert!(!first.grow_to(7) && !first.is_whole());
        assert!(!first.grow_to(usize::MAX));
        drop(second);
        assert!(first.grow_to(10) && first.is_whole());
    }

    #[test]
    fn who_wants_all_of_it_is_the_next_one() {
        let budget = FillBudget::new(10);
        let (mut first, mut second) = (budget.empty_share(), budget.empty_share());
        assert!(first.grow_to(3));
        let mut waiting = Box::pin(budget.whole());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(!second.grow_to(1), "what comes free is for who waits");
        drop(first);
        let mut whole = waiting.now_or_never().expect("nobody else has any");
        assert!(whole.is_whole() && whole.grow_to(10) && !whole.grow_to(11));
        drop(whole);
        assert!(second.grow_to(10));
    }

    #[test]
    fn who_wants_a_part_waits_for_no_more_than_that() {
        let budget = FillBudget::new(10);
        let mut first = budget.empty_share();
        assert!(first.is_empty() && first.grow_to(7) && !first.is_empty());
        let mut waiting = [Box::pin(budget.share_of(6)), Box::pin(budget.share_of(4))];
        assert!(waiting[0].as_mut().now_or_never().is_none());
        assert!(waiting[1].as_mut().now_or_never().is_none());
        drop(first);
        let parts = waiting.map(|part| part.now_or_never().expect("there is room for both"));
        assert_eq!(parts.each_ref().map(FillShare::bytes), [6, 4]);
        drop(parts);
        let all = budget.share_of(usize::MAX).now_or_never();
        assert!(all.expect("it is free").is_whole());
    }
}

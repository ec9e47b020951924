//! Filters of tags. Equal ones are kept once, and each publication is compared with one of them once in a delivery, however many
//! subscribers have it.

use crate::Content;
use myriad_wheel::Slab;
use myriad_wire::centrifuge::Filter;
use std::collections::HashMap;
use std::sync::Arc;

/// Publications of one delivery whose comparisons are remembered. A batch that is merged here has no more.
const REMEMBERED: usize = 256;
const WORDS: usize = REMEMBERED / u64::BITS as usize;

/// So much work, in bytes of tags, takes as long as a delivery to one member: about a microsecond.
const WORK_OF_A_MEMBER: u64 = 4096;

/// Names a filter that some subscriptions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterId(u32);

/// A filter and what is known of the delivery under way.
#[derive(Debug, Default)]
struct Shared {
    /// None only of a vacant record.
    filter: Option<Arc<Filter>>,
    subscriptions: u32,
    /// Which delivery the bits are of.
    delivery: u64,
    /// By a publication's place in the delivery: whether it was compared, and whether it passed.
    known: [u64; WORDS],
    passed: [u64; WORDS],
}

/// The filters of a shard's subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    shared: Slab<Shared>,
    names: HashMap<Arc<Filter>, u32>,
    /// Deliveries that began, ever: names the one under way.
    deliveries: u64,
    /// The delivery under way.
    delivery: u64,
    /// What was compared since this was last taken, in members that could have been delivered to.
    cost: usize,
    comparisons: u64,
}

impl Filters {
    /// One subscription more has this filter. Answers its name, and whether no other had it before.
    pub(crate) fn add(&mut self, filter: Filter) -> (FilterId, bool) {
        if let Some(&index) = self.names.get(&filter) {
            self.shared[index].subscriptions += 1;
            return (FilterId(index), false);
        }
        let filter = Arc::new(filter);
        let shared = Shared {
            filter: Some(Arc::clone(&filter)),
            subscriptions: 1,
            ..Shared::default()
        };
        let index = self.shared.insert(shared).index;
        self.names.insert(filter, index);
        (FilterId(index), true)
    }

    /// A subscription with this filter ends. Answers the bytes of the filter if that was the last one.
    pub(crate) fn remove(&mut self, FilterId(index): FilterId) -> usize {
        let shared = &mut self.shared[index];
        shared.subscriptions -= 1;
        if shared.subscriptions > 0 {
            return 0;
        }
        let Some(filter) = self.shared.remove(index).filter else {
            return 0;
        };
        self.names.remove(&filter);
        filter.bytes()
    }

    /// Bytes of all filters.
    pub(crate) fn bytes(&self) -> u64 {
        self.names.keys().map(|filter| filter.bytes() as u64).sum()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }

    /// Publications compared with one filter each, ever.
    pub(crate) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// A delivery begins. Returns its name, for [`Filters::resume`].
    pub(crate) fn begin(&mut self) -> u64 {
        self.deliveries += 1;
        self.deliveries
    }

    /// A slice of a delivery follows.
    pub(crate) fn resume(&mut self, delivery: u64) {
        self.delivery = delivery;
    }

    /// What was compared since the last call, in members that could have been delivered to.
    pub(crate) fn take_cost(&mut self) -> usize {
        std::mem::take(&mut self.cost)
    }

    /// Whether a publication passes, which has this place in the delivery under way.
    pub(crate) fn pass(
        &mut self,
        FilterId(index): FilterId,
        nth: usize,
        content: &Content,
    ) -> bool {
        let shared = &mut self.shared[index];
        if shared.delivery != self.delivery {
            shared.delivery = self.delivery;
            shared.known = [0; WORDS];
        }
        let (word, bit) = (nth / u64::BITS as usize, 1 << (nth % u64::BITS as usize));
        if nth < REMEMBERED && shared.known[word] & bit != 0 {
            return shared.passed[word] & bit != 0;
        }
        let (passes, cost) = self.compare(FilterId(index), content);
        self.cost = self.cost.saturating_add(cost);
        let shared = &mut self.shared[index];
        if nth < REMEMBERED {
            shared.known[word] |= bit;
            shared.passed[word] = shared.passed[word] & !bit | if passes { bit } else { 0 };
        }
        passes
    }

    /// Whether a publication passes that is in no delivery, and what comparing it cost, in members that could have been delivered to.
    pub(crate) fn compare(
        &mut self,
        FilterId(index): FilterId,
        content: &Content,
    ) -> (bool, usize) {
        let Some(filter) = &self.shared[index].filter else {
            return (true, 1);
        };
        self.comparisons += 1;
        let work = u64::from(filter.work()) * content.tag_bytes() as u64 / WORK_OF_A_MEMBER;
        let cost = usize::try_from(work).map_or(usize::MAX, |work| work.saturating_add(1));
        (filter.passes(&content.tags), cost)
    }
}

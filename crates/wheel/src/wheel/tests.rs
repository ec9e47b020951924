use super::*;
use crate::Timer;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Record {
    timer: Timer,
}

impl Timed for Record {
    fn timer(&self) -> &Timer {
        &self.timer
    }
    fn timer_mut(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

impl Wheel {
    /// Walks every list in both directions and compares with bitmaps, counts and records.
    fn check<T: Default + Timed>(&self, slab: &Slab<T>) {
        assert!(self.cascaded_to <= self.now);
        let mut seen = BTreeSet::new();
        for (number, ends) in self.slots.iter().enumerate() {
            let (level, slot) = (number / SLOTS, number % SLOTS);
            let slot_link = SLOT_FLAG | u32::try_from(number).unwrap();
            let (mut prev, mut link) = (slot_link, ends.first);
            while link != slot_link {
                assert!(link < INDEX_END, "a list stays in its slot");
                assert!(seen.insert(link), "a record is in one list once");
                let timer = slab[link].timer();
                assert_eq!(timer.prev, prev);
                let deadline = timer
                    .deadline
                    .max(slot_start(self.cascaded_to, level, slot));
                assert_eq!(digit(deadline, level), slot);
                assert!(level_of(deadline, self.cascaded_to) <= level);
                (prev, link) = (link, timer.next);
            }
            assert_eq!(ends.last, prev);
            assert_eq!(self.is_occupied(level, slot), ends.first != slot_link);
            assert!(
                !self.is_occupied(level, slot) || slot >= digit(self.cascaded_to, level),
                "nothing in the past"
            );
        }
        assert_eq!(seen.len(), self.len);
        assert!(
            slab.indices()
                .all(|index| slab[index].timer().is_armed() == seen.contains(&index))
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert,
    Remove(prop::sample::Index),
    /// Arms one of the records relative to now; negative deadlines are late ones.
    Arm(prop::sample::Index, i64),
    Disarm(prop::sample::Index),
    /// Advances by so many ticks until nothing is left, at most so many timers a call.
    Advance(i64, usize),
    /// One call only: work may be left over while other steps come.
    AdvanceOnce(i64, usize),
    /// Advances to what `next_deadline` says.
    AdvanceToNext,
}

fn distance() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -3_i64..70,
        3 => 0_i64..5_000,
        2 => (0_u32..32, -2_i64..3).prop_map(|(bit, offset)| (1_i64 << bit) + offset),
        1 => 0_i64..1 << 32,
        1 => Just(0),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let at = any::<prop::sample::Index>;
    let max = prop_oneof![Just(1_usize), 1_usize..6, Just(1000)];
    prop_oneof![
        4 => Just(Step::Insert),
        1 => at().prop_map(Step::Remove),
        8 => (at(), distance()).prop_map(|(at, distance)| Step::Arm(at, distance)),
        2 => at().prop_map(Step::Disarm),
        3 => (distance(), max.clone()).prop_map(|(distance, max)| Step::Advance(distance, max)),
        2 => (distance(), max).prop_map(|(distance, max)| Step::AdvanceOnce(distance, max)),
        2 => Just(Step::AdvanceToNext),
    ]
}

fn offset(from: Tick, by: i64) -> Tick {
    Tick(u32::try_from((i64::from(from.0) + by).clamp(0, i64::from(u32::MAX))).unwrap())
}

/// The wheel beside a plain map of deadlines.
struct Pair {
    slab: Slab<Record>,
    wheel: Wheel,
    now: Tick,
    deadlines: BTreeMap<u32, Tick>,
    /// Armed with a deadline that was already past, or that an unfinished advance had already cascaded. These become
    /// due with the current ones, later than the order of deadlines says.
    late: BTreeSet<u32>,
}

impl Pair {
    fn new(now: Tick) -> Self {
        Self {
            slab: Slab::new(),
            wheel: Wheel::new(now),
            now,
            deadlines: BTreeMap::new(),
            late: BTreeSet::new(),
        }
    }

    fn pick(&self, at: prop::sample::Index) -> Option<u32> {
        let indices: Vec<u32> = self.slab.indices().collect();
        (!indices.is_empty()).then(|| *at.get(&indices))
    }

    fn arm(&mut self, index: u32, deadline: Tick) {
        self.wheel.arm(&mut self.slab, index, deadline);
        assert!(self.slab[index].timer.is_armed());
        assert_eq!(self.slab[index].timer.deadline(), deadline);
        self.deadlines.insert(index, deadline);
        self.late.remove(&index);
        if deadline < self.wheel.cascaded_to {
            self.late.insert(index);
        }
    }

    fn disarm(&mut self, index: u32) {
        self.wheel.disarm(&mut self.slab, index);
        self.deadlines.remove(&index);
        self.late.remove(&index);
    }

    fn advance(&mut self, to: Tick, max: usize) -> bool {
        self.now = self.now.max(to);
        let mut due = Vec::new();
        let has_more = self.wheel.advance(&mut self.slab, to, max, &mut due);
        assert!(due.len() <= max);
        let mut latest = Tick(0);
        for index in due {
            let deadline = self
                .deadlines
                .remove(&index)
                .expect("only armed ones, once");
            assert!(deadline <= self.now);
            if !self.late.remove(&index) {
                assert!(deadline >= latest, "in the order of deadlines");
                latest = deadline;
            }
        }
        // Whatever is still armed comes later than what has been given out.
        assert!(
            self.deadlines
                .iter()
                .all(|(index, &deadline)| deadline >= latest || self.late.contains(index))
        );
        if !has_more {
            assert!(
                self.deadlines.values().all(|&deadline| deadline > self.now),
                "all due ones came"
            );
        }
        has_more
    }

    fn advance_fully(&mut self, to: Tick, max: usize) {
        // Each timer cascades at most once a level and then becomes due.
        let calls_max = self.wheel.len() * LEVELS + 1;
        let calls = (0..).take_while(|_| self.advance(to, max)).count();
        assert!(calls <= calls_max, "{calls} calls for {calls_max}");
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Insert => drop(self.slab.insert(Record::default())),
            Step::Remove(at) => {
                if let Some(index) = self.pick(at) {
                    self.disarm(index);
                    self.slab.remove(index);
                }
            }
            Step::Arm(at, distance) => {
                if let Some(index) = self.pick(at) {
                    self.arm(index, offset(self.now, distance));
                }
            }
            Step::Disarm(at) => {
                if let Some(index) = self.pick(at) {
                    self.disarm(index);
                }
            }
            Step::Advance(distance, max) => self.advance_fully(offset(self.now, distance), max),
            Step::AdvanceOnce(distance, max) => drop(self.advance(offset(self.now, distance), max)),
            Step::AdvanceToNext => {
                if let Some(next) = self.wheel.next_deadline() {
                    self.advance_fully(next, 7);
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        self.wheel.check(&self.slab);
        assert_eq!(self.wheel.len(), self.deadlines.len());
        assert_eq!(self.wheel.now, self.now);
        let earliest = self.deadlines.values().min().copied();
        match (self.wheel.next_deadline(), earliest) {
            (None, None) => {}
            (Some(next), Some(earliest)) => {
                assert!(
                    next <= earliest.max(self.wheel.cascaded_to),
                    "never too late"
                );
                let cascaded_to = self.wheel.cascaded_to;
                let is_interrupted = (1..LEVELS)
                    .any(|level| self.wheel.is_occupied(level, digit(cascaded_to, level)));
                if !is_interrupted && level_of(cascaded_to, earliest) == 0 {
                    assert_eq!(
                        next,
                        earliest.max(cascaded_to),
                        "exact within the current 64 ticks"
                    );
                }
                if !is_interrupted && cascaded_to == self.now && earliest > self.now {
                    assert!(next > self.now, "in the future unless there is work");
                }
            }
            (next, earliest) => panic!("{next:?} for {earliest:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 1500 }))]

    #[test]
    fn behaves_as_a_map_of_deadlines(start in prop_oneof![Just(0), any::<u32>()], steps in prop::collection::vec(step(), 1..80)) {
        let mut pair = Pair::new(Tick(start));
        for step in &steps {
            pair.run(step);
        }
        pair.advance_fully(Tick(u32::MAX), 3);
        prop_assert!(pair.wheel.is_empty());
        pair.check();
    }
}

fn wheel_of(deadlines: &[u32]) -> (Slab<Record>, Wheel) {
    let (mut slab, mut wheel) = (Slab::new(), Wheel::new(Tick(0)));
    for &deadline in deadlines {
        let key = slab.insert(Record::default());
        wheel.arm(&mut slab, key.index, Tick(deadline));
    }
    (slab, wheel)
}

#[test]
fn a_jump_of_years_gives_everything_in_order() {
    let (mut slab, mut wheel) = wheel_of(&[1 << 31, 5, 64, 4095, u32::MAX, 4096, 63, 1 << 24]);
    let mut due = Vec::new();
    assert!(!wheel.advance(&mut slab, Tick(u32::MAX), 1000, &mut due));
    assert_eq!(due, [1, 6, 2, 3, 5, 7, 0, 4]);
    assert_eq!(wheel.next_deadline(), None);
    wheel.check(&slab);
}

#[test]
fn time_does_not_go_back() {
    let (mut slab, mut wheel) = wheel_of(&[100]);
    let mut due = Vec::new();
    wheel.advance(&mut slab, Tick(90), 1, &mut due);
    wheel.advance(&mut slab, Tick(10), 1, &mut due);
    assert_eq!(wheel.next_deadline(), Some(Tick(100)));
    assert!(due.is_empty());
    let late = slab.insert(Record::default()).index;
    wheel.arm(&mut slab, late, Tick(20));
    assert_eq!(wheel.next_deadline(), Some(Tick(90)), "due at once");
    wheel.advance(&mut slab, Tick(10), 1, &mut due);
    assert_eq!(due, [late]);
}

#[test]
fn equal_deadlines_come_in_the_order_they_were_armed() {
    let (mut slab, mut wheel) = wheel_of(&[500; 10]);
    let mut due = Vec::new();
    while wheel.advance(&mut slab, Tick(500), 3, &mut due) {}
    assert!(due.iter().copied().eq(0..10));
}

/// A record that arms itself for "now" again and again becomes due after the others, however small `max` is.
#[test]
fn a_late_timer_does_not_overtake() {
    let (mut slab, mut wheel) = wheel_of(&[1; 4]);
    let mut due = Vec::new();
    for _ in 0..8 {
        assert!(wheel.advance(&mut slab, Tick(1), 1, &mut due));
        wheel.arm(&mut slab, *due.last().unwrap(), Tick(0));
    }
    assert_eq!(due, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn one_call_does_no_more_than_it_may() {
    // Few in Miri, for a sweep of all timers follows each call.
    const PER_CALL: usize = if cfg!(miri) { 10 } else { 100 };
    let (mut slab, mut wheel) = wheel_of(&[5000; 10 * PER_CALL]);
    let mut due = Vec::new();
    let mut calls = 1;
    while wheel.advance(&mut slab, Tick(5000), PER_CALL, &mut due) {
        calls += 1;
        wheel.check(&slab);
    }
    assert_eq!(due.len(), 10 * PER_CALL);
    assert!(calls >= 20, "cascading counts as work: {calls} calls");
}

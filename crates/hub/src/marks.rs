//! Marks: states of the code that tests must reach, by name, as `hit!(LateFinished)`.
//!
//! The simulator's report names those that its schedules missed. Lines alone do not show that: a member that leaves in the
//! middle of a delivery runs the same lines as one that leaves at its end.
//!
//! Hits are counted for each thread, and only where the feature `marks` is on: this crate's own tests, and whoever asks for it
//! among its dev-dependencies. Everywhere else [`ENABLED`] is false and a hit is no code at all. A mark is never part of
//! control flow, of a borrow, or of a struct.

/// Whether hits are counted.
pub const ENABLED: bool = cfg!(any(test, feature = "marks"));

/// A list of marks, made by [`marks!`](crate::marks!).
pub trait Mark: Copy + 'static {
    /// Which counters the list has; each list has its own.
    const SET: Set;
    /// All of them in order, with what happens there.
    const ALL: &'static [(Self, &'static str)];

    /// Its number in the list.
    fn index(self) -> usize;
}

/// The counters of a list of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Of the hub.
    Hub,
    /// Of the shard.
    Shard,
    /// Of the shard, by a connection's phase.
    Phases,
}

impl Set {
    /// How many there are.
    #[cfg(any(test, feature = "marks"))]
    const COUNT: usize = 3;
    /// Marks that a list may have.
    pub const MARKS_MAX: usize = 96;
}

/// Declares an enum of marks, each with the sentence that reports show.
#[macro_export]
macro_rules! marks {
    ($(#[$meta:meta])* $vis:vis enum $name:ident in $set:ident { $($variant:ident = $sentence:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $(#[doc = $sentence] $variant),* }

        impl $crate::marks::Mark for $name {
            const SET: $crate::marks::Set = $crate::marks::Set::$set;
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, $sentence)),*];

            fn index(self) -> usize {
                const { assert!(Self::ALL.len() <= $crate::marks::Set::MARKS_MAX) };
                self as usize
            }
        }
    };
}

#[cfg(any(test, feature = "marks"))]
mod counters {
    use super::Set;
    use std::cell::Cell;

    thread_local! {
        static COUNTS: [[Cell<u64>; Set::MARKS_MAX]; Set::COUNT] =
            const { [const { [const { Cell::new(0) }; Set::MARKS_MAX] }; Set::COUNT] };
    }

    pub(super) fn add(set: Set, index: usize) {
        COUNTS.with(|counts| counts[set as usize][index].update(|count| count + 1));
    }

    pub(super) fn take(set: Set, index: usize) -> u64 {
        COUNTS.with(|counts| counts[set as usize][index].take())
    }
}

/// Counts a hit on this thread.
#[inline]
pub fn count_hit(set: Set, index: usize) {
    #[cfg(any(test, feature = "marks"))]
    counters::add(set, index);
    #[cfg(not(any(test, feature = "marks")))]
    let _ = (set, index);
}

/// This thread's hits of one mark since they were last taken; 0 where hits are not counted.
#[must_use]
pub fn take(set: Set, index: usize) -> u64 {
    #[cfg(any(test, feature = "marks"))]
    return counters::take(set, index);
    #[cfg(not(any(test, feature = "marks")))]
    {
        let _ = (set, index);
        0
    }
}

/// This thread's hits of a list, each with its sentence, since they were last taken.
pub fn take_all<M: Mark>() -> impl Iterator<Item = (&'static str, u64)> {
    let marks = M::ALL.iter();
    marks.map(|(mark, sentence)| (*sentence, take(M::SET, mark.index())))
}

/// Counts a hit of a mark of this crate: `hit!(Name)`, or `hit!(Name if condition)`. The condition must have no effect: it is
/// not looked at where hits are not counted.
macro_rules! hit {
    ($mark:ident) => {
        $crate::marks::count_hit(
            $crate::marks::Set::Hub,
            $crate::marks::HubMark::$mark as usize,
        )
    };
    ($mark:ident if $condition:expr) => {
        if $crate::marks::ENABLED && $condition {
            hit!($mark);
        }
    };
}

pub(crate) use hit;

crate::marks! {
    /// Where the hub's schedules meet.
    pub enum HubMark in Hub {
        AnswerToNobody = "the home's answer finds that the channel has gone",
        AnswerToOlderQuestion = "the home's answer is to an older question",
        SubscribePending = "a connection waits for the answer that another one asked for",
        SubscribeReady = "a connection finds its channel joined",
        LeaveWhileJoining = "a connection ends while its home has not answered",
        LeaveInDelivery = "a member leaves during a delivery",
        LeaveSwaps = "a member leaves and the last one takes its place",
        LastLeavesInDelivery = "the last member leaves during a delivery",
        SubscribeInDelivery = "a member comes during a delivery",
        TombstonesRemoved = "the tombstones of a delivery are removed",
        DeliverToNobody = "a publication finds that the channel has gone",
        DeliverWhileJoining = "a publication of an earlier membership arrives",
        DeliverBehindAnother = "a publication waits for an earlier one's delivery",
        DeliveriesPause = "most members of a channel are congested, and its deliveries pause",
        DeliveriesMerge = "publications that wait become one batch",
        DeliverInSlices = "a delivery takes more than one slice",
        DeliverInTurn = "several channels deliver in one turn",
        DeliverPastOwn = "a member has had this publication already",
        DeliverBeforeAdmission = "a member waits for another channel's home during a delivery",
        DeliverHeld = "a delivery waits for the answer to a connect command",
        StreamEndAtSession = "a stream ends at a session",
        StreamEndAtHeld = "a stream ends at a session that waits for the answer to its connect command",
        StreamEndAtWaiting = "a stream ends at a session's subscription that waits for its answer, or for its end",
        StreamEndAtAnswered = "a stream ends at a reader that has been answered",
        StreamEndAtListener = "a stream ends at a raw listener",
        StreamEndBeforeAdmission = "a stream ends at a listener that waits for another channel",
        ReloadTakesHistory = "a reload takes a history from subscribers",
        ReloadBringsHistory = "a reload brings a history to subscribers",
        ReloadForgets = "a reload takes a history from nobody",
        DeliverTwiceInBatch = "two publications for one connection meet in one batch",
        DeliverBackpressured = "a publication is queued for a backpressured connection",
        DeliverInPart = "a member gets a part of a delivery",
        DeliverBeforeEnd = "a client that unsubscribes gets its own publications first",
        BatchBeforeJoin = "a batch holds nothing that is new to the shard",
        SlowConsumerDrops = "publications are dropped from a queue",
        SlowConsumerGap = "a subscription is ended because its queue is full",
        OverConnectionBudget = "a connection's outbound budget is spent",
        OverProcessBudget = "the process's buffer budget is spent",
        OverUnconnectedBudget = "the budget of clients that have not connected is spent",
        AloneOverBudget = "what is larger than the budget of its connection begins a queue",
        TailAlone = "the unsent tail of a frame begins a queue",
        TailInFront = "the unsent tail of a frame goes in front of a queue",
        FlushGone = "a connection listed for a flush has gone",
        FlushWaits = "a connection listed for a flush waits for its socket",
        DropQueue = "a queue is dropped whole before a close frame",
        DropBehindPart = "a queue is dropped behind a frame that the peer has part of",
        DropBehindResponse = "a queue is dropped behind the response",
        DropEmpty = "a close frame finds nothing queued",
        ReleaseQueue = "a connection goes with bytes in its queue",
        HandshakeTimeout = "a request head comes too late",
        JoinTimeout = "a home does not answer within the handshake's time",
        Ping = "a ping is due",
        PongInTime = "something came after a ping",
        PongTimeout = "nothing came after a ping",
        LateUnheard = "a deadline is over, and nobody has looked at the sockets since",
        LateDoubted = "a peer seems late while input is left unread",
        LateDespiteBacklog = "a peer is late although input is left unread",
        IdleTimeout = "nothing came for the idle timeout",
        LingerTimeout = "a peer does not end its side",
        LingerOfSlowPeer = "a closing connection gets more time because its peer takes what is queued",
        Stalled = "a client takes nothing of what is queued for it",
        AnswerOutlastsKeepAlive = "an answer is still being read when the time for the next request would be over",
        DeliverWhileLingering = "a publication finds a channel that is kept without members",
        DeliverPartToReader = "a reader of a stream gets a part of a delivery",
        ReaderHasOwnCursor = "a reader of a stream needs a cursor of its own",
        ChannelLingers = "a channel that was read is kept without members",
        PollOver = "a held request has waited for as long as it may",
        EventsOver = "a stream of events has lasted for as long as it may",
        EventsExpired = "the token of a stream of events is over",
        KeepAliveOver = "no other request comes on a connection",
        DueInSlices = "more timers are due than one turn handles",
    }
}

#[cfg(test)]
mod tests {
    use super::{HubMark, Mark, take_all};

    #[test]
    fn hits_are_counted_by_thread_and_taken_once() {
        let count = || -> u64 { take_all::<HubMark>().map(|(_, count)| count).sum() };
        assert_eq!(count(), 0);
        hit!(Ping);
        hit!(Ping if 1 + 1 == 2);
        hit!(Ping if 1 + 1 == 3);
        std::thread::spawn(|| hit!(Ping)).join().expect("no panic");
        let hits: Vec<_> = take_all::<HubMark>().filter(|(_, n)| *n > 0).collect();
        assert_eq!(hits, [("a ping is due", 2)]);
        assert_eq!(count(), 0);
        assert_eq!(HubMark::ALL[HubMark::Ping.index()].0, HubMark::Ping);
    }
}

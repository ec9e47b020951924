//! Which states of the code a run has reached: for the simulator, whose report names those that its schedules missed.
//!
//! Lines alone do not say that: a member that leaves in the middle of a delivery runs the same lines as one that leaves
//! at its end. Counted in builds with debug assertions; what ships pays nothing.

use std::marker::PhantomData;

/// A list of places in the code, made by [`places!`](crate::places).
pub trait Place: Copy + 'static {
    /// All of them in order, with what happens there.
    const ALL: &'static [(Self, &'static str)];

    /// Its number in the list.
    fn index(self) -> usize;
}

/// Declares an enum of places, each with the sentence that reports show.
#[macro_export]
macro_rules! places {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident = $sentence:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $(#[doc = $sentence] $variant),* }

        impl $crate::Place for $name {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, $sentence)),*];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// How often each place was reached.
#[derive(Clone, Debug)]
pub struct Reach<P> {
    counts: Box<[u64]>,
    place: PhantomData<P>,
}

impl<P: Place> Default for Reach<P> {
    fn default() -> Self {
        Self {
            counts: vec![0; P::ALL.len()].into(),
            place: PhantomData,
        }
    }
}

impl<P: Place> Reach<P> {
    /// The run is at `place`.
    #[inline]
    pub fn note(&mut self, place: P) {
        self.note_if(true, place);
    }

    /// The run is at `place` if `is_there`.
    #[inline]
    pub fn note_if(&mut self, is_there: bool, place: P) {
        if cfg!(debug_assertions) {
            self.counts[place.index()] += u64::from(is_there);
        }
    }

    /// Each place's sentence and count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        P::ALL
            .iter()
            .map(|(place, sentence)| (*sentence, self.counts[place.index()]))
    }
}

places! {
    /// Where the hub's schedules meet.
    pub enum HubPlace {
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
        DeliverInSlices = "a delivery takes more than one slice",
        DeliverInTurn = "several channels deliver in one turn",
        DeliverPastOwn = "a member has had this publication already",
        DeliverBeforeAdmission = "a member waits for another channel's home during a delivery",
        DeliverTwiceInBatch = "two publications for one connection meet in one batch",
        DeliverBackpressured = "a publication is queued for a backpressured connection",
        OverConnectionBudget = "a connection's outbound budget is spent",
        OverProcessBudget = "the process's buffer budget is spent",
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
        LateDoubted = "a peer seems late while input is left unread",
        LateDespiteBacklog = "a peer is late although input is left unread",
        IdleTimeout = "nothing came for the idle timeout",
        LingerTimeout = "a peer does not end its side",
        DueInSlices = "more timers are due than one turn handles",
    }
}

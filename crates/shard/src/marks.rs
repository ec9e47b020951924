//! Marks of the shard's code, for the simulator's report: what happened to connections in each of their phases, and where the
//! shard's own schedules meet. See [`myriad_hub::marks`].

use myriad_hub::Phase;
use myriad_hub::marks::{self, HubMark, Mark, Set};

myriad_hub::marks! {
    /// What can happen to a connection in some phase.
    pub(crate) enum Happening in Phases {
        Received = "bytes arrive",
        Finished = "FIN arrives",
        Failed = "the connection breaks",
        FlushTaken = "the queue is taken whole",
        FlushShort = "the queue is taken in part",
        FlushRefused = "nothing of the queue is taken",
        FlushFailed = "a send of the queue fails",
        FlushMore = "more is queued than one gathered send takes",
        BatchTaken = "a frame is taken whole",
        BatchShort = "a frame is taken in part",
        BatchRefused = "nothing of a frame is taken",
        BatchFailed = "a send of a frame fails",
        Writable = "the socket takes bytes again",
        Overloaded = "there is no buffer memory for its input",
        Drained = "the drain comes to it",
    }
}

myriad_hub::marks! {
    /// Where the shard's schedules meet.
    pub(crate) enum ShardMark in Shard {
        LateReceived = "bytes of a connection that has gone",
        LateFinished = "FIN of a connection that has gone",
        LateFailed = "the break of a connection that has gone",
        LateWritable = "room on a connection that has gone",
        AcceptPaused = "accepting pauses",
        Surplus = "a connection beyond the limit is kept to be answered",
        SurplusEvicted = "a connection beyond the limit is reset for a newcomer",
        SurplusReset = "a connection beyond the limit is reset at once",
        HeadInPieces = "a request head comes in pieces",
        BodyInPieces = "a request body comes in pieces",
        BytesBehindRequest = "something comes behind a request whose answer goes on",
        MessageInPieces = "a message comes in pieces",
        MessageFragmented = "a message comes in fragments",
        EarlyBytes = "frames come before the 101",
        EarlyTooMuch = "too much comes before the 101",
        EarlyWithRequest = "frames come with the request",
        JoinAtOnce = "all channels of a request are joined already",
        AskAnswered = "the control plane answers a command",
        AskerGone = "the control plane answers a client that has gone",
        AskTimeout = "the control plane has not answered a command in time",
        AskLate = "the control plane answers a command too late",
        WaitsForPublications = "a command waits for its client's publications",
        LineMoves = "commands that waited behind another one are carried out",
        UnconnectedEnded = "a client that has not connected is ended for its memory",
        AskFull = "too many commands wait for the control plane",
        AskSelf = "a shard asks itself to join",
        AskOther = "a shard asks another to join",
        LeaveSelf = "a shard tells itself that it leaves",
        LeaveOther = "a shard tells another that it leaves",
        PublishToNobody = "a publication has no subscriber on the node",
        PublishToOne = "a publication has subscribers on one shard",
        PublishToMany = "a publication has subscribers on several shards",
        MessagePutOff = "a turn has taken many publications, and puts messages off",
        LoopbackAfterClose = "a shard turns for what it told itself at the end of a turn",
        CloseInFrame = "a connection over its budget keeps the unsent tail of a frame",
        ResetInFrame = "a connection over its budget is reset in the middle of a frame",
        CloseBeforeFrame = "a connection over its budget has seen nothing of the frame",
        CloseAgain = "a connection that ends is found over its budget again",
        ResponseTooMuch = "not even the 101 fits the budget",
        FinAfterFin = "our FIN answers the peer's",
        ClosedTwice = "a connection is listed twice for its close in a turn",
        HandedOver = "a request goes to the control plane",
        HandedOverInPieces = "more of a request comes in the turn it is handed over",
        HandOverRefused = "the control plane is full",
        HandedBack = "the control plane hands a connection back",
        HandedBackWhileDraining = "the control plane hands a connection back to a shard that drains",
        HandedBackTooLate = "the control plane hands a connection back to a shard whose drain is over",
        AdoptFailed = "a socket that comes back cannot be adopted",
        TransferFailed = "a socket cannot be transferred",
        DrainAgain = "a shard is told twice to drain",
        DrainOverdue = "a drain has more due than one turn ends",
        DrainReused = "a drain finds a later connection under an earlier one's number",
        DrainGone = "a drain finds that a connection has gone",
        DrainBacklog = "a drain waits for a client that has not taken its answers",
        DrainLastAnswers = "a drain gives answers one turn more at its end",
        DrainLate = "a drain's end finds newcomers",
        DrainReset = "a drain resets who stays",
        DrainOthers = "a drain waits for last bytes below the shard",
        DrainEmpty = "a drain begins with nobody",
        RequestBehind = "a request comes before the one before it is answered",
        TooMuchBehind = "too much comes behind a request that is not answered",
        IgnoredBehindEvents = "something comes behind the request for a stream of events",
        NextRequest = "a request begins that waited for an answer to leave",
        ReadKnown = "a shard knows all that a reader asks for",
        ReadRefused = "a home refuses a reader",
        ReadLimited = "a reader sends more requests than it may",
        ReadsExhausted = "a reader goes on after its requests were refused",
        ReaderGone = "a home answers a reader that has gone",
        Park = "a request is held",
        EventsBehind = "a stream of events needs more than one page to catch up",
        AnswerTooMuch = "not even an answer fits the budget",
        AnswerFailed = "the answer to a held request fails",
        PollAsksAgain = "a stream ends while a request is held that may be about the next one",
        PollOfDeleted = "a stream is deleted while a request for it is held",
        ReaderOfClosed = "a stream is closed while somebody waits for more",
        FinBeforeAnswers = "a client ends its side before it has its answers",
        FinWhileHeld = "a client ends its side while its request is held",
        RefusedFull = "a newcomer is told that there is no room",
        RefusedDraining = "a newcomer is told that the server drains",
    }
}

/// Counts a hit of a mark of this crate, as `hit!` of the hub does.
macro_rules! hit {
    ($mark:ident) => {
        myriad_hub::marks::count_hit(
            myriad_hub::marks::Set::Shard,
            $crate::marks::ShardMark::$mark as usize,
        )
    };
    ($mark:ident if $condition:expr) => {
        if myriad_hub::marks::ENABLED && $condition {
            hit!($mark);
        }
    };
}

pub(crate) use hit;

const PHASES: [Phase; 4] = [
    Phase::Handshake,
    Phase::Joining,
    Phase::Open,
    Phase::Closing,
];

const _: () = assert!(PHASES.len() * Happening::ALL.len() <= Set::MARKS_MAX);

/// The number of a happening in a phase among the marks of [`Set::Phases`].
fn index_of(happening: Happening, phase: Phase) -> usize {
    phase as usize * Happening::ALL.len() + happening.index()
}

/// Counts a hit of what happens to a connection in this phase.
pub(crate) fn hit_in_phase(happening: Happening, phase: Phase) {
    debug_assert!(
        may_happen(happening, phase),
        "{happening:?} while {phase:?}"
    );
    marks::count_hit(Set::Phases, index_of(happening, phase));
}

/// How often this thread's shards and hubs have reached each mark, and each happening in each phase, since the last call. For the
/// simulator's report. All zero unless `myriad-hub` has its feature `marks`.
pub fn take_reached() -> impl Iterator<Item = (String, u64)> {
    let hub = marks::take_all::<HubMark>();
    let shard = marks::take_all::<ShardMark>();
    let own = hub
        .chain(shard)
        .map(|(sentence, count)| (sentence.to_owned(), count));
    let phases = PHASES.iter().flat_map(|&phase| {
        let may_happen = move |(happening, _): &&(Happening, &str)| may_happen(*happening, phase);
        let happenings = Happening::ALL.iter().filter(may_happen);
        happenings.map(move |(happening, sentence)| {
            let count = marks::take(Set::Phases, index_of(*happening, phase));
            (format!("{phase:?}: {sentence}"), count)
        })
    });
    own.chain(phases)
}

/// Nothing is sent before the answer to a request, which is one chunk and may leave while the next one is awaited. Frames go only to
/// open connections.
fn may_happen(happening: Happening, phase: Phase) -> bool {
    use Happening::{
        BatchFailed, BatchRefused, BatchShort, BatchTaken, Drained, Failed, Finished, FlushMore,
        Overloaded, Received,
    };
    match happening {
        Received | Finished | Failed | Drained => true,
        Overloaded => phase != Phase::Closing,
        FlushMore => matches!(phase, Phase::Open | Phase::Closing),
        BatchTaken | BatchShort | BatchRefused | BatchFailed => phase == Phase::Open,
        _ => phase != Phase::Joining,
    }
}

//! Clients with TLS among the others, on the same channels.
//!
//! In some worlds each shard has a second listener, and what stands between the shard and its simulated sockets is the [`TlsStage`] that
//! ships. A client that connects there says the same as any other. Between it and the network stands [`Net`], which seals what it says and
//! opens what it reads. So all that must hold for a client without TLS must hold for it, too, and faults of the network cut records at any
//! byte.

mod client;
mod net;
mod records;
mod toy;

pub(crate) use net::Net;

use arc_swap::ArcSwap;
use myriad_reactor::Waker;
use myriad_reactor::sim::{Prng, Sim};
use myriad_tls_stage::{Figures, Offer, Setup, TlsStage, Workers};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// The listener whose connections begin with a handshake.
const LISTENER: u8 = 1;

/// What a world with TLS has of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secured {
    /// One client in so many has none.
    plain: usize,
    /// Handshakes under way at once, for each shard.
    handshakes_max: usize,
    /// Records that a server's key seals.
    key_records_max: u64,
    /// Signatures are made by other threads, when the world says so.
    signs_slowly: bool,
}

impl Secured {
    /// All clients speak TLS, and none waits for its handshake.
    pub(crate) const EVERYBODY: Self = Self {
        plain: 1 << 20,
        handshakes_max: 1_000,
        key_records_max: 1 << 24,
        signs_slowly: false,
    };

    /// The same with signatures of other threads.
    pub(crate) const SLOWLY: Self = Self {
        signs_slowly: true,
        ..Self::EVERYBODY
    };

    /// Whether the world that begins at this time has TLS, and of which kind. It draws from numbers of its own: worlds without TLS stay as
    /// they are.
    pub(crate) fn of(start: u64) -> Option<Self> {
        let mut prng = Prng::new(start ^ 3).fork();
        prng.one_in(3).then(|| Self {
            plain: *prng.pick(&[2, 2, 4]),
            handshakes_max: *prng.pick(&[1, 3, 20, 1_000, 1_000]),
            key_records_max: *prng.pick(&[4, 20, 100, 1 << 24]),
            signs_slowly: prng.one_in(3),
        })
    }

    /// A shard's reactor.
    fn stage(self, sockets: Sim, workers: &Workers) -> (TlsStage<Sim>, Arc<Figures>) {
        let figures = Arc::new(Figures::default());
        let setup = Setup {
            listener: LISTENER,
            offer: Arc::new(ArcSwap::from_pointee(Offer {
                signs_slowly: self.signs_slowly,
                ..offer()
            })),
            workers: Some((workers.clone(), Waker::silent())),
            figures: figures.clone(),
            handshakes_max: self.handshakes_max,
            clock: || Duration::from_nanos(NOW.get()),
        };
        (TlsStage::new(sockets, setup), figures)
    }
}

fn offer() -> Offer {
    Offer {
        config: toy::SERVER.clone(),
        challenge: None,
        read_user: None,
        signs_slowly: false,
    }
}

thread_local! {
    /// The clock of this thread's stages.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// What the clock of this thread's stages says from now on.
pub(crate) fn set_clock(now: u64) {
    NOW.set(now);
}

/// What must have happened to clients with TLS.
pub(crate) const MUST_HAPPEN: [&str; 42] = [
    "tls: a budget counts the part of a record",
    "tls: a thread signs",
    "tls: the header of a proxy comes before a handshake",
    "tls: a handshake ends",
    "tls: a client is shut out before its handshake has ended",
    "tls: a client waits for its handshake to begin",
    "tls: a handshake loses its place",
    "tls: a client leaves in the middle of its handshake",
    "tls: a record leaves in part",
    "tls: a client reads a ticket",
    "tls: a client sends a record without data",
    "tls: a client changes its key",
    "tls: a client asks for a new key",
    "tls: a client reads the answer to its KeyUpdate",
    "tls: a client reads the KeyUpdate of a key that has sealed enough",
    "tls: a client has read a record in part",
    "tls: a client has read a header of a record in part",
    "tls: a client sends close_notify and FIN",
    "tls: a client sends close_notify without FIN",
    "tls: a client sends FIN without close_notify",
    "tls: a client closes in the middle of a record",
    "tls: a client sends a record that no key opens",
    "tls: a client sends a record again",
    "tls: a client sends a record without protection",
    "tls: a client sends what is no record",
    "tls: a client announces a record that is too long",
    "tls: a client floods with records without data",
    "tls: a client sends an odd KeyUpdate",
    "tls: a client begins another handshake",
    "tls: a client gives up with an alert",
    "tls: a client reads the alert that is due",
    "tls: a client reads a close_notify and FIN",
    "tls: a client reads RST",
    "tls: the control plane takes a connection",
    "tls: the control plane takes a connection in the middle of a record",
    "tls: the control plane takes a connection whose last record has not left",
    "tls: the control plane's socket takes a record in part",
    "tls: the control plane answers",
    "tls: a connection is handed back",
    "tls: a connection is handed back in the middle of a record",
    "tls: a connection is handed back whose last record has not left",
    "tls: a client is dropped on its way to the control plane",
];

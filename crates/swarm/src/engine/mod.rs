//! The crowd itself: terminals on reactors, one thread each.

pub(crate) mod account;
pub(crate) mod answered;
pub(crate) mod arrivals;
pub(crate) mod churn;
pub(crate) mod closing;
pub(crate) mod comeback;
pub(crate) mod crowd;
pub(crate) mod deal;
pub(crate) mod flows;
pub(crate) mod framing;
pub(crate) mod heartbeat;
pub(crate) mod http;
pub(crate) mod incidents;
pub(crate) mod membership;
pub(crate) mod opening;
pub(crate) mod outbox;
pub(crate) mod own_head;
pub(crate) mod pacing;
pub(crate) mod plan;
pub(crate) mod ramp;
pub(crate) mod receiving;
pub(crate) mod round_robin;
pub(crate) mod session;
pub(crate) mod shared;
#[cfg(test)]
#[path = "../../tests/simulation/mod.rs"]
mod simulation;
pub(crate) mod sources;
pub(crate) mod stream;
pub(crate) mod terminal;
pub(crate) mod thread;
pub(crate) mod tls;
pub(crate) mod unwell;
pub(crate) mod upgrade;
pub(crate) mod walk;
pub(crate) mod window;

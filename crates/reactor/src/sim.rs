//! A simulated reactor: virtual peers, short reads and writes, resets, stalls and a seed.
//!
//! A [`SimNet`] holds the connections. One side of each belongs to a [`Sim`], the [`Reactor`] that the
//! code under test drives. The other side is a virtual peer that the test drives through the net. There is no
//! socket, no clock and no thread. A [`Prng`] and the [`Faults`] decide everything, so a seed replays exactly.
//!
//! A `Sim` keeps the reactor's contract and promises nothing else: where the contract leaves a choice, the `Sim` chooses
//! at random. It splits and delays input, takes only a part of a send, delivers completions of closed connections
//! with their old tokens, and pauses accepting. It also checks the caller: use of a closed socket, two operations
//! for one socket in one batch or a wrong token panic at once, where a kernel would silently do something else.
//!
//! A [`Campaign`] runs a simulation with many seeds, on all cores.
//!
//! [`Reactor`]: crate::Reactor

mod campaign;
mod connection;
mod driver;
mod events;
mod faults;
mod net;
mod prng;
mod table;
#[cfg(test)]
mod tests;

pub use campaign::{Campaign, Outcomes, seed_to_replay, variable};
pub use connection::PeerEnd;
pub use driver::Sim;
pub use faults::{Chance, Faults};
pub use net::{Dialed, PeerId, SimHandle, SimNet};
pub use prng::Prng;

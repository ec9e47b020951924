//! A simulated reactor: virtual peers, short reads and writes, resets, stalls and a seed.
//!
//! A [`SimNet`] holds the connections. One side of each belongs to a [`Sim`], the [`Reactor`] that the
//! code under test drives; the other is a virtual peer that the test drives through the net. There is no
//! socket, no clock and no thread: everything that happens is decided by a [`Prng`] and the [`Faults`], so
//! that a seed replays exactly.
//!
//! A `Sim` keeps the reactor's contract and nothing more: whatever the contract leaves open, it does
//! differently each time. It delivers input in odd pieces and late, takes odd parts of what is sent, lets
//! completions of closed connections straggle in with their old tokens, and pauses accepting. And it
//! watches the caller: use of a closed socket, two operations for one socket in one batch, a token that is
//! not the registered one and the like panic at once, where a kernel would quietly do something else.
//!
//! [`Reactor`]: crate::Reactor

mod connection;
mod driver;
mod events;
mod faults;
mod net;
mod prng;
mod table;
#[cfg(test)]
mod tests;

pub use connection::PeerEnd;
pub use driver::Sim;
pub use faults::{Chance, Faults};
pub use net::{Dialed, PeerId, SimHandle, SimNet};
pub use prng::Prng;

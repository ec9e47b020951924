//! What connections speak: the request head first, then one transport each.

mod admission;
mod compressed;
mod control_plane;
mod echo;
mod frames;
mod refusals;
mod routing;

pub(crate) use refusals::Refused;

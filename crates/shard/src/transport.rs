//! What connections speak: the request head first, then one transport each.

mod compressed;
mod control_plane;
mod echo;
mod frames;
mod handshake;

pub(crate) use handshake::Refused;

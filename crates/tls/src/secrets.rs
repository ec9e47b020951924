//! The traffic secrets of a handshake, which rustls tells only to a log of keys.
//!
//! `rustls::ExtractedSecrets` has keys and nonces, but not the secrets that they come from. Without these no later `KeyUpdate` can be
//! followed (RFC 8446, 7.2).

use std::cell::RefCell;

use rustls::KeyLog;
use zeroize::Zeroizing;

use crate::suite::SECRET;

/// The log of keys that a `ServerConfig` or `ClientConfig` needs, so that its handshakes become [`Records`](crate::Records).
///
/// It writes nothing anywhere. rustls calls it while it reads a record, on the thread that reads. So the secrets of a call are those of
/// the connection that was called, if they are taken behind that very call.
#[derive(Debug, Default)]
pub struct Secrets;

/// The first application traffic secrets of both ends.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) client: Option<Zeroizing<[u8; SECRET]>>,
    pub(crate) server: Option<Zeroizing<[u8; SECRET]>>,
}

thread_local! {
    static HEARD: RefCell<Traffic> = RefCell::default();
}

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut kept = Zeroizing::new([0; SECRET]);
        let Some(place) = kept.get_mut(..secret.len()) else {
            return;
        };
        place.copy_from_slice(secret);
        HEARD.with_borrow_mut(|heard| match label {
            CLIENT => heard.client = Some(kept),
            SERVER => heard.server = Some(kept),
            _ => {}
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | SERVER)
    }
}

impl Traffic {
    /// Before a call to rustls: forgets what other connections have told on this thread.
    pub(crate) fn listen() {
        drop(HEARD.take());
    }

    /// Adds what the call that has just ended told.
    pub(crate) fn hear(&mut self) {
        let heard = HEARD.take();
        self.client = self.client.take().or(heard.client);
        self.server = self.server.take().or(heard.server);
    }
}

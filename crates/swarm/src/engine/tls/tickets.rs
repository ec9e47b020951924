//! Sessions that clients may resume.
//!
//! A client that connects for the first time has no session: its handshake is a full one. When it comes back, its session is
//! the one that it had, or one of another client of the same server, which costs the server the same. So one store serves the
//! crowd, and what it keeps is bounded by the number of clients.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_rustls::rustls::NamedGroup;
use tokio_rustls::rustls::client::{
    ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use tokio_rustls::rustls::pki_types::ServerName;

/// What is known of one server.
#[derive(Debug, Default)]
struct Server {
    tls12: Option<Tls12ClientSessionValue>,
    /// Each is used once (RFC 8446, appendix C.4). The oldest goes first.
    tls13: VecDeque<Tls13ClientSessionValue>,
}

#[derive(Debug)]
struct Store {
    servers: Mutex<HashMap<ServerName<'static>, Server>>,
    /// Most tickets of one server.
    tickets_max: usize,
}

/// The sessions as one kind of client sees them.
#[derive(Debug)]
pub(crate) struct Tickets {
    store: Arc<Store>,
    may_take: bool,
}

impl Tickets {
    /// For clients that connect for the first time, and for those that were connected before.
    pub(crate) fn both(clients: usize) -> (Self, Self) {
        let store = Arc::new(Store {
            servers: Mutex::default(),
            tickets_max: clients.max(1),
        });
        let seen_by = |may_take| Self {
            store: Arc::clone(&store),
            may_take,
        };
        (seen_by(false), seen_by(true))
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Server>> {
        // Whatever a panicking thread left is a set of sessions still.
        let servers = self.store.servers.lock();
        servers.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    // Every client begins with the group that the provider prefers: what another one learned is no knowledge of its own.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.servers().entry(name).or_default().tls12 = Some(value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        if !self.may_take {
            return None;
        }
        self.servers().get(&name.to_owned())?.tls12.clone()
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(server) = self.servers().get_mut(name) {
            server.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut servers = self.servers();
        let tickets = &mut servers.entry(name).or_default().tls13;
        if tickets.len() >= self.store.tickets_max {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        if !self.may_take {
            return None;
        }
        self.servers().get_mut(name)?.tls13.pop_back()
    }
}

//! Where the keys of a connection stood, nothing of them is left when it has gone.
//!
//! The memory itself is looked at, through the kernel: a reference to a place whose record has gone would not do.

use super::*;
use crate::Connection;
use myriad_wheel::Key;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bytes of a place in this process.
struct Place {
    address: usize,
    before: Vec<u8>,
}

fn read(address: usize, count: usize) -> Vec<u8> {
    let memory = File::open("/proc/self/mem").expect("our own memory");
    let mut bytes = vec![0; count];
    memory
        .read_exact_at(&mut bytes, address as u64)
        .expect("memory that stays");
    bytes
}

impl Place {
    fn of(connection: &Connection) -> Self {
        let address = std::ptr::from_ref(connection).addr();
        let before = read(address, size_of::<Connection>());
        let random = before.iter().filter(|byte| **byte != 0).count();
        assert!(random > 100, "keys of both directions: {random} bytes");
        Self { address, before }
    }

    /// Bytes in a row that are as they were. Flags and a pointer may be so, by chance.
    fn check_wiped(&self) {
        let now = read(self.address, self.before.len());
        let same = self.before.iter().zip(&now);
        let same: Vec<bool> = same.map(|(old, new)| *old != 0 && old == new).collect();
        let longest = same.split(|is_same| !is_same).map(<[bool]>::len).max();
        assert!(longest < Some(8), "{longest:?} bytes of {:?}", self.before);
    }
}

/// A stage with one connection whose handshake has ended, and the connection's key.
fn established() -> (SimNet, TlsStage<Sim>, Server, Key) {
    let net = SimNet::new(7, Faults::NONE);
    let (mut stage, _) = stage(&net, 10);
    let mut server = Server::default();
    let mut clients = [Client::new(&net, client(&[&version::TLS13]))];
    clients[0].say(b"x");
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got == b"x"
    });
    let tls = stage.tls.as_ref().expect("a stage with TLS");
    let key = tls.secured.key_of(0).expect("the first place");
    (net, stage, server, key)
}

fn place_of(stage: &TlsStage<Sim>, key: Key) -> Place {
    let tls = stage.tls.as_ref().expect("a stage with TLS");
    Place::of(&tls.secured.get(key).expect("a record").connection)
}

#[test]
fn keys_of_a_closed_connection_are_wiped() {
    for how in [Close::Reset, Close::Orderly] {
        let (_net, mut stage, server, key) = established();
        let place = place_of(&stage, key);
        let echo = server.open.values().next().expect("a connection");
        stage.close(echo.socket, echo.token, how);
        place.check_wiped();
    }
}

#[test]
fn keys_of_a_connection_that_changes_its_owner_are_wiped_where_they_were() {
    let (_net, mut stage, server, key) = established();
    let place = place_of(&stage, key);
    let echo = server.open.values().next().expect("a connection");
    let mut carried = stage
        .transfer(echo.socket, echo.token)
        .expect("a connection");
    place.check_wiped();
    // The box stays here, so that its memory is nobody else's.
    let connection = carried.tls.as_mut().expect("TLS");
    let place = Place::of(connection);
    let moved = connection.take_out();
    place.check_wiped();
    assert!(!moved.is_over(), "it goes on elsewhere");
}

#[test]
fn keys_of_a_connection_that_cannot_go_on_are_wiped() {
    let (_net, mut stage, _server, key) = established();
    let place = place_of(&stage, key);
    let tls = stage.tls.as_mut().expect("a stage with TLS");
    tls.secured.get_mut(key).expect("a record").connection.end();
    place.check_wiped();
}

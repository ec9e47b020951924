//! Several listeners of one reactor.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Real, on_both, token};
use myriad_reactor::{Close, Completion, Completions, Setup, Waker, listen};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

on_both!(
    each_connection_says_which_listener_took_it,
    a_full_reactor_takes_from_both_listeners_again,
);

/// A reactor with two listeners, and their addresses.
fn two<R: Real>(sockets_max: usize) -> (R, [SocketAddr; 2]) {
    let listeners: Vec<_> = (0..2)
        .map(|_| listen(([127, 0, 0, 1], 0).into(), 64, None, false).unwrap())
        .collect();
    let addresses = [0, 1].map(|nth: usize| listeners[nth].local_addr().unwrap());
    let setup = Setup {
        waker: Waker::new().unwrap(),
        listeners,
        sockets_max,
        reactors: 1,
        speaks_first: false,
    };
    let mut reactor = R::make(setup).unwrap();
    reactor.accept(true);
    (reactor, addresses)
}

/// Waits until so many connections were accepted.
fn accepted<R: Real>(reactor: &mut R, count: usize) -> Vec<(myriad_reactor::Socket, u8)> {
    let mut completions = Completions::new();
    let mut taken = Vec::new();
    while taken.len() < count {
        let patience = Some(Duration::from_secs(60));
        reactor.wait(patience, &mut completions).unwrap();
        for completion in &completions.list {
            if let Completion::Accepted { socket, listener } = completion {
                taken.push((*socket, *listener));
            }
        }
    }
    taken
}

fn each_connection_says_which_listener_took_it<R: Real>() {
    let (mut reactor, addresses) = two::<R>(64);
    let counts = [3, 5];
    let mut clients: Vec<TcpStream> = Vec::new();
    for (address, count) in addresses.iter().zip(counts) {
        clients.extend((0..count).map(|_| TcpStream::connect(address).unwrap()));
    }
    let taken = accepted(&mut reactor, counts.iter().sum());
    let sockets: Vec<_> = taken.iter().map(|(socket, _)| *socket).collect();
    let mut peers = Vec::new();
    reactor.peer_addresses(&sockets, &mut peers);
    for ((_, listener), peer) in taken.iter().zip(peers) {
        let client = clients
            .iter()
            .find(|client| Some(client.local_addr().unwrap()) == peer)
            .unwrap();
        let address = addresses[usize::from(*listener)];
        assert_eq!(client.peer_addr().unwrap(), address);
    }
}

fn a_full_reactor_takes_from_both_listeners_again<R: Real>() {
    let (mut reactor, addresses) = two::<R>(2);
    let clients: Vec<_> = (0..4)
        .map(|nth| TcpStream::connect(addresses[nth % 2]).unwrap())
        .collect();
    let mut taken = accepted(&mut reactor, 2);
    for (socket, _) in &taken {
        reactor.close(*socket, token(1), Close::Orderly);
    }
    taken.extend(accepted(&mut reactor, 2));
    let mut listeners: Vec<u8> = taken.iter().map(|(_, listener)| *listener).collect();
    listeners.sort_unstable();
    assert_eq!(listeners, [0, 0, 1, 1]);
    drop(clients);
}

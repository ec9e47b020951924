//! What the stage keeps in memory, and whether its caller knows. [`Server::turn`] compares both in all tests.

use super::*;

/// What the caller knows about its only connection.
fn known(server: &Server) -> usize {
    server.open.values().map(|echo| echo.buffered).sum()
}

fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    client(&[&version::TLS13])
        .write_tls(&mut hello)
        .expect("memory");
    hello
}

/// The last byte of it is all that is missing.
#[test]
fn the_part_of_a_hello_is_known() {
    let whole = hello();
    for workers in [None, Some(Workers::without_threads())] {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, _) = stage_with(&net, 2, workers);
        let mut server = Server::default();
        let peer = net.connect();
        for byte in &whole[..whole.len() - 1] {
            net.write(peer, &[*byte]);
            server.turn(&mut stage);
        }
        assert!(known(&server) >= whole.len() - 1, "{}", known(&server));
        net.reset(peer);
        for _ in 0..5 {
            server.turn(&mut stage);
        }
        assert_eq!(known(&server), 0);
    }
}

/// A record of it has come whole and is not in the buffers any more: it waits with the handshake for the rest of its message.
#[test]
fn records_whose_message_is_not_whole_are_known() {
    let message = hello()[5..].to_vec();
    let workers = Workers::without_threads();
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, _) = stage_with(&net, 2, Some(workers.clone()));
    let mut server = Server::default();
    let peer = net.connect();
    let part = &message[..message.len() - 1];
    let length = u16::try_from(part.len()).expect("short").to_be_bytes();
    net.write(peer, &[&[22, 3, 1, length[0], length[1]], part].concat());
    for _ in 0..10 {
        server.turn(&mut stage);
    }
    assert!(known(&server) > part.len(), "a thread has it");
    assert!(workers.make_step());
    server.turn(&mut stage);
    assert!(known(&server) > part.len(), "the handshake has it");
}

#[test]
fn a_hello_that_is_longer_than_any_is_refused_at_once() {
    // It says so, or its records take more than a record may.
    let announced = vec![22, 3, 1, 0, 5, 1, 0, 0x40, 1, 3];
    let mut many = Vec::new();
    for nth in 0..200 {
        let start: [u8; 4] = if nth == 0 { [1, 0, 0x3f, 0xf0] } else { [0; 4] };
        many.extend([22, 3, 1, 0, 100]);
        many.extend(start);
        many.extend([0; 96]);
    }
    for said in [announced, many] {
        let (got, figures) = answer_to(&said);
        assert_eq!(got, [21, 3, 3, 0, 2, 2, 47], "illegal_parameter");
        assert_eq!(figures.failed[Failure::Protocol as usize].load(Relaxed), 1);
    }
}

#[test]
fn the_part_of_a_record_behind_the_handshake_is_known() {
    for version in [&version::TLS13, &version::TLS12] {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, _) = stage(&net, 2);
        let mut server = Server::default();
        let mut clients = [Client::new(&net, client(&[version]))];
        clients[0].say(b"hello");
        run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
            clients[0].got == b"hello"
        });
        assert_eq!(known(&server), 0, "an idle connection keeps nothing");
        net.write(clients[0].peer, &[23, 3, 3, 0x40, 0]);
        net.write(clients[0].peer, &[7; 10_000]);
        for _ in 0..10 {
            server.turn(&mut stage);
        }
        assert!(known(&server) > 10_000);
        net.reset(clients[0].peer);
        for _ in 0..5 {
            server.turn(&mut stage);
        }
        assert_eq!(stage.buffered_bytes(), 0);
    }
}

#[test]
fn the_rest_of_a_record_that_the_socket_does_not_take_is_known() {
    let faults = Faults {
        kernel_bytes: (1_000, 1_000),
        ..Faults::NONE
    };
    let net = SimNet::new(1, faults);
    let (mut stage, _) = stage(&net, 2);
    let mut server = Server::default();
    let mut clients = [Client::new(&net, client(&[&version::TLS13]))];
    clients[0].say(b"hello");
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got == b"hello"
    });
    server.open.get_mut(&0).expect("a connection").owed = vec![7; 10_000];
    server.turn(&mut stage);
    server.turn(&mut stage);
    assert!(known(&server) > 8_000, "{}", known(&server));
    run(&net, &mut stage, &mut server, &mut clients, |clients, _| {
        clients[0].got.len() == 10_005
    });
    server.turn(&mut stage);
    server.turn(&mut stage);
    assert_eq!(known(&server), 0);
}

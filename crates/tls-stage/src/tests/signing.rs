//! Signatures on other threads. Here there is no thread: each test says when a signature is made.

use super::*;

/// A stage whose signatures wait for [`Workers::make_step`].
fn slow_stage(net: &SimNet, handshakes_max: usize) -> (TlsStage<Sim>, Arc<Figures>, Workers) {
    let workers = Workers::without_threads();
    let (stage, figures) = stage_with(net, handshakes_max, Some(workers.clone()));
    (stage, figures, workers)
}

/// Clients that have said hello, once all of their hellos wait for a signature.
fn queued(
    net: &SimNet,
    stage: &mut TlsStage<Sim>,
    server: &mut Server,
    count: usize,
) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count)
        .map(|_| Client::new(net, client(&[&version::TLS13])))
        .collect();
    for client in &mut clients {
        client.say(b"hello");
    }
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| client.turn(net));
        server.turn(stage);
    }
    clients
}

fn is_greeted(clients: &[Client], _: &Server) -> bool {
    clients.iter().all(|client| client.got == b"hello")
}

#[test]
fn who_has_gone_costs_no_signature() {
    for is_reset in [true, false] {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, figures, workers) = slow_stage(&net, 4);
        let mut server = Server::default();
        for round in 0..50 {
            let gone = queued(&net, &mut stage, &mut server, 4);
            assert_eq!(workers.waiting(), 4, "round {round}");
            assert_eq!(figures.signing.load(Relaxed), 4);
            for client in &gone {
                match is_reset {
                    true => net.reset(client.peer),
                    false => net.close(client.peer),
                }
            }
            for _ in 0..20 {
                server.turn(&mut stage);
            }
            assert_eq!(workers.waiting(), 0, "round {round}");
            assert_eq!(figures.signing.load(Relaxed), 0);
            assert_eq!(figures.under_way.load(Relaxed), 0);
        }
        let mut clients = queued(&net, &mut stage, &mut server, 1);
        assert!(workers.make_step(), "the only one");
        run(&net, &mut stage, &mut server, &mut clients, is_greeted);
        assert!(!workers.make_step());
        assert_eq!(figures.full.load(Relaxed), 1);
    }
}

/// The caller may end a connection at any time, and the place of its record goes to the next one.
#[test]
fn a_signature_that_comes_too_late_is_nobodys() {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures, workers) = slow_stage(&net, 1);
    let mut server = Server::default();
    let first = queued(&net, &mut stage, &mut server, 1);
    // Made, and not taken back before the client goes.
    assert!(workers.make_step());
    let (_, echo) = server.open.pop_first().expect("a connection");
    stage.close(echo.socket, echo.token, Close::Reset);
    assert_eq!(figures.signing.load(Relaxed), 0);
    let mut clients = queued(&net, &mut stage, &mut server, 1);
    assert_eq!(workers.waiting(), 1);
    assert_eq!(net.read(clients[0].peer), b"");
    assert!(workers.make_step());
    run(&net, &mut stage, &mut server, &mut clients, is_greeted);
    assert_eq!(figures.full.load(Relaxed), 1);
    drop(first);
}

#[test]
fn the_end_of_a_handshake_waits_behind_no_signature() {
    let versions: [&[&SupportedProtocolVersion]; 2] = [&[&version::TLS13], &[&version::TLS12]];
    for versions in versions {
        let net = SimNet::new(1, Faults::NONE);
        let (mut stage, figures, workers) = slow_stage(&net, 10);
        let mut server = Server::default();
        let mut clients = vec![Client::new(&net, client(versions))];
        clients[0].say(b"hello");
        for _ in 0..20 {
            clients[0].turn(&net);
            server.turn(&mut stage);
        }
        assert!(workers.make_step());
        let _others = queued(&net, &mut stage, &mut server, 5);
        run(&net, &mut stage, &mut server, &mut clients, is_greeted);
        assert_eq!(workers.waiting(), 5);
        assert_eq!(figures.full.load(Relaxed), 1);
    }
}

/// It is the server that is slow: others may wait in the line for as long as they like.
#[test]
fn who_waits_for_a_signature_keeps_its_place_and_its_time() {
    CLOCK_MS.set(0);
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, figures, workers) = slow_stage(&net, 1);
    let mut server = Server::default();
    let mut clients = queued(&net, &mut stage, &mut server, 1);
    let silent = net.connect();
    let pass = |stage: &mut TlsStage<Sim>, server: &mut Server, seconds: u64| {
        for _ in 0..seconds * 10 {
            CLOCK_MS.set(CLOCK_MS.get() + 100);
            server.turn(stage);
        }
    };
    let socket = server.open[&0].socket;
    assert_eq!(stage.held_up(socket), Duration::ZERO);
    pass(&mut stage, &mut server, 20);
    assert_eq!(stage.held_up(socket), Duration::from_secs(20));
    assert_eq!(
        figures.waiting.load(Relaxed),
        1,
        "the other one has no place"
    );
    assert!(workers.make_step());
    // A client on a slow network has two seconds for its answer all the same.
    pass(&mut stage, &mut server, 2);
    run(&net, &mut stage, &mut server, &mut clients, is_greeted);
    assert_eq!(stage.held_up(socket).as_secs(), 20);
    assert_eq!(figures.failed[Failure::Slow as usize].load(Relaxed), 0);
    // Nobody is held up who does not speak.
    server.turn(&mut stage);
    let third = net.connect();
    pass(&mut stage, &mut server, 5);
    assert_eq!(figures.failed[Failure::Slow as usize].load(Relaxed), 1);
    net.reset(silent);
    net.reset(third);
}

/// A hello in several records.
#[test]
fn each_record_of_a_hello_may_be_the_one_to_sign_for() {
    let net = SimNet::new(1, Faults::NONE);
    let (mut stage, _, workers) = slow_stage(&net, 1);
    let mut server = Server::default();
    let mut client = Client::new(&net, client(&[&version::TLS13]));
    let mut hello = Vec::new();
    client.tls.write_tls(&mut hello).expect("memory");
    for part in hello[5..].chunks(100) {
        let length = u8::try_from(part.len()).expect("100 at most");
        net.write(client.peer, &[&[22, 3, 1, 0, length], part].concat());
        for _ in 0..5 {
            server.turn(&mut stage);
        }
        assert_eq!(workers.waiting(), 1);
        assert!(workers.make_step());
    }
    client.say(b"hello");
    let mut clients = [client];
    run(&net, &mut stage, &mut server, &mut clients, is_greeted);
}

//! Handshakes with a client of rustls: every suite, both versions, tickets, certificates of clients, and bytes cut anywhere.

use std::io::{Read, Write};
use std::sync::Arc;

use myriad_tls::{
    Content, Established, Fault, Handshake, HandshakeFailed, Header, Heard, Opened, Progress,
    Protection, Records, Secrets, Suite,
};
use proptest::prelude::*;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedCipherSuite, version,
};

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

fn identity() -> Identity {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["push.example".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a root");
    Identity {
        chain: vec![cert.der().clone()],
        key: PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key"),
        roots: Arc::new(roots),
    }
}

fn server_config(own: &Identity, clients: Option<&Identity>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        Some(clients) => {
            let provider = Arc::new(aws_lc_rs::default_provider());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&clients.roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("roots"))
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(own.chain.clone(), own.key.clone_key())
        .expect("a pair");
    config.key_log = Arc::new(Secrets);
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new().expect("keys of tickets");
    config.send_tls13_tickets = 1;
    Arc::new(config)
}

fn client_config(
    server: &Identity,
    own: Option<&Identity>,
    suites: Vec<SupportedCipherSuite>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let provider = CryptoProvider {
        cipher_suites: suites,
        ..aws_lc_rs::default_provider()
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(Arc::clone(&server.roots));
    let mut config = match own {
        Some(own) => builder
            .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
            .expect("a pair"),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

fn tls13(server: &Identity) -> Arc<ClientConfig> {
    client_config(
        server,
        None,
        aws_lc_rs::ALL_CIPHER_SUITES.to_vec(),
        &[&version::TLS13],
    )
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(
        Arc::clone(config),
        "push.example".try_into().expect("a name"),
    )
    .expect("a client")
}

/// Everything that the client has to send.
fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut sent = vec![];
    while client.wants_write() {
        client.write_tls(&mut sent).expect("memory");
    }
    sent
}

/// Gives the client these bytes. What it reads of them.
fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut heard = vec![];
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("memory");
        client.process_new_packets()?;
        // The end of what is there is "would block".
        let _ = client.reader().read_to_end(&mut heard);
    }
    Ok(heard)
}

type ServerHandshake = Handshake<UnbufferedServerConnection>;

fn begin(config: &Arc<ServerConfig>) -> ServerHandshake {
    let connection = UnbufferedServerConnection::new(Arc::clone(config)).expect("a configuration");
    let mut said = vec![];
    let handshake = Handshake::new(connection, &mut said).expect("a configuration");
    assert!(said.is_empty(), "a server speaks second");
    handshake
}

type Ended = (Box<Established<UnbufferedServerConnection>>, Vec<u8>);

/// Makes a handshake. What the client sent behind it is left in the second value.
fn establish(
    client: &mut ClientConnection,
    config: &Arc<ServerConfig>,
) -> Result<Ended, HandshakeFailed> {
    let mut handshake = begin(config);
    let mut input = vec![];
    loop {
        input.extend(sent_by(client));
        let whole = ServerHandshake::record(&input)
            .expect("records")
            .expect("the client has something to say");
        let record: Vec<u8> = input.drain(..whole).collect();
        let mut answers = vec![];
        let progress = handshake.receive(&record, &mut answers);
        // A refusal of the client's is for the client.
        let _ = give(client, &answers);
        handshake = match progress? {
            Progress::Continues(handshake) => handshake,
            Progress::Ends(established) => {
                input.extend(sent_by(client));
                return Ok((established, input));
            }
        };
    }
}

fn records(established: Box<Established<UnbufferedServerConnection>>) -> Records {
    match established.protection {
        Protection::Records { records, .. } => records,
        Protection::Legacy(_) => panic!("a client of TLS 1.3"),
    }
}

/// The data of all whole records at the start of `input`, which they leave.
fn open_all(records: &mut Records, input: &mut Vec<u8>) -> Result<Vec<u8>, Fault> {
    let mut data = vec![];
    while let Opened::Record { whole, content } = records.open(input)? {
        if let Content::Data(range) = content {
            data.extend_from_slice(&input[range]);
        }
        input.drain(..whole);
    }
    Ok(data)
}

#[test]
fn every_suite_ends_in_records_that_both_ends_read() {
    let own = identity();
    let config = server_config(&own, None);
    for (suite, expected) in [
        (
            aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
            Suite::Aes128Gcm,
        ),
        (
            aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            Suite::Aes256Gcm,
        ),
        (
            aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            Suite::ChaCha20Poly1305,
        ),
    ] {
        let mut client = client(&client_config(&own, None, vec![suite], &[&version::TLS13]));
        let (established, mut input) = establish(&mut client, &config).expect("a handshake");
        assert_eq!(established.alpn.as_deref(), Some(b"http/1.1".as_slice()));
        assert!(!established.is_resumed);
        let mut records = records(established);
        assert_eq!(records.suite(), expected);
        for round in 0..3 {
            client.writer().write_all(b"GET /").expect("memory");
            input.extend(sent_by(&mut client));
            assert_eq!(
                open_all(&mut records, &mut input),
                Ok(b"GET /".to_vec()),
                "{expected:?}, round {round}"
            );
            let mut sealed = vec![];
            records.seal(b"200", &mut sealed);
            assert_eq!(give(&mut client, &sealed).expect("ours"), b"200");
            // Each end changes its keys in turn, and the other one follows.
            client.refresh_traffic_keys().expect("TLS 1.3");
            let mut update = vec![];
            records.refresh(&mut update);
            give(&mut client, &update).expect("ours");
        }
    }
}

/// rustls would leave the answer to such a `KeyUpdate` queued, and take a key that the client does not know yet.
#[test]
fn a_key_update_in_one_buffer_with_finished_is_followed() {
    let own = identity();
    let config = server_config(&own, None);
    let mut client = client(&tls13(&own));
    let mut handshake = begin(&config);
    let (mut input, mut answers) = (sent_by(&mut client), vec![]);
    let whole = ServerHandshake::record(&input)
        .expect("a record")
        .expect("whole");
    handshake = match handshake
        .receive(&input.drain(..whole).collect::<Vec<_>>(), &mut answers)
        .expect("a hello")
    {
        Progress::Continues(handshake) => handshake,
        Progress::Ends(_) => panic!("no Finished has come"),
    };
    give(&mut client, &answers).expect("ours");
    answers.clear();
    client.refresh_traffic_keys().expect("behind the handshake");
    client.writer().write_all(b"data").expect("memory");
    input.extend(sent_by(&mut client));
    let mut records = loop {
        let whole = ServerHandshake::record(&input)
            .expect("a record")
            .expect("whole");
        match handshake
            .receive(&input.drain(..whole).collect::<Vec<_>>(), &mut answers)
            .expect("a handshake")
        {
            Progress::Continues(next) => handshake = next,
            Progress::Ends(established) => break records(established),
        }
    };
    assert_eq!(open_all(&mut records, &mut input), Ok(b"data".to_vec()));
    let mut sealed = answers;
    records.seal(b"answer", &mut sealed);
    assert_eq!(give(&mut client, &sealed).expect("ours"), b"answer");
}

#[test]
fn a_ticket_spares_the_second_handshake_its_signature() {
    let own = identity();
    let (config, clients) = (server_config(&own, None), tls13(&own));
    for is_resumed in [false, true] {
        let mut client = client(&clients);
        let (established, _) = establish(&mut client, &config).expect("a handshake");
        assert_eq!(established.is_resumed, is_resumed);
        let (mut records, mut sealed) = (records(established), vec![]);
        records.seal(b"hello", &mut sealed);
        assert_eq!(give(&mut client, &sealed).expect("ours"), b"hello");
    }
}

#[test]
fn a_client_shows_its_certificate_and_one_without_is_told_why_not() {
    let (own, user) = (identity(), identity());
    let config = server_config(&own, Some(&user));
    let suites = || aws_lc_rs::ALL_CIPHER_SUITES.to_vec();
    let mut known = client(&client_config(
        &own,
        Some(&user),
        suites(),
        &[&version::TLS13],
    ));
    let (established, _) = establish(&mut known, &config).expect("a handshake");
    assert_eq!(established.certificates, vec![user.chain[0].to_vec()]);

    let mut unknown = client(&client_config(&own, None, suites(), &[&version::TLS13]));
    let failed = establish(&mut unknown, &config)
        .err()
        .expect("no certificate");
    assert!(
        matches!(
            failed,
            HandshakeFailed::Refused(rustls::Error::NoCertificatesPresented)
        ),
        "{failed}"
    );
    let error = unknown.process_new_packets().expect_err("an alert");
    assert_eq!(
        error,
        rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired)
    );
}

#[test]
fn a_client_of_tls_1_2_is_served_by_rustls() {
    let own = identity();
    let config = server_config(&own, None);
    let mut client = client(&client_config(
        &own,
        None,
        aws_lc_rs::ALL_CIPHER_SUITES.to_vec(),
        &[&version::TLS12],
    ));
    let (established, mut input) = establish(&mut client, &config).expect("a handshake");
    let Protection::Legacy(mut legacy) = established.protection else {
        panic!("TLS 1.2")
    };
    for length in [1, 16_384, 50_000] {
        let text = vec![b'x'; length];
        let (mut data, mut answers, mut sealed) = (vec![], vec![], vec![]);
        for part in text.chunks(10_000) {
            client.writer().write_all(part).expect("memory");
            input.extend(sent_by(&mut client));
        }
        while let Some(whole) = ServerHandshake::record(&input).expect("records") {
            let mut record: Vec<u8> = input.drain(..whole).collect();
            assert_eq!(
                legacy.open(&mut record, &mut data, &mut answers),
                Ok(Heard::Data)
            );
        }
        assert_eq!(data, text);
        assert!(legacy.seal(&text, &mut sealed));
        let mut heard = vec![];
        for part in sealed.chunks(4_000) {
            heard.extend(give(&mut client, part).expect("ours"));
        }
        assert_eq!(heard, text);
    }
    client.send_close_notify();
    let mut record = sent_by(&mut client);
    assert_eq!(
        legacy.open(&mut record, &mut vec![], &mut vec![]),
        Ok(Heard::Closed)
    );
    let mut close = vec![];
    legacy.close(&mut close);
    let whole = close.len();
    assert!(!legacy.seal(b"data", &mut close));
    // An alert answers what is no record, but none follows a `close_notify`.
    let is_taken = legacy.open(&mut [0; 7], &mut vec![], &mut close);
    assert!(is_taken.is_err());
    assert_eq!(close.len(), whole);
    give(&mut client, &close).expect("ours");
    assert!(
        client
            .process_new_packets()
            .expect("a close")
            .peer_has_closed()
    );
}

#[test]
fn what_is_no_tls_is_seen_at_its_first_byte() {
    assert_eq!(
        ServerHandshake::record(b"GET / HTTP/1.1\r\n"),
        Err(Fault::Unexpected(b'G'))
    );
    assert_eq!(ServerHandshake::record(b""), Ok(None));
}

/// Every byte of a client's hello is changed in turn. Some changes are harmless, but none may panic, and a failure has its alert.
#[test]
fn no_changed_hello_does_more_than_fail() {
    let own = identity();
    let config = server_config(&own, None);
    let hello = sent_by(&mut client(&tls13(&own)));
    for place in 5..hello.len() {
        let mut changed = hello.clone();
        changed[place] ^= 0x41;
        let mut answers = vec![];
        let handshake = begin(&config);
        match handshake.receive(&changed, &mut answers) {
            Ok(Progress::Ends(_)) => panic!("a hello ends no handshake"),
            Ok(Progress::Continues(_)) => {}
            Err(failed) => {
                // Behind our hello, if that has left already: then it is encrypted.
                let mut rest = &answers[..];
                let mut last = None;
                while let Some(header) = Header::read(rest).expect("our records") {
                    last = Some(header.kind);
                    rest = &rest[header.whole()..];
                }
                assert!(matches!(last, Some(21 | 23)), "byte {place}: {failed}");
            }
        }
    }
}

#[test]
fn a_message_that_does_not_end_is_bounded() {
    let own = identity();
    let config = server_config(&own, None);
    let mut handshake = begin(&config);
    // A hello that announces 16 MB, in records that are as long as they may be.
    let mut record = vec![22, 3, 1, 0x40, 0x00];
    record.extend_from_slice(&[1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    for _ in 0..8 {
        handshake = match handshake.receive(&record, &mut vec![]) {
            Ok(Progress::Continues(handshake)) => handshake,
            Ok(Progress::Ends(_)) => panic!("no hello has come"),
            Err(_) => return,
        };
    }
    panic!("128 KiB wait for the rest of a hello");
}

#[derive(Clone, Debug)]
enum Step {
    ClientWrites(usize),
    ServerWrites(usize),
    ClientUpdates,
    ServerUpdates,
    Snapshot,
    /// That many bytes of what is under way arrive at the server.
    ServerReads(usize),
    ClientReads(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..40_000_usize).prop_map(Step::ClientWrites),
        (0..40_000_usize).prop_map(Step::ServerWrites),
        Just(Step::ClientUpdates),
        Just(Step::ServerUpdates),
        Just(Step::Snapshot),
        (1..30_000_usize).prop_map(Step::ServerReads),
        (1..30_000_usize).prop_map(Step::ClientReads),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever both ends do, and wherever bytes are cut, each reads what the other wrote.
    #[test]
    fn both_ends_read_what_was_written(steps in proptest::collection::vec(step(), 1..60), suite in 0..3_usize) {
        let own = identity();
        let suite = aws_lc_rs::ALL_CIPHER_SUITES[suite];
        let mut client = client(&client_config(&own, None, vec![suite], &[&version::TLS13]));
        let (established, mut to_server) = establish(&mut client, &server_config(&own, None)).expect("a handshake");
        let mut server = records(established);
        let (mut to_client, mut input) = (vec![], vec![]);
        let (mut written, mut read) = ([vec![], vec![]], [vec![], vec![]]);
        let mut number = 0_u8;
        let mut quiet = 0;
        for step in steps.into_iter().chain([Step::ServerReads(usize::MAX), Step::ClientReads(usize::MAX)]) {
            number = number.wrapping_add(1);
            match step {
                Step::ClientWrites(length) => {
                    let text = vec![number; length];
                    // The buffer of rustls is bounded: what it takes was written.
                    let taken = client.writer().write(&text).expect("memory");
                    written[0].extend_from_slice(&text[..taken]);
                    quiet = if taken > 0 { 0 } else { quiet };
                }
                Step::ServerWrites(length) => {
                    let text = vec![number; length];
                    server.seal(&text, &mut to_client);
                    written[1].extend_from_slice(&text);
                }
                // More in a row than we allow would end the connection.
                Step::ClientUpdates if quiet < 8 => {
                    client.refresh_traffic_keys().expect("TLS 1.3");
                    quiet += 1;
                }
                Step::ServerUpdates if quiet < 8 => {
                    server.refresh(&mut to_client);
                    quiet += 1;
                }
                Step::ClientUpdates | Step::ServerUpdates => {}
                Step::Snapshot => server = Records::from_bytes(&server.to_bytes()).expect("as written"),
                Step::ServerReads(bytes) => {
                    to_server.extend(sent_by(&mut client));
                    let cut = bytes.min(to_server.len());
                    input.extend(to_server.drain(..cut));
                    read[1].extend(open_all(&mut server, &mut input).expect("the client's"));
                    server.answer(&mut to_client);
                }
                Step::ClientReads(bytes) => {
                    let cut = bytes.min(to_client.len());
                    for part in to_client.drain(..cut).collect::<Vec<_>>().chunks(4_000) {
                        read[0].extend(give(&mut client, part).expect("ours"));
                    }
                }
            }
            to_server.extend(sent_by(&mut client));
        }
        prop_assert_eq!(&read[1], &written[0]);
        prop_assert_eq!(&read[0], &written[1]);
    }
}

//! Terminals with TLS, over real sockets, against servers that terminate it.

use super::counts;
use crate::support::{SHORT_SETTLE, drivers, run};
use myriad_swarm::{
    Ca, Config, Ended, Ending, Endpoint, LiveStyle, Outcome, Protocol, Publish, PublishBody,
    Report, Requests, Scenario, Target, Threshold, Tls,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

type Stream = StreamOwned<ServerConnection, TcpStream>;

static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
});

fn server_config(name: &str, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &*AUTHORITY).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate.der().clone()], key);
    Arc::new(config.unwrap())
}

/// Serves each connection with TLS on a thread of its own.
fn serve(config: Arc<ServerConfig>, serve: impl Fn(Stream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, serve) = (Arc::clone(&config), Arc::clone(&serve));
            let connection = ServerConnection::new(config).unwrap();
            let stream = StreamOwned::new(connection, stream.unwrap());
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Sends each text message back, and closes when it is asked to.
fn echo(stream: Stream) {
    // A terminal that does not trust the server is no client.
    let Ok(mut client) = tungstenite::accept(stream) else {
        return;
    };
    while let Ok(message) = client.read() {
        if message.is_text() && client.send(message).is_err() {
            return;
        }
    }
    // The close handshake is over; the end of TLS and TCP follows.
    let stream = client.get_mut();
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn config(url: &str, connections: u64) -> Config {
    let mut config = Config::new(vec![Target::parse(url).unwrap()], connections);
    config.live = LiveStyle::Off;
    config.retries = 0;
    config.duration = Some(Duration::from_millis(300));
    let ca = Ca::parse("ca.pem", AUTHORITY.pem().as_bytes()).unwrap();
    config.tls = Tls {
        ca: Some(ca),
        ..Tls::default()
    };
    config
}

/// Lets a run go on until a condition fails, however long that takes.
fn until(config: &mut Config, condition: &str) {
    let threshold = Threshold::parse(condition).unwrap();
    config.thresholds = vec![threshold.aborting_after(Duration::ZERO)];
    config.duration = Some(Duration::from_secs(60));
}

/// A run that nobody connects in, and the first example of its one kind of failure.
fn refused(config: &Config, kind: &str) -> (Report, String) {
    let report = run(config);
    assert_eq!(report.outcome, Outcome::NobodyConnected);
    assert_eq!(report.errors, counts(&[(kind, config.connections)]));
    let said = report.server_said[kind].clone();
    (report, said)
}

#[test]
fn echoes_come_back_over_tls() {
    for driver in drivers() {
        for version in [&TLS12, &TLS13] {
            let address = serve(server_config("127.0.0.1", version), echo);
            let mut config = config(&format!("wss://{address}/echo"), 20);
            config.driver = Some(driver);
            config.ending = Ending::Orderly;
            config.echo = Some(myriad_swarm::Echo::new(400.0));
            let echo = config.echo.as_mut().unwrap();
            (echo.warmup, echo.payload_bytes) = (Duration::ZERO, 20_000);
            config.thresholds = vec![Threshold::parse("echo:lost==0").unwrap()];
            let report = run(&config);
            assert_eq!(report.outcome, Outcome::Finished, "{:?}", report.errors);
            assert_eq!(report.errors, counts(&[]));
            assert_eq!((report.setup.connected, report.churn.impatient), (20, 0));
            let tls = report.setup.tls.unwrap();
            let tls12 = if std::ptr::eq(version, &TLS12) { 20 } else { 0 };
            assert_eq!((tls.handshakes, tls.resumed, tls.tls12), (20, 0, tls12));
            assert_eq!((tls.insecure, tls.ca.as_deref()), (false, Some("ca.pem")));
            assert!(tls.slowest_ms <= report.setup.slowest_ms);
        }
    }
}

#[test]
fn a_server_that_is_not_trusted_is_not_told_anything() {
    for driver in drivers() {
        let address = serve(server_config("other.example", &TLS13), |mut stream| {
            let read = stream.read(&mut [0]);
            assert!(read.is_err(), "a request was sent");
        });
        let mut config = config(&format!("wss://{address}/"), 3);
        config.driver = Some(driver);
        let (report, said) = refused(&config, "tls_name_mismatch");
        assert!(said.contains("other.example"), "{said}");
        let is_told = |warning: &String| warning.contains("--insecure");
        assert!(report.warnings.iter().any(is_told), "{:?}", report.warnings);
    }
}

#[test]
fn an_insecure_run_says_so() {
    let address = serve(server_config("other.example", &TLS13), echo);
    let mut config = config(&format!("wss://{address}/"), 3);
    config.tls = Tls {
        is_insecure: true,
        ..Tls::default()
    };
    let report = run(&config);
    assert_eq!(report.setup.connected, 3);
    assert!(report.setup.tls.unwrap().insecure);
    let is_said = |warning: &String| warning.contains("were not verified");
    assert!(report.warnings.iter().any(is_said), "{:?}", report.warnings);
}

#[test]
fn a_port_without_tls_is_quoted() {
    for driver in drivers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        let mut config = config(&format!("wss://{address}/"), 1);
        config.driver = Some(driver);
        let (_, said) = refused(&config, "tls_plain_text");
        assert!(said.starts_with("\"HTTP/1.1 400"), "{said}");
    }
}

#[test]
fn a_handshake_that_is_not_answered_times_out_as_one() {
    for driver in drivers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = config(&format!("wss://{}/", listener.local_addr().unwrap()), 2);
        config.driver = Some(driver);
        config.connect_timeout = Duration::from_secs(2);
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("tls_timeout", 2)]));
        assert_eq!(report.setup.tcp_connected, 0);
        assert_eq!(report.setup.tls.unwrap().handshakes, 0);
    }
}

#[test]
fn a_message_that_tcp_cut_off_is_told_from_an_end() {
    for driver in drivers() {
        let served = AtomicU32::new(0);
        let address = serve(server_config("127.0.0.1", &TLS13), move |stream| {
            let mut client = tungstenite::accept(stream).unwrap();
            client.read().unwrap();
            let stream = client.get_mut();
            if served.fetch_add(1, Ordering::Relaxed) == 0 {
                // A frame of 100 bytes, of which 3 come.
                stream.write_all(b"\x81\x64abc").unwrap();
            }
            let _ = stream.sock.shutdown(std::net::Shutdown::Write);
            // Until the client has closed too: a socket that is dropped with unread echoes sends RST, which can overtake the cut.
            while stream.sock.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
        });
        let mut config = config(&format!("wss://{address}/"), 2);
        config.driver = Some(driver);
        config.threads = Some(1);
        config.echo = Some(myriad_swarm::Echo::new(1000.0));
        config.echo.as_mut().unwrap().warmup = Duration::ZERO;
        until(&mut config, "lost<2");
        let report = run(&config);
        assert_eq!(report.churn.lost, 2);
        let expected = counts(&[("lost_end", 1), ("tls_truncated", 1)]);
        assert_eq!(report.errors, expected);
    }
}

/// Only a `close_notify` ends an answer that lasts until the end (RFC 9112, section 9.8).
#[test]
fn an_answer_without_a_length_that_tcp_cut_off_is_none() {
    for driver in drivers() {
        let address = serve(server_config("127.0.0.1", &TLS13), |mut stream| {
            let (mut byte, mut head) = ([0], Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                // A connection that nothing is asked on.
                if stream.read_exact(&mut byte).is_err() {
                    return;
                }
                head.push(byte[0]);
            }
            let answer = b"HTTP/1.1 200 OK\r\n\r\n{\"items\":[1,2,";
            stream.write_all(answer).unwrap();
            let _ = stream.sock.shutdown(std::net::Shutdown::Write);
            let _ = stream.sock.read(&mut [0]);
        });
        let text = format!(
            "[terminals]\ncount = 2\nprotocol = \"http\"\ntargets = [\"https://{address}\"]\n\
             [hold]\nduration = \"60s\"\nwarmup = \"0s\"\n\
             [[flows]]\nname = \"ask\"\nrate = 50\npath = \"/items\""
        );
        let scenario = Scenario::parse(Path::new("items.toml"), &text, &[]);
        let tls = config(&format!("https://{address}"), 2).tls;
        let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
        (config.driver, config.live, config.tls) = (Some(driver), LiveStyle::Off, tls);
        until(&mut config, "errors==0");
        let report = run(&config);
        let flow = &report.flows[0];
        assert_eq!(flow.received, 0, "{report:#?}");
        let cut_off = report.errors.get("tls_truncated").copied().unwrap_or(0);
        assert!(cut_off > 0, "{report:#?}");
        assert_eq!(report.errors, counts(&[("tls_truncated", cut_off)]));
        // The run ends at the first error. A request that each connection has under way then has no answer, and no error.
        let under_way = 2;
        assert!(
            (cut_off..=cut_off + under_way).contains(&flow.unanswered),
            "{report:#?}"
        );
    }
}

#[test]
fn a_server_may_close_a_websocket_over_tls() {
    for driver in drivers() {
        let address = serve(server_config("127.0.0.1", &TLS13), |stream| {
            let mut client = tungstenite::accept(stream).unwrap();
            let frame = tungstenite::protocol::CloseFrame {
                code: CloseCode::Away,
                reason: "over".into(),
            };
            client.close(Some(frame)).unwrap();
            while !matches!(client.read(), Err(_) | Ok(Message::Close(_))) {}
        });
        let mut config = config(&format!("wss://{address}/"), 2);
        config.driver = Some(driver);
        until(&mut config, "lost<2");
        let report = run(&config);
        assert_eq!(report.closes, counts(&[("1001", 2)]));
        assert_eq!(report.server_said["close_1001"], "\"over\"");
        assert_eq!(report.errors, counts(&[]));
    }
}

#[test]
fn polls_and_streams_are_held_over_tls() {
    for driver in drivers() {
        let address = serve(server_config("127.0.0.1", &TLS13), |mut stream| {
            let mut byte = [0];
            let mut head = Vec::new();
            while stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
                if !head.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let answer: &[u8] = match head.starts_with(b"GET /events") {
                    true => {
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"
                    }
                    false => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                };
                head.clear();
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
        for (path, protocol) in [("events", Protocol::Sse), ("poll", Protocol::LongPoll)] {
            let mut config = config(&format!("https://{address}/{path}"), 3);
            (config.driver, config.protocol) = (Some(driver), protocol);
            until(&mut config, "messages<3");
            let report = run(&config);
            assert_eq!(report.errors, counts(&[]), "{path}");
            assert_eq!(report.setup.connected, 3);
            assert!(report.messages.count >= 3);
            assert_eq!(report.setup.tls.unwrap().handshakes, 3);
        }
    }
}

/// Answers each request with its body.
fn repeat(stream: Stream) {
    let mut stream = std::io::BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if !matches!(stream.read_line(&mut line), Ok(1..)) {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let stream = stream.get_mut();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
    }
}

#[test]
fn requests_and_pushes_go_over_tls() {
    let address = serve(server_config("127.0.0.1", &TLS13), repeat);
    let endpoint = || Endpoint::parse(&format!("https://{address}/")).unwrap();
    let clients = serve(server_config("127.0.0.1", &TLS13), echo);
    let mut config = config(&format!("wss://{clients}/"), 1);
    config.requests = Some(Requests::new(vec![endpoint()], 200.0));
    config.requests.as_mut().unwrap().warmup = Duration::ZERO;
    let mut publish = Publish::new(endpoint(), Duration::from_millis(50));
    (publish.body, publish.warmup) = (PublishBody::Plain, Duration::ZERO);
    config.publish = Some(publish);
    // Nobody gets the pushes: what counts is who took them.
    config.settle = SHORT_SETTLE;
    until(&mut config, "request:received<1");
    let report = run(&config);
    let request = report.request.unwrap();
    assert!(
        request.received > 0 && request.lost == 0,
        "{:?}",
        report.errors
    );
    // The end of the run may have cut the last one short.
    let pushes = report.pushes.iter();
    let mut whole = pushes.filter(|push| push.ended != Ended::CutShort);
    assert!(report.pushes[0].accepted_ms.is_some());
    assert!(whole.all(|push| push.accepted_ms.is_some()));
    assert_eq!(report.errors, counts(&[]));
}

#[test]
fn a_request_that_trusts_nobody_says_whom_to_trust() {
    let address = serve(server_config("other.example", &TLS13), repeat);
    let clients = serve(server_config("127.0.0.1", &TLS13), echo);
    let mut config = config(&format!("wss://{clients}/"), 1);
    let endpoint = Endpoint::parse(&format!("https://{address}/")).unwrap();
    let mut requests = Requests::new(vec![endpoint], 20.0);
    requests.warmup = Duration::ZERO;
    config.requests = Some(requests);
    config.settle = Duration::from_secs(5);
    until(&mut config, "errors<1");
    let report = run(&config);
    assert!(
        report.errors["request_unanswered"] > 0,
        "{:?}",
        report.errors
    );
    let warning = report
        .warnings
        .iter()
        .find(|it| it.contains("no TLS with 127.0.0.1"));
    assert!(
        warning.is_some_and(|it| it.contains("other names")),
        "{:?}",
        report.warnings
    );
}

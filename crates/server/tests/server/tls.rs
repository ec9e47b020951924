//! TLS at the server's own address, with clients of rustls.

use crate::support::{
    Answer, Running, head, metric, next_text, on_both_drivers, options, publish_ok, start, until,
};
use myriad_server::{DriverChoice, Machine, Options};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version,
};
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tungstenite::WebSocket;

/// A certificate whose key is too short, until 2126. No library of these tests makes one.
const SHORT_RSA: &str = "\
-----BEGIN CERTIFICATE-----
MIICFzCCAYCgAwIBAgIUYVhgASgXDwoKaFPRhvEoDSZ3HjgwDQYJKoZIhvcNAQEL
BQAwEDEOMAwGA1UEAwwFc2hvcnQwIBcNMjYxMTI5MTAwNDA5WhgPMjEyNjExMDUx
MDA0MDlaMBAxDjAMBgNVBAMMBXNob3J0MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCB
iQKBgQDLoK7UUXisoMNCLqN1XnKqgq6SCkMPuwTX1ENmjRwuTBdjWXLJY/TV5lw/
S6nCGXjPdZgqVwuutX4EMK9oDPrloyZpyrsaOV0G4OhfuFYV6b5b5OggAPeaCfho
SCvJsPuLt5C6rDxLnDmA4nEXGct/R6WhUPfahx1U5QbDtNNcWwIDAQABo2wwajAd
BgNVHQ4EFgQU9WzOYNkmh+e/bg8CwMgLyfk1MKEwHwYDVR0jBBgwFoAU9WzOYNkm
h+e/bg8CwMgLyfk1MKEwDwYDVR0TAQH/BAUwAwEB/zAXBgNVHREEEDAOggxwdXNo
LmV4YW1wbGUwDQYJKoZIhvcNAQELBQADgYEAZJSRqvpMxLRS5iU+eGflOc8Yc2zH
RI1POgZfF0IAoj3A6yuHiqClXMY3v2Q3x4DmSXbrsNGrw6CSVoCxr53CDrItHp2E
+w9rE54zUOe2LBYEq+pobGGBmGCP1vqVkmbD9x7X2G1FTJESEXf1SbZ9YnQRMhTw
fM8D9IPLgz04/BE=
-----END CERTIFICATE-----
";

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A folder of certificates that goes with its test.
pub(crate) struct Folder {
    path: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Folder {
    pub(crate) fn new(name: &str, driver: DriverChoice) -> Self {
        let path = std::env::temp_dir().join(format!(
            "myriad-tls-{name}-{driver:?}-{}",
            std::process::id()
        ));
        fs::create_dir_all(&path).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self { path, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a certificate for `name` and its key.
    pub(crate) fn issue(&self, file: &str, name: &str) {
        self.issue_with(file, name, &KeyPair::generate().expect("a key"));
    }

    fn issue_with(&self, file: &str, name: &str, key: &KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(key, &self.issuer).expect("a certificate");
        let chain = certificate.pem() + &self.issuer.pem();
        // The key first: who looks in between finds a pair that does not fit, and looks again.
        fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).expect("a file");
        fs::write(self.file(&format!("{file}.pem")), chain).expect("a file");
    }

    pub(crate) fn options(&self, driver: DriverChoice) -> Options {
        Options {
            tls_listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            tls_certificate: Some(self.file("own.pem")),
            tls_key: Some(self.file("own.key")),
            ..options(driver)
        }
    }

    fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.builder(versions).with_no_client_auth()
    }

    fn client_with(&self, file: &str) -> ClientConfig {
        let chain = CertificateDer::pem_file_iter(self.file(&format!("{file}.pem")));
        let chain: Result<Vec<_>, _> = chain.expect("a file").collect();
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{file}.key")));
        self.builder(&[&version::TLS13])
            .with_client_auth_cert(chain.expect("certificates"), key.expect("a key"))
            .expect("a pair")
    }

    fn builder(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A client whose reads end.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Client {
    let stream = TcpStream::connect(address).expect("a listening server");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a socket option");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    StreamOwned::new(client, stream)
}

/// A server with a certificate for `push.example`, its folder, and where it speaks TLS.
fn serve(name: &str, driver: DriverChoice) -> (Folder, Running, SocketAddr) {
    let folder = Folder::new(name, driver);
    folder.issue("own", "push.example");
    let server = start(folder.options(driver));
    let address = server.tls_address().expect("an address");
    (folder, server, address)
}

fn ask(client: &mut Client, request: &str) -> Answer {
    client.write_all(request.as_bytes()).expect("sent");
    Answer::read(&mut BufReader::new(client))
}

fn websocket(client: Client, path: &str) -> WebSocket<Client> {
    let (socket, response) =
        tungstenite::client(format!("wss://here{path}"), client).expect("an upgrade");
    assert_eq!(response.status(), 101);
    socket
}

fn common_name(client: &Client) -> Vec<u8> {
    let chain = client.conn.peer_certificates().expect("a chain");
    chain[0].to_vec()
}

on_both_drivers! {
    fn shards_and_the_control_plane_answer_on_one_connection(driver) {
        let (folder, server, address) = serve("both", driver);
        let mut open = Vec::new();
        for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
            let config = Arc::new(folder.client(versions));
            let mut client = connect(address, &config, "push.example");
            // To the control plane, there again, back to a shard.
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
            assert_eq!(ask(&mut client, &head("GET", "/nothing", "")).status, 404);
            let mut socket = websocket(client, "/raw?channel=c");
            let body = r#"{"channel": "c", "data": "over TLS"}"#;
            publish_ok(server.address(), body);
            assert_eq!(next_text(&mut socket), "over TLS");
            open.push(socket);
        }
        assert_eq!(metric(server.address(), "myriad_hand_backs_total"), 2);
        until("both are open", || {
            metric(server.address(), "myriad_tls_connections{version=\"1.3\"}") == 1
                && metric(server.address(), "myriad_tls_connections{version=\"1.2\"}") == 1
        });
    }

    fn long_answers_and_bodies_arrive_whole(driver) {
        let (folder, _server, address) = serve("long", driver);
        let config = Arc::new(folder.client(&[&version::TLS13]));
        let mut client = connect(address, &config, "push.example");
        let put = head("PUT", "/v1/stream/long", "Content-Type: text/plain\r\nContent-Length: 0\r\n");
        assert_eq!(ask(&mut client, &put).status, 201);
        let mut sent = String::new();
        for nth in 0..8 {
            let part = char::from(b'a' + nth).to_string().repeat(100_000);
            let headers = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", part.len());
            let post = head("POST", "/v1/stream/long", &headers) + &part;
            assert_eq!(ask(&mut client, &post).status, 204);
            sent += &part;
        }
        // A stream is read from a shard, in pieces that its socket does not take at once.
        let mut got = String::new();
        let mut offset = "-1".to_owned();
        while got.len() < sent.len() {
            let path = format!("/v1/stream/long?offset={offset}");
            let answer = ask(&mut client, &head("GET", &path, ""));
            assert_eq!(answer.status, 200);
            answer.header("stream-next-offset").expect("an offset").clone_into(&mut offset);
            got += &answer.body;
        }
        assert!(got == sent);
    }

    fn who_comes_back_with_a_ticket_resumes_at_any_shard(driver) {
        let (folder, server, address) = serve("ticket", driver);
        let config = Arc::new(folder.client(&[&version::TLS13]));
        for _ in 0..6 {
            let mut client = connect(address, &config, "push.example");
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
        }
        assert_eq!(metric(server.address(), "myriad_tls_handshakes_total{kind=\"full\"}"), 1);
        assert_eq!(metric(server.address(), "myriad_tls_handshakes_total{kind=\"resumed\"}"), 5);
    }

    fn a_ticket_of_one_node_resumes_at_another_that_has_its_keys(driver) {
        let folder = Folder::new("shared-tickets", driver);
        folder.issue("own", "push.example");
        let [old, new] = ["MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="];
        let node = |name: &str, lines: &[&str]| {
            fs::write(folder.file(name), lines.join("\n")).expect("a file");
            let server = start(Options { tls_ticket_keys: Some(folder.file(name)), ..folder.options(driver) });
            let address = server.tls_address().expect("an address");
            (server, address)
        };
        let (first, second) = (node("first", &[old]), node("second", &[new, old]));
        let third = node("third", &[new]);
        let config = Arc::new(folder.client(&[&version::TLS13]));
        let resumed = |(server, address): &(Running, SocketAddr)| {
            let mut client = connect(*address, &config, "push.example");
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
            metric(server.address(), "myriad_tls_handshakes_total{kind=\"resumed\"}")
        };
        assert_eq!(resumed(&first), 0);
        assert_eq!(resumed(&second), 1, "it knows the first one's key");
        assert_eq!(resumed(&third), 1, "the second makes tickets with the newest");
        // A ticket with a key that has gone costs a handshake, and no more.
        assert_eq!(resumed(&first), 0);
    }

    fn the_name_that_a_client_asks_for_chooses_the_certificate(driver) {
        let folder = Folder::new("names", driver);
        folder.issue("own", "push.example");
        folder.issue("other", "*.other.example");
        let file = format!(
            "[[tls.certificates]]\ncertificate = {:?}\nkey = {:?}\n",
            folder.file("other.pem").display().to_string(),
            folder.file("other.key").display().to_string(),
        );
        let server = start(crate::support::with_file(&file, folder.options(driver)));
        let address = server.tls_address().expect("an address");
        let config = Arc::new(folder.client(&[&version::TLS13]));
        for name in ["push.example", "a.other.example"] {
            let mut client = connect(address, &config, name);
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
        }
        // Nobody has a certificate for this name. The client says so.
        let mut client = connect(address, &config, "deep.a.other.example");
        client.write_all(b"GET").expect_err("a wrong name");
    }

    fn changed_files_are_for_new_clients_and_a_wrong_pair_for_nobody(driver) {
        let (folder, server, address) = serve("changed", driver);
        let config = Arc::new(folder.client(&[&version::TLS13]));
        let mut kept = connect(address, &config, "push.example");
        assert_eq!(ask(&mut kept, &head("GET", "/healthz", "")).status, 200);
        let before = common_name(&kept);
        let shown = |config: &Arc<ClientConfig>| {
            let mut client = connect(address, config, "push.example");
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
            common_name(&client)
        };
        // Without tickets, so that each client sees a certificate.
        let mut fresh = folder.client(&[&version::TLS13]);
        fresh.resumption = rustls::client::Resumption::disabled();
        let fresh = Arc::new(fresh);
        // By a reload.
        folder.issue("own", "push.example");
        server.reloader().reload(folder.options(driver)).expect("a good pair");
        let second = shown(&fresh);
        assert_ne!(second, before);
        // A key that is another certificate's.
        fs::write(folder.file("own.key"), KeyPair::generate().expect("a key").serialize_pem()).expect("a file");
        let refused = server.reloader().reload(folder.options(driver)).expect_err("another key");
        assert!(refused.to_string().contains("tls-key"), "{refused}");
        assert_eq!(shown(&fresh), second);
        // By itself.
        folder.issue("own", "push.example");
        until("the new files are used", || shown(&fresh) != second);
        assert_eq!(ask(&mut kept, &head("GET", "/healthz", "")).status, 200);
    }

    fn clients_show_certificates_where_they_have_to(driver) {
        let folder = Folder::new("clients", driver);
        folder.issue("own", "push.example");
        folder.issue("client", "device.example");
        let authority = folder.file("authority.pem");
        fs::write(&authority, folder.issuer.pem()).expect("a file");
        let strangers = Folder::new("strangers", driver);
        strangers.issue("client", "device.example");
        for (word, without) in [("required", false), ("optional", true)] {
            let server = start(Options {
                tls_client_ca: Some(authority.clone()),
                tls_client_auth: Some(word.into()),
                ..folder.options(driver)
            });
            let address = server.tls_address().expect("an address");
            let named = Arc::new(folder.client_with("client"));
            let mut client = connect(address, &named, "push.example");
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
            let unnamed = Arc::new(folder.client(&[&version::TLS13]));
            let mut client = connect(address, &unnamed, "push.example");
            client.write_all(head("GET", "/healthz", "").as_bytes()).expect("sent");
            let mut answer = [0; 12];
            assert_eq!(client.read_exact(&mut answer).is_ok(), without, "{word}");
            until("it is counted", || {
                let name = "myriad_tls_handshakes_failed_total{reason=\"client_certificate\"}";
                metric(server.address(), name) == u64::from(!without)
            });
        }
        drop(strangers);
    }

    fn a_certificate_of_a_client_is_no_ca(driver) {
        let folder = Folder::new("no-ca", driver);
        folder.issue("own", "push.example");
        folder.issue("client", "device.example");
        let options = Options {
            tls_client_ca: Some(folder.file("client.pem")),
            ..folder.options(driver)
        };
        let refused = options.resolve(&Machine::here()).expect_err("no CA").to_string();
        assert!(refused.contains("tls-client-ca") && refused.contains("is no CA"), "{refused}");
    }

    fn keys_of_every_kind_sign(driver) {
        for (name, algorithm) in [("p384", &PKCS_ECDSA_P384_SHA384), ("rsa", &PKCS_RSA_SHA256)] {
            let folder = Folder::new(name, driver);
            folder.issue_with("own", "push.example", &KeyPair::generate_for(algorithm).expect("a key"));
            let server = start(folder.options(driver));
            let address = server.tls_address().expect("an address");
            let config = Arc::new(folder.client(&[&version::TLS13]));
            let mut client = connect(address, &config, "push.example");
            assert_eq!(ask(&mut client, &head("GET", "/healthz", "")).status, 200);
        }
    }

    fn files_that_cannot_be_used_are_named_at_the_start(driver) {
        let folder = Folder::new("faults", driver);
        folder.issue("own", "push.example");
        folder.issue("other", "push.example");
        let own = fs::read_to_string(folder.file("own.pem")).expect("a file");
        let (first, second) = own.split_at(own.rfind("-----BEGIN").expect("two certificates"));
        fs::write(folder.file("turned.pem"), format!("{second}{first}")).expect("a file");
        fs::write(folder.file("empty.pem"), "").expect("a file");
        let expired = {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(vec!["push.example".to_owned()]).expect("a name");
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
            let certificate = params.signed_by(&key, &folder.issuer).expect("a certificate");
            fs::write(folder.file("expired.key"), key.serialize_pem()).expect("a file");
            certificate.pem()
        };
        fs::write(folder.file("expired.pem"), expired).expect("a file");
        fs::write(folder.file("short.pem"), SHORT_RSA).expect("a file");
        fs::write(folder.file("short.key"), "not read").expect("a file");
        for (certificate, key, field, words) in [
            ("own.pem", "other.key", "tls-key", "is not the key of the first certificate"),
            ("missing.pem", "own.key", "tls-certificate", "cannot be read"),
            ("empty.pem", "own.key", "tls-certificate", "has no certificate"),
            ("own.pem", "own.pem", "tls-key", "has no private key"),
            ("turned.pem", "own.key", "tls-certificate", "out of order"),
            ("expired.pem", "expired.key", "tls-certificate", "expired on"),
            ("short.pem", "short.key", "tls-certificate", "an RSA key with 1024 bits"),
        ] {
            let options = Options {
                tls_certificate: Some(folder.file(certificate)),
                tls_key: Some(folder.file(key)),
                ..folder.options(driver)
            };
            let refused = options.resolve(&Machine::here()).expect_err(words).to_string();
            assert!(refused.contains(field) && refused.contains(words), "{refused}");
        }
    }
}

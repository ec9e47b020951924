"""Certificates from a real authority, with its failures: refused nonces, slow looks, and none at all."""

import contextlib
import fcntl
import re
import socket
import ssl
import stat
import time

import pytest
import trustme

from server import ROOT, run, until

ISSUED = 'myriad_tls_acme_orders_total{result="issued"}'
REFUSED = 'myriad_tls_acme_orders_total{result="refused"}'
UNREACHABLE = 'myriad_tls_acme_orders_total{result="unreachable"}'
NO_CERTIFICATE = 'myriad_tls_handshakes_failed_total{reason="no_certificate"}'
EXPIRES = 'myriad_tls_certificate_expires_seconds{name="push.example.com"}'
# Of the authority, with everything that makes it slow.
PATIENCE = 180


def eventually(what, so, server):
    """Waits until `so` gives something, and returns that. For lines of the log too: they come a moment after the server answers."""
    end = time.monotonic() + PATIENCE
    while not (found := so()):
        assert time.monotonic() < end, f"never: {what}\n" + "\n".join(server.log)
        time.sleep(0.1)
    return found


def first_certificate(server, name="push.example.com"):
    root = server.authority.root()
    return eventually("a certificate", lambda: server.has_certificate(root, name), server)


def serial_of(certificate):
    return certificate["serialNumber"]


def names_of(certificate):
    return sorted(name for _, name in certificate["subjectAltName"])


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_first_order_is_answered_in_a_handshake(serve, authority):
    authority.start(nonces_refused=50, sleep=2)
    server = serve("--tls-acme-email", "admin@example.com", names=("push.example.com", "Chat.Example.com"))
    certificate = first_certificate(server)
    assert names_of(certificate) == ["chat.example.com", "push.example.com"]
    assert server.metric(ISSUED) == 1 and server.metric(REFUSED) == 0
    assert server.metric("myriad_tls_acme_challenges_total") >= 2, "one for each name"
    assert server.metric(EXPIRES) > 80 * 24 * 3600
    # A client of the same port, with everything that there is.
    client = server.secure_client(authority.root())
    server.publish("c", "hello")
    assert client.recv(timeout=30) == "hello"
    # Only we may read what we keep.
    assert mode(server.cache) == 0o700
    kept = sorted(server.cache.iterdir())
    assert [path.suffix for path in kept] == [".json", ".lock", ".pem"], kept
    assert {mode(path) for path in kept} == {0o600}


def test_a_first_order_is_answered_by_http(serve, authority):
    authority.start(nonces_refused=50, sleep=2)
    server = serve("--tls-acme-http", f"127.0.0.1:{authority.http_port}")
    assert names_of(first_certificate(server)) == ["push.example.com"]
    assert server.metric(ISSUED) == 1
    assert server.metric("myriad_tls_acme_challenges_total") == 0
    # Nobody else finds anything there.
    for path in ("/", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/x", "/api/publish"):
        with socket.create_connection(("127.0.0.1", authority.http_port), timeout=30) as plain:
            plain.sendall(f"GET {path} HTTP/1.1\r\nHost: push.example.com\r\n\r\n".encode())
            answer = plain.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 404 "), answer


def test_silent_clients_keep_nobody_from_the_address_of_the_authority(serve, authority):
    authority.start()
    silent = []
    address = ("127.0.0.1", authority.http_port)
    server = serve("--tls-acme-http", f"127.0.0.1:{authority.http_port}")
    for _ in range(64):
        silent.append(socket.create_connection(address, timeout=30))
    first_certificate(server)
    for client in silent:
        client.close()


def test_a_server_that_starts_again_orders_nothing(serve, authority):
    authority.start()
    server = serve()
    before = serial_of(first_certificate(server))
    server.stop()
    # Not even without an authority.
    root = authority.root()
    authority.stop()
    server = serve()
    assert serial_of(server.certificate(root)) == before
    eventually("its certificate", lambda: server.logged("push.example.com (expires in 89 days)"), server)
    assert server.metric(ISSUED) == 0 and server.metric(UNREACHABLE) == 0


def test_metrics_of_an_authority_are_those_of_the_page(serve):
    text = serve().request("GET", "/metrics").body
    page = (ROOT / "docs" / "metrics.md").read_text()
    shown = set(re.findall(r"^(myriad_tls_acme_\w+)", text, re.M))
    assert shown and shown == set(re.findall(r"^\| `(myriad_tls_acme_\w+)", page, re.M))


def test_without_an_authority_the_server_serves_and_asks_again(serve, authority):
    server = serve()
    client = server.client()
    server.publish("c", "plain")
    assert client.recv(timeout=30) == "plain"
    eventually("no certificate", lambda: server.logged("push.example.com (no certificate yet)"), server)
    eventually("a line about the authority", lambda: server.logged("localhost cannot be reached"), server)
    line = server.logged("localhost cannot be reached")[0]
    assert "no new certificate for push.example.com" in line and "the next try is in" in line, line
    assert server.metric(UNREACHABLE) >= 1
    with pytest.raises(ssl.SSLError, match="(?i)alert"):
        server.certificate(None)
    until("the handshake is counted", lambda: server.metric(NO_CERTIFICATE) == 1)
    authority.start()
    first_certificate(server)
    assert server.metric(ISSUED) == 1


def test_a_refusal_says_what_the_authority_saw(serve, authority):
    authority.start()
    # The authority does not look here.
    server = serve(port=0)
    seen = f"Failed to connect to 127.0.0.1:{authority.tls_port} for the tls-alpn-01 challenge"
    [line] = eventually("a refusal", lambda: server.logged(seen), server)
    assert "no new certificate for push.example.com" in line and "the next try is in" in line, line
    assert server.metric(REFUSED) == 1 and server.metric(ISSUED) == 0


def test_a_renewal_drops_nobody(serve, authority):
    authority.start(lifetime=30, nonces_refused=20)
    server = serve()
    before = serial_of(first_certificate(server))
    root = authority.root()
    client = server.secure_client(root)

    def renewed():
        certificate = server.has_certificate(root)
        return certificate and serial_of(certificate) != before

    eventually("another certificate", renewed, server)
    server.publish("c", "still here")
    assert client.recv(timeout=30) == "still here"
    assert server.metric(ISSUED) >= 2
    assert 0 < server.metric(EXPIRES) <= 30
    assert not server.logged("could not be renewed"), server.log


def test_clients_with_certificates_do_not_keep_the_authority_out(serve, authority, tmp_path):
    authority.start()
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    server = serve("--tls-client-ca", str(tmp_path / "clients.pem"))
    context = server.context(authority.root())
    clients.issue_cert("somebody@example.com").configure_cert(context)

    def secured():
        # Until the certificate is used.
        with contextlib.suppress(ssl.SSLError):
            with socket.create_connection(("127.0.0.1", authority.tls_port), timeout=30) as plain:
                with context.wrap_socket(plain, server_hostname="push.example.com") as secured:
                    return secured.getpeercert()

    eventually("a handshake with both certificates", secured, server)


def test_a_pair_of_files_and_an_ordered_certificate_stand_side_by_side(serve, authority, tmp_path):
    authority.start()
    pair = authority.own.issue_cert("own.example.com")
    (tmp_path / "own.pem").write_bytes(pair.cert_chain_pems[0].bytes())
    pair.private_key_pem.write_to_path(tmp_path / "own-key.pem")
    server = serve("--tls-certificate", str(tmp_path / "own.pem"), "--tls-key", str(tmp_path / "own-key.pem"))
    own = authority.own.cert_pem.bytes().decode()
    # At once, whatever the authority does.
    assert names_of(server.certificate(own, "own.example.com")) == ["own.example.com"]
    assert names_of(first_certificate(server)) == ["push.example.com"]
    assert names_of(server.certificate(own, "own.example.com")) == ["own.example.com"]


def test_one_process_orders_at_a_time(serve, authority):
    """The other one finds the certificate when it gets its turn."""
    authority.start()
    server = serve()
    serial = serial_of(first_certificate(server))
    server.stop()
    [certificate], [lock] = server.cache.glob("*.pem"), server.cache.glob("*.lock")
    kept = certificate.read_bytes()
    certificate.unlink()
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        server = serve()
        with pytest.raises(ssl.SSLError):
            server.certificate(authority.root())
        certificate.write_bytes(kept)
    assert serial_of(first_certificate(server)) == serial
    assert server.metric(ISSUED) == 0 and authority.orders() == 1


def test_an_account_that_the_authority_has_forgotten_is_made_anew(serve, authority):
    authority.start()
    server = serve()
    first_certificate(server)
    server.stop()
    [certificate] = server.cache.glob("*.pem")
    certificate.unlink()
    # It keeps nothing on a disk.
    authority.stop()
    authority.start()
    server = serve()
    first_certificate(server)
    assert server.metric(ISSUED) == 1 and server.metric(REFUSED) == 0


def test_a_certificate_that_cannot_be_read_is_ordered_anew(serve, authority):
    authority.start()
    server = serve()
    first_certificate(server)
    server.stop()
    [certificate] = server.cache.glob("*.pem")
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    server = serve()
    first_certificate(server)
    assert server.metric(ISSUED) == 1


def test_a_check_of_the_configuration_asks_nobody(tmp_path):
    (tmp_path / "a.toml").write_text(
        'tls-acme = ["push.example.com"]\ntls-acme-accept-terms = true\n'
        'tls-acme-directory = "https://192.0.2.1/directory"\n'
        f'tls-acme-cache = "{tmp_path / "cache"}"\n'
    )
    code, _, stderr = run("config", "check", str(tmp_path / "a.toml"))
    assert code == 0, stderr
    assert not (tmp_path / "cache").exists()


def test_a_start_without_the_terms_says_what_to_do():
    code, _, stderr = run("serve", "--listen", "127.0.0.1:0", "--tls-acme", "push.example.com")
    assert code == 104 and "--tls-acme-accept-terms" in stderr, stderr


def test_a_cache_that_cannot_be_written_ends_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, stderr = run(
        "serve", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-acme", "push.example.com",
        "--tls-acme-accept-terms", "--tls-acme-cache", str(tmp_path / "file" / "cache"),
    )
    assert code == 104 and "tls-acme-cache" in stderr, stderr

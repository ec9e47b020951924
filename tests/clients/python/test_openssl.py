"""`openssl s_client` and curl: keys that change, sessions that resume, and connections that end as TLS wants it."""

import contextlib
import queue
import re
import shutil
import subprocess
import threading

import pytest
from certificates import Authority

from server import PATIENCE, UPGRADE, until

VERSIONS = ["-tls1_3", "-tls1_2"]

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


class Program:
    """A program that is typed at, and whose output is waited for."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.pieces = queue.SimpleQueue()
        self.said = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while piece := self.process.stdout.read(65_536):
            self.pieces.put(piece)
        self.pieces.put(b"")

    def type(self, data):
        self.process.stdin.write(data if isinstance(data, bytes) else data.encode())

    def until(self, expected):
        """Waits for this in what it has not said yet. Returns what came up to its end."""
        expected = expected if isinstance(expected, bytes) else expected.encode()
        while expected not in self.said:
            piece = self.pieces.get(timeout=PATIENCE)
            assert piece, f"it ended without {expected}: {self.said}"
            self.said += piece
        before, self.said = self.said.split(expected, 1)
        return (before + expected).decode(errors="replace")

    def end(self):
        """Closes its input, and returns what it says up to its end."""
        self.process.stdin.close()
        return self.rest()

    def rest(self):
        while piece := self.pieces.get(timeout=PATIENCE):
            self.said += piece
        self.process.wait(PATIENCE)
        return self.said.decode(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def authority(tmp_path):
    made = Authority(tmp_path)
    made.issue()
    return made


@pytest.fixture
def server(serve, authority):
    return serve(*authority.flags())


@pytest.fixture
def s_client(server, authority):
    """Starts `openssl s_client`, connected to the server."""
    started = []

    def start(*flags):
        trust = ["-CAfile", str(authority.file), "-verify_return_error", "-servername", "localhost"]
        started.append(Program("openssl", "s_client", "-connect", server.secure, *trust, *flags))
        return started[-1]

    yield start
    for program in started:
        program.kill()


ASK = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = ASK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
OPEN = f"GET /echo HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n"


def frame(text):
    """A WebSocket message. Masked with zeros, the text stays as it is."""
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text.encode()


def update(client, letter):
    """Changes the key that the client sends with: `K` asks the server to change its own as well."""
    client.type(letter + "\n")
    client.until("KEYUPDATE")


def test_keys_change_under_a_websocket(server, s_client):
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]:
        client = s_client("-tls1_3", "-brief", "-ciphersuites", suite)
        client.until("CONNECTION ESTABLISHED")
        client.type(OPEN)
        client.until("101 Switching")
        # Several in a row, of both kinds, with data between and without.
        for round, letters in enumerate(["K", "k", "KK", "kk", "KkK", "kKkKkK", "K" * 10]):
            for letter in letters:
                update(client, letter)
            client.type(frame(f"round {round}"))
            client.until(bytes([0x81, 7]) + f"round {round}".encode())
    assert server.metric('myriad_tls_connections{version="1.3"}') == 3
    assert server.metric("myriad_tls_broken_total") == 0


def test_a_server_that_has_nothing_to_say_changes_its_key_too(s_client):
    client = s_client("-tls1_3", "-msg")
    client.until("SSL handshake has read")
    client.type(OPEN)
    client.until("101 Switching")
    for _ in range(3):
        update(client, "K")
        # The server's own KeyUpdate comes although it has no data to send.
        client.until("<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
    client.type(frame("after"))
    client.until("after")


def test_keys_change_between_requests_to_both_planes(server, s_client):
    client = s_client("-tls1_3", "-brief")
    client.until("CONNECTION ESTABLISHED")
    server.publish("c", "kept")
    for letter in "KkKk":
        # The control plane answers this one, and a shard the next.
        client.type(ASK)
        client.until('"status":"ok"')
        update(client, letter)
        client.type(ASK.replace("/healthz", "/v1/stream/c?offset=-1"))
        client.until('["kept"]')
        update(client, letter)
    assert server.metric("myriad_tls_broken_total") == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_resume(server, s_client, tmp_path, version):
    session = str(tmp_path / "session.pem")
    first = s_client(version, "-sess_out", session)
    first.until("SSL handshake has read")
    first.type(LAST)
    assert "200 OK" in first.rest()
    for _ in range(3):
        again = s_client(version, "-sess_in", session)
        assert "Reused, TLSv1." in again.until("SSL handshake has read") + again.until("Verify return code: 0 (ok)")
        again.type(LAST)
        assert "200 OK" in again.rest()
    until("all are counted", lambda: server.metric('myriad_tls_handshakes_total{kind="resumed"}') == 3)
    assert server.metric('myriad_tls_handshakes_total{kind="full"}') == 1


def test_a_client_that_reconnects_resumes_each_time(server, s_client):
    # Only TLS 1.2 has the ticket with the handshake, and this client reads nothing behind it.
    client = s_client("-tls1_2", "-reconnect")
    for _ in range(5):
        client.until("Reused, TLSv1.2")
    until("all are counted", lambda: server.metric('myriad_tls_handshakes_total{kind="resumed"}') == 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("by", ["control plane", "shard"])
def test_the_server_sends_close_notify(server, s_client, version, by):
    server.publish("c", "kept")
    client = s_client(version, "-msg")
    client.until("SSL handshake has read")
    client.type(LAST if by == "control plane" else LAST.replace("/healthz", "/v1/stream/c?offset=-1"))
    client.until("200 OK")
    said = client.rest()
    assert re.search(r"<<< TLS 1\.[23], Alert \[length 0002\], warning close_notify", said), said
    assert client.process.returncode == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_sends_close_notify_is_gone(server, s_client, version):
    client = s_client(version, "-brief")
    client.until("CONNECTION ESTABLISHED")
    client.type(OPEN)
    client.until("101 Switching")
    client.type("Q\n")
    client.rest()
    name = f'myriad_tls_connections{{version="1.{version[-1]}"}}'
    until("it is gone", lambda: server.metric(name) == 0)
    assert server.metric("myriad_tls_broken_total") == 0


def curl_command(authority, *arguments):
    return ["curl", "--silent", "--show-error", "--max-time", str(PATIENCE), "--cacert", str(authority.file), *arguments]


def curl(authority, *arguments):
    return subprocess.run(curl_command(authority, *arguments), capture_output=True, text=True, timeout=2 * PATIENCE)


@contextlib.contextmanager
def endless_curl(authority, *arguments):
    """A curl whose answer does not end."""
    program = Program(*curl_command(authority, "--no-buffer", *arguments))
    try:
        yield program
    finally:
        program.kill()


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("version", [["--tlsv1.3"], ["--tls-max", "1.2"]], ids=["1.3", "1.2"])
def test_curl(server, authority, version):
    url = server.url("http")
    large = authority.folder / "large.json"
    large.write_text('{"channel": "c", "data": "%s"}' % ("x" * 900_000))
    published = curl(authority, *version, "--data-binary", f"@{large}", f"{url}/api/publish")
    assert published.returncode == 0 and '"offset":1' in published.stdout, published
    # Three requests on one connection: a shard, the control plane, a shard.
    read, health = f"{url}/v1/stream/c?offset=-1", f"{url}/healthz"
    answers = curl(authority, *version, "--write-out", "%{num_connects} ", read, health, read)
    assert answers.returncode == 0 and answers.stdout.count("x" * 900_000) == 2, answers.stderr
    assert [int(number) for number in re.findall(r"[\]}](\d) ", answers.stdout)] == [1, 0, 0]
    # It offers HTTP/2 as well, and speaks what the server chose.
    chosen = curl(authority, *version, "--http2", "--output", "/dev/null", "--write-out", "%{http_version}", health)
    assert chosen.stdout == "1.1", chosen
    with endless_curl(authority, *version, f"{read}&live=sse") as events:
        events.until("x" * 900_000)
        server.publish("c", "live")
        events.until('["live"]')


def has_wss():
    return bool(shutil.which("curl")) and " wss" in subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout


@pytest.mark.skipif(not has_wss(), reason="this curl has no wss")
def test_curl_of_a_websocket(server, authority):
    with endless_curl(authority, "--include", server.url("ws", "/raw?channel=c")) as client:
        client.until("101 Switching")
        server.publish("c", "live")
        client.until("live")

"""Starts the real binary, and speaks plain HTTP to it."""

import contextlib
import http.client
import json
import os
import queue
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parents[3]
# A test that waits longer has failed.
PATIENCE = 30

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class DriverUnavailable(Exception):
    """The kernel forbids io_uring here."""


class DidNotStart(Exception):
    """The server ended before it was ready."""

    def __init__(self, code, log):
        super().__init__(f"exit code {code}: {log}")
        self.code = code
        self.log = log


def binary():
    named = os.environ.get("MYRIAD_BIN") or os.environ.get("MYRIAD")
    built = [ROOT / "target" / profile / "myriad" for profile in ("release", "debug")]
    for path in [Path(named)] if named else built:
        if path.exists():
            return str(path)
    raise FileNotFoundError("no server: build it (cargo build --release), or name it in MYRIAD_BIN")


def run(*arguments, environment=None):
    """Runs the program to its end: exit code, stdout, stderr."""
    done = subprocess.run(
        [binary(), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout, done.stderr


def limit_descriptors(count):
    """For a child between fork and exec: the hard limit, which it cannot raise again without privilege."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


class Answer:
    """An HTTP answer, read whole."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read().decode()

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {dict(self.headers)} {self.body}"


class Server:
    """A server in a process of its own."""

    def __init__(self, process, deaf=False, has_tls=False):
        self.process = process
        self.has_tls = has_tls
        self.log = []
        self.deaf = deaf
        self.ready = queue.SimpleQueue()
        self.clients = contextlib.ExitStack()
        self.host = self.port = self.key = None
        # Where it speaks TLS, and the ssl.SSLContext of a client that believes its certificate.
        self.secure = self.trust = None
        threading.Thread(target=self._read_log, daemon=True).start()

    @classmethod
    def start(cls, *flags, dev=True, descriptors=None, deaf=False, connections=2000, trust=None):
        """Returns once it accepts. `descriptors` is its hard RLIMIT_NOFILE; `deaf` closes its log once it accepts. With a certificate
        among the flags it speaks TLS too, and clients of it use the ssl.SSLContext `trust`."""
        fixed = ["serve", "--listen", "127.0.0.1:0", "--max-connections", str(connections), "--drain", "0"]
        has_tls = "--tls-certificate" in flags
        if has_tls and "--tls-listen" not in flags:
            fixed += ["--tls-listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [binary(), *fixed, *(["--dev"] if dev else []), *flags],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit_descriptors(descriptors) if descriptors else None,
        )
        server = cls(process, deaf, has_tls)
        server.trust = trust
        if not server.ready.get(timeout=PATIENCE):
            code = process.wait(PATIENCE)
            log = "\n".join(server.log)
            raise DriverUnavailable(log) if "cannot be used here" in log else DidNotStart(code, log)
        return server

    @classmethod
    def start_with(cls, driver, *flags, **settings):
        """The same with a driver. On a machine without io_uring its tests are skipped."""
        try:
            return cls.start("--driver", driver, *flags, **settings)
        except DriverUnavailable as reason:
            if driver == "epoll":
                raise
            # Programs without it use this module, too.
            import pytest

            pytest.skip(str(reason))

    def _read_log(self):
        is_ready = False
        for line in self.process.stderr:
            line = line.rstrip("\n")
            self.log.append(line)
            if found := re.match(r"API key for this run: (\S+)", line):
                self.key = found[1]
            if found := re.match(r"listening on (\S+):(\d+) \(", line):
                self.host, self.port = found[1], int(found[2])
            if found := re.match(r"TLS on (\S+) ", line):
                self.secure = found[1]
            if self.port and not is_ready and (self.secure or not self.has_tls):
                is_ready = True
                if self.deaf:
                    self.process.stderr.close()
                self.ready.put(True)
                if self.deaf:
                    return
        self.ready.put(False)

    def url(self, scheme, path=""):
        """Where clients find a path: by TLS where the server speaks it, and otherwise without."""
        return f"{scheme}s://{self.secure}{path}" if self.secure else f"{scheme}://{self.host}:{self.port}{path}"

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self):
        """Its exit code."""
        return self.process.wait(PATIENCE)

    def stop(self):
        if self.process.poll() is None:
            self.signal()
        try:
            self.clients.close()
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def client(self, path="/raw?channel=c", **options):
        """An open client of the `websockets` package, closed with the server if not before."""
        address = f"ws://{self.host}:{self.port}{path}"
        return self.clients.enter_context(connect(address, open_timeout=PATIENCE, **options))

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def publish(self, channel, data):
        """Publishes, and returns the offset."""
        return self.position(channel, data)[1]

    def position(self, channel, data):
        """Publishes, and returns epoch and offset."""
        answer = self.request("POST", "/api/publish", json.dumps({"channel": channel, "data": data}))
        assert answer.status == 200, answer
        position = answer.json()["result"]
        assert set(position) == {"offset", "epoch"}
        return position["epoch"], position["offset"]

    def socket(self, receive_buffer=None):
        """A bare connection."""
        plain = socket.socket()
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(PATIENCE)
        plain.connect((self.host, self.port))
        return plain

    def raw(self, head):
        """Sends bytes as they are and reads the answer to its end."""
        with self.socket() as plain:
            plain.sendall(head.encode() if isinstance(head, str) else head)
            return answer_of(plain)

    def metric(self, name):
        for line in self.request("GET", "/metrics").body.splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)


def until(what, so):
    """Polls until a condition holds, for effects that the server does not announce."""
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, f"never: {what}"
        # The server needs the processor more than the question does.
        time.sleep(0.01)


def receive(plain, count):
    """Exactly that many bytes; an early end is an error, not a loop."""
    received = b""
    while len(received) < count:
        piece = plain.recv(count - len(received))
        if not piece:
            raise EOFError(f"the connection ended after {received}")
        received += piece
    return received


def receive_head(plain):
    """A response head with its empty line."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += receive(plain, 1)
    return head


def answer_of(plain):
    response = http.client.HTTPResponse(plain)
    response.begin()
    return Answer(response)

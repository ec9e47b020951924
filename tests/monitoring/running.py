"""A server that does a little of everything, its application, and a Prometheus that reads it."""

import contextlib
import http.client
import http.server
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

import ports
import self_signed
from files import PROMETHEUS, RULES
from server import PATIENCE, Server, run

SECRET = "a secret of this test alone, which nobody uses"
CONFIG = f"""
poll-timeout = "1s"
ping-interval = "1s"
pong-timeout = "1s"

[client.token]
hmac_secret_key = "{SECRET}"

[client.rate_limits]
subscribes = "1/s"

[client.proxy.connect]
enabled = true
endpoint = "http://127.0.0.1:{{port}}/connect"

[[webhooks.endpoints]]
name = "app"
url = "http://127.0.0.1:{{port}}/events"
batch_delay = "10ms"
"""


class Application(http.server.BaseHTTPRequestHandler):
    """Lets everybody in, and takes all events."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = b'{"result": {"user": "ann"}}' if self.path == "/connect" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def busy_server(directory):
    """A server with TLS, webhooks and an application."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application) as application:
        threading.Thread(target=application.serve_forever, daemon=True).start()
        config = directory / "myriad.toml"
        config.write_text(CONFIG.format(port=application.server_address[1]))
        if not shutil.which("openssl"):
            pytest.skip("openssl is not installed")
        # Longer than an alert wants it at least.
        certificate, key = self_signed.certificate(directory, days=90)
        server = Server.start("--config", str(config), "--tls-certificate", str(certificate), "--tls-key", str(key))
        server.trust = ssl.create_default_context(cafile=certificate)
        try:
            yield server
        finally:
            server.stop()
            application.shutdown()


class Crowd:
    """Clients of every kind, who do what the panels show. Some of it goes wrong."""

    def __init__(self, server):
        self.server = server
        self.readers = [server.client("/raw?channel=news") for _ in range(3)]

    def act(self):
        """Once of everything. It may be called again and again."""
        for number in range(5):
            self.server.publish("news", {"number": number})
        for reader in self.readers:
            for _ in range(5):
                reader.recv(timeout=PATIENCE)
        self.session({"connect": {}}, {"subscribe": {"channel": "news"}}, {"subscribe": {"channel": "more"}})
        _, token, _ = run("token", "--user", "ann", "--secret", SECRET)
        self.session({"connect": {"token": token.strip()}})
        # Pages of strangers get in nowhere.
        with contextlib.suppress(WebSocketException):
            self.server.client("/raw?channel=news", additional_headers={"Origin": "https://stranger.example"})
        # It waits for its time-out, as nobody publishes there.
        self.server.request("POST", "/api/publish", json.dumps({"channel": "quiet", "data": 1}))
        self.server.request("GET", "/v1/stream/quiet?offset=now&live=long-poll")
        self.secure()

    def session(self, *commands):
        """A client of the Centrifuge protocol."""
        with connect(f"ws://{self.server.host}:{self.server.port}/connection/websocket", open_timeout=PATIENCE) as client:
            for number, command in enumerate(commands, start=1):
                client.send(json.dumps({"id": number, **command}))
            answered = set()
            while len(answered) < len(commands):
                replies = map(json.loads, client.recv(timeout=PATIENCE).splitlines())
                answered |= {reply["id"] for reply in replies if "id" in reply}

    def secure(self):
        """A request by TLS, and one without it at the same address."""
        host, port = self.server.secure.rsplit(":", 1)
        client = http.client.HTTPSConnection(host, int(port), timeout=PATIENCE, context=self.server.trust)
        client.request("GET", "/healthz")
        assert client.getresponse().read()
        client.close()
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 400 " in plain.recv(1000)


class Prometheus:
    """Debian's, which reads a server each second, with the rules."""

    def __init__(self, server, directory):
        program = shutil.which("prometheus")
        if not program:
            pytest.skip("prometheus is not installed")
        config = PROMETHEUS.read_text().replace("15s", "1s").replace("127.0.0.1:8001", f"{server.host}:{server.port}")
        (directory / "prometheus.yml").write_text(config)
        shutil.copy(RULES, directory)
        self.address = f"127.0.0.1:{ports.reserve()}"
        self.log = (directory / "prometheus.log").open("w")
        flags = ["--config.file", directory / "prometheus.yml", "--storage.tsdb.path", directory / "data"]
        command = [program, *flags, "--web.listen-address", self.address, "--log.level", "warn"]
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def scrapes(self):
        """How often it has read the server."""
        try:
            counts = self.query('count_over_time(up{job="myriad"}[1m])')
        except OSError:
            # It starts.
            assert self.process.poll() is None, self.log.name
            return 0
        return int(counts[0]["value"][1]) if counts else 0

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


def watched(server, directory, scrapes):
    """Runs a crowd while Prometheus reads the server so many times. Returns that Prometheus, which still runs."""
    prometheus = Prometheus(server, directory)
    crowd = Crowd(server)
    end = time.monotonic() + PATIENCE
    while prometheus.scrapes() < scrapes:
        assert time.monotonic() < end, "Prometheus does not read the server"
        crowd.act()
    return prometheus

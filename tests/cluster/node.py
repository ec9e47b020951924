"""Nodes of `myriad serve` for tests, and requests to their APIs."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from nats import ports, wait_for
from places import Loopback

KEY = "test"
# Of the tokens of clients.
SECRET = "secret of the tests"
CONFIG = """
anonymous = true
[channel.without_namespace]
history_size = {history}
history_ttl = "{ttl}"
force_recovery = true
presence = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_client = true
allow_publish_for_anonymous = true
allow_presence_for_client = true
allow_presence_for_anonymous = true
allow_history_for_client = true
allow_history_for_anonymous = true
[[channel.namespaces]]
name = "chat"
history_size = 100
history_ttl = "{ttl}"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[[channel.namespaces]]
name = "live"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[[channel.namespaces]]
name = "watched"
join_leave = true
force_push_join_leave = true
allow_subscribe_for_client = true
[[channel.namespaces]]
name = "users"
join_leave = true
force_push_join_leave = true
join_leave_by = "user"
allow_subscribe_for_client = true
[client.token]
hmac_secret_key = "{secret}"
[http_stream]
enabled = true
"""


class Node:
    """A node of a cluster; without a broker, a node alone."""

    def __init__(self, program, folder, index, broker, replicas, history=2_000, ttl="1h", options=(), place=Loopback, interest="stream"):
        self.name, self.place = f"m{index}", place
        # Beside those of this process.
        self.environment = {}
        self.port = ports.reserve()
        self.log = folder / f"{self.name}.log"
        self.config = folder / f"{self.name}.toml"
        self.config.write_text(CONFIG.format(history=history, ttl=ttl, secret=SECRET))
        self.arguments = [
            *place.command, program, "serve", "--config", str(self.config), "--listen", f"{place.host}:{self.port}", "--api-key", KEY,
            "--shards", "2", *options,
        ]
        if broker:
            self.arguments += ["--broker", broker, "--broker-replicas", str(replicas)]
            if interest != "stream":
                self.arguments += ["--broker-interest", interest]
        self.process = None

    def start(self):
        # The kernel closes what a killed process had in its rings some time after its end.
        wait_for(f"nobody listens at the port of {self.name}", self.has_free_port)
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=log, env={**os.environ, **self.environment})

    def has_free_port(self):
        try:
            socket.create_connection((self.place.host, self.port), timeout=1).close()
        except OSError:
            return True
        return False

    def wait_until_ready(self):
        wait_for(f"{self.name} is healthy", self.is_healthy)

    def is_healthy(self):
        if self.process and self.process.poll() is not None:
            raise RuntimeError(f"{self.name} has ended: {self.log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://{self.place.host}:{self.port}/healthz", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self):
        """Asks it to drain."""
        self.process.send_signal(signal.SIGTERM)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def websocket(self):
        return f"ws://{self.place.host}:{self.port}/connection/websocket"

    def call(self, method, seconds=10, **request):
        """Calls the API. The answer has "result" or "error", with its detail; an error of the connection is raised."""
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json", "X-API-Key": KEY, "X-Myriad-Debug": "true"}
        url = f"http://{self.place.host}:{self.port}/api/{method}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=seconds) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return {"error": {"code": error.code, "message": error.read().decode(errors="replace")}}

    def request(self, method, path, body=None):
        """Any other request. Returns the status and the body."""
        url = f"http://{self.place.host}:{self.port}{path}"
        data = None if body is None else body.encode()
        request = urllib.request.Request(url, data, {"X-API-Key": KEY}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def start_all(nodes):
    """Starts them, and waits until all are ready."""
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_ready()

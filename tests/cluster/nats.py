"""NATS servers for tests: installed by Go where they are missing, started, killed, stopped."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from places import Loopback
from routes import Routes

ROOT = Path(__file__).resolve().parent.parent.parent
# Last, and here: benchmarks start servers too.
sys.path.append(str(ROOT / "tests"))

import go_programs  # noqa: E402
import ports  # noqa: E402

PATIENCE_SECONDS = 60


def program():
    """The path of nats-server for tests, which Go builds once; None where there is no Go."""
    built = go_programs.build("nats-server")
    return str(built / "nats-server") if built else None


def program_or_exit():
    """The path of nats-server as it is released, for measurements: Go builds it once (some minutes). Where there is no Go, this process
    ends."""
    source = go_programs.SOURCES["nats-server"]
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / f"nats-{source.version}"
    built = folder / "nats-server"
    if not built.exists():
        if shutil.which("go") is None:
            sys.exit("nats-server is built with Go, which is not installed; install Go and try again")
        go_programs.install("nats-server", folder, os.environ)
    return str(built)


def pub(subject, data):
    """A PUB command."""
    data = data.encode() if isinstance(data, str) else data
    return b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data)


def hpub(subject, headers, data=b""):
    """A HPUB command; `headers` are the bytes behind `NATS/1.0`, such as `b"\\r\\nName: value\\r\\n"`."""
    block = b"NATS/1.0" + headers + b"\r\n"
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject.encode(), len(block), len(block) + len(data), block, data)


def wait_for(what, ready, seconds=PATIENCE_SECONDS):
    """Asks again and again until it is so. Returns the answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.05)
    raise TimeoutError(f"{what} has not happened in {seconds} s")


class Server:
    """One nats-server with JetStream."""

    def __init__(self, program, folder, index, ports, place):
        self.program, self.name, self.place = program, f"n{index}", place
        self.port, self.monitor, self.cluster = ports
        self.folder = folder / self.name
        self.log = folder / f"{self.name}.log"
        # Of all servers of its cluster.
        self.routes = []
        self.cluster_options = []
        self.process = None

    def start(self):
        arguments = [
            *self.place.command, self.program, "--addr", self.place.host, "--port", str(self.port), "--http_port", str(self.monitor),
            "--jetstream", "--store_dir", str(self.folder), "--name", self.name,
        ]
        if self.routes:
            arguments += [
                "--cluster_name", "test", "--cluster", f"nats://{self.place.host}:{self.cluster}",
                "--routes", ",".join(self.routes), *self.cluster_options,
            ]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)

    def kill(self):
        """As a power cut, but for what the kernel has written down."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def send(self, *commands):
        """Sends commands of the NATS protocol as they are, and waits until the server has handled them."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            answers = connection.makefile("rb")
            answers.readline()
            hello = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
            connection.sendall(hello + b"".join(commands) + b"PING\r\n")
            for line in answers:
                if line.startswith(b"-ERR"):
                    raise RuntimeError(f"{self.name} says {line!r}")
                if line.startswith(b"PONG"):
                    return

    def ask(self, path):
        """What the server's monitoring says; None if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.place.host}:{self.monitor}/{path}", timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return None


class Cluster:
    """Some servers as one cluster; one of them alone without."""

    def __init__(self, program, folder, count, places=None):
        each = [[ports.reserve() for _ in range(3)] for _ in range(count)]
        places = places or [Loopback] * count
        self.servers = [Server(program, folder, index, each[index], places[index]) for index in range(count)]
        if count > 1:
            routes = [f"nats://{server.place.host}:{server.cluster}" for server in self.servers]
            for server in self.servers:
                server.routes = routes
        self.routes = None

    def relay_routes(self):
        """Puts a relay in each route, before the servers start."""
        self.routes = Routes(self.servers)
        return self.routes

    def start(self):
        for server in self.servers:
            server.start()
        wait_for("JetStream", self.is_ready)

    def is_ready(self):
        """Whether every server is healthy, and the cluster has a leader."""
        healthy = [server.ask("healthz") for server in self.servers]
        if not all(answer and answer.get("status") == "ok" for answer in healthy):
            return False
        if len(self.servers) == 1:
            return True
        meta = [(server.ask("jsz") or {}).get("meta_cluster", {}) for server in self.servers]
        return all(one.get("leader") and one.get("cluster_size") == len(self.servers) for one in meta)

    def url(self):
        return ",".join(f"nats://{server.place.host}:{server.port}" for server in self.servers)

    def leader_of(self, stream):
        """The server that leads a stream; None while there is no leader."""
        for server in self.servers:
            account = server.ask("jsz?accounts=true&streams=true") or {}
            for detail in account.get("account_details", []):
                for one in detail.get("stream_detail", []):
                    leader = one.get("cluster", {}).get("leader")
                    if one["name"] == stream and leader:
                        return next(server for server in self.servers if server.name == leader)
        return None if len(self.servers) > 1 else self.servers[0]

    def stop(self):
        for server in self.servers:
            server.kill()
        if self.routes:
            self.routes.close()

"""The manifest (arena.toml) as Python sees it, and the life of a contestant's processes."""

import contextlib
import ctypes
import http.client
import os
import re
import resource
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from check import http_connection

ARENA = Path(__file__).resolve().parent
KINDS = ("websocket", "longpoll", "tcp", "held")
FEATURES = ("push", "timer", "echo", "request", "tls")
DEVIATIONS = ("compression", "silence", "limits")
PROCESSES = ("ports", "own", "one")
BODIES = ("plain", "api")
HELD_BODIES = ("plain", "stream")
TRANSPORTS = ("long-poll", "sse")
ROOT = ARENA.parent
JVM_LANGUAGES = ("java", "scala")
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Unfit(Exception):
    """A contestant that cannot be built, started or read from the manifest; says why, in one line."""


@dataclass(frozen=True)
class Contestant:
    """One entry of the manifest with the defaults filled in; the keys are explained there."""

    name: str
    title: str
    language: str
    folder: Path
    kind: str
    features: list
    needs: list
    needs_hint: str
    build: list
    build_seconds_max: int
    environment: dict
    processes: str
    start_seconds_max: int
    stop_signal: str
    stop_seconds_max: int
    descriptors_spare: int
    heap: dict
    warm_up: dict
    socket_paths: dict
    broadcast: dict
    stats: dict
    start: tuple = ()
    start_tls: tuple = ()
    descriptors_per_connection: int = 1
    version: str = ""
    version_command: tuple = ()
    version_pattern: str = ""
    memory: dict | None = None
    deviations: tuple = ()
    held: dict | None = None

    def speaks_tls(self):
        return "tls" in self.features

    def transports(self):
        """How it holds clients over HTTP."""
        return [name for name in TRANSPORTS if self.held and name in self.held]


@dataclass(frozen=True)
class Pair:
    """What a contestant with TLS shows, as files in PEM."""

    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder):
        """ECDSA P-256 for 127.0.0.1, which signs itself.

        # Errors
        `Unfit` where openssl is missing or fails.
        """
        pair = cls(Path(folder) / "certificate.pem", Path(folder) / "key.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=arena", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(pair.key), "-out", str(pair.certificate)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        except OSError as error:
            raise Unfit(f"certificate: `openssl`: {error.strerror}; install openssl") from error
        if done.returncode:
            raise Unfit(f"certificate: `openssl req` ended with {done.returncode}: {last_words(done.stdout)}")
        return pair

    def context(self):
        """A client that trusts this certificate alone."""
        return ssl.create_default_context(cafile=self.certificate)


@dataclass(frozen=True)
class Order:
    """How a contestant is to be started."""

    port: int
    connections: int
    processes: int = 1
    mode: str = "push"
    push_every_ms: int = 0
    hold_ms: tuple = (30_000, 90_000)
    # How clients are held over HTTP; empty for WebSockets.
    held: str = ""
    tls: "Pair | None" = None
    host: str = "127.0.0.1"

    def ports(self, contestant):
        count = self.processes if contestant.processes == "ports" else 1
        return [self.port + index for index in range(count)]


def load(path=ARENA / "arena.toml"):
    """All contestants of the manifest.

    # Errors
    `Unfit` with the entry and the key that are wrong.
    """
    manifest = tomllib.loads(Path(path).read_text())
    unknown = set(manifest) - {"defaults", "jvm", "contestant"}
    if unknown:
        raise Unfit(f"{path}: no such table: {', '.join(sorted(unknown))}")
    found = [parse(entry, manifest, Path(path).parent) for entry in manifest["contestant"]]
    names = [contestant.name for contestant in found]
    if len(set(names)) < len(names):
        raise Unfit(f"{path}: two contestants have the same name")
    return found


def parse(entry, manifest, directory):
    name = entry.get("name", "a contestant without a name")
    if not entry.get("start") and not entry.get("start_tls"):
        raise Unfit(f"arena.toml, {name}: `start` is missing")
    merged = dict(manifest["defaults"])
    if entry.get("language") in JVM_LANGUAGES:
        merged |= manifest["jvm"]
    merged |= entry
    merged["folder"] = directory / merged.get("folder", name)
    merged["version_command"] = tuple(merged.get("version_command", ()))
    try:
        contestant = Contestant(**merged)
    except TypeError as error:
        raise Unfit(f"arena.toml, {name}: {str(error).removeprefix('Contestant.__init__() ')}") from error
    for key, value, allowed in [
        ("kind", [contestant.kind], KINDS),
        ("features", contestant.features, FEATURES),
        ("deviations", contestant.deviations, DEVIATIONS),
        ("processes", [contestant.processes], PROCESSES),
        ("broadcast.body", [contestant.broadcast["body"]], BODIES),
        ("held.broadcast.body", [contestant.held["broadcast"]["body"]] if contestant.held else [], HELD_BODIES),
    ]:
        if not set(value) <= set(allowed):
            raise Unfit(f"arena.toml, {name}: `{key}` is {value}; it can be {', '.join(allowed)}")
    return contestant


def myriad():
    """Myriad's executable: of the environment, or as `make` builds it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return os.environ.get("MYRIAD", str(target / "release" / "myriad"))


def last_words(text):
    """What a failed program said last: enough for a row of a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("NOTE: Picked up")]
    telling = [line for line in lines if "rror" in line and "[Help" not in line]
    return (telling or lines or ["it said nothing"])[0 if telling else -1][:200]


def build(contestant):
    """Runs the build commands.

    # Errors
    `Unfit` with the command that failed and what it said.
    """
    if missing := [command for command in contestant.needs if not shutil.which(command)]:
        raise Unfit(f"not on PATH: {', '.join(missing)}; {contestant.needs_hint}")
    for command in contestant.build:
        try:
            done = subprocess.run(
                command,
                cwd=contestant.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=contestant.build_seconds_max,
            )
        except subprocess.TimeoutExpired:
            raise Unfit(f"build: `{command[0]}` took over {contestant.build_seconds_max} s") from None
        if done.returncode:
            raise Unfit(f"build: `{' '.join(command)}` ended with {done.returncode}: {last_words(done.stdout)}")


def version(contestant):
    """The pinned version, or what the installed program says of itself.

    # Errors
    `Unfit` where that program does not say it.
    """
    if not contestant.version_command:
        return contestant.version
    command = [word.replace("{myriad}", myriad()) for word in contestant.version_command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    except OSError as error:
        raise Unfit(f"version: `{command[0]}`: {error.strerror}") from error
    if found := re.search(contestant.version_pattern, done.stdout):
        return found.group(1)
    raise Unfit(f"version: `{' '.join(command)}` said: {last_words(done.stdout)}")


def all_descriptors():
    """Between fork and exec: every descriptor allowed, and no life longer than the starter's."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Running:
    """A contestant's processes, from a start to the end of the `with` block."""

    def __init__(self, contestant, order):
        self.contestant = contestant
        self.order = order
        self.ports = order.ports(contestant)
        self.processes = []
        self.said = []

    def __enter__(self):
        try:
            for port in self.ports:
                self.start(port)
            deadline = time.monotonic() + self.contestant.start_seconds_max
            for port in self.ports:
                self.await_ready(port, deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def placeholders(self, port):
        processes = 1 if self.contestant.processes == "one" else self.order.processes
        share = -(-self.order.connections // processes)
        heap = self.contestant.heap
        return {
            "host": self.order.host,
            "port": port,
            "processes": processes,
            "connections": share,
            "mode": self.order.mode,
            "push_every_ms": self.order.push_every_ms,
            "heap_mb": heap["base_mb"] + -(-share * heap["per_1000_connections_mb"] // 1000),
            "myriad": myriad(),
        } | ({"certificate": self.order.tls.certificate, "key": self.order.tls.key} if self.order.tls else {})

    def command(self):
        """What is started, with its placeholders."""
        return (self.contestant.start_tls if self.order.tls else ()) or self.contestant.start

    def start(self, port):
        values = self.placeholders(port)
        environment = {
            "HOST": values["host"],
            "PORT": values["port"],
            "MODE": values["mode"],
            "PUSH_EVERY_MS": values["push_every_ms"],
            "CONNECTIONS": values["connections"],
            "PROCESSES": values["processes"],
            "HOLD_MIN_MS": self.order.hold_ms[0],
            "HOLD_MAX_MS": self.order.hold_ms[1],
        }
        if self.order.tls:
            environment |= {"TLS_CERTIFICATE": values["certificate"], "TLS_KEY": values["key"]}
        environment |= {key: value.format(**values) for key, value in self.contestant.environment.items()}
        said = tempfile.TemporaryFile()
        command = [word.format(**values) for word in self.command()]
        try:
            process = subprocess.Popen(
                command,
                cwd=self.contestant.folder,
                env=os.environ | {key: str(value) for key, value in environment.items()},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=all_descriptors,
            )
        except OSError as error:
            raise Unfit(f"start: `{command[0]}`: {error.strerror}") from error
        self.processes.append(process)
        self.said.append(said)

    def await_ready(self, port, deadline):
        place = self.ports.index(port)
        while True:
            if (code := self.processes[place].poll()) is not None:
                raise Unfit(f"start: it ended with {code}: {self.words(place)}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http_connection(self.order.host, port, 2, self.order.tls and self.order.tls.context())
                try:
                    connection.request("GET", self.contestant.stats["path"])
                    if connection.getresponse().status == 200:
                        return
                finally:
                    connection.close()
            if time.monotonic() > deadline:
                seconds = self.contestant.start_seconds_max
                path = self.contestant.stats["path"]
                raise Unfit(f"start: GET {path} on port {port} unanswered after {seconds} s: {self.words(place)}")
            time.sleep(0.05)

    def words(self, place):
        self.said[place].seek(0)
        return last_words(self.said[place].read().decode(errors="replace"))

    def resident_bytes(self):
        """RSS of all processes and their descendants."""
        return sum(resident(pid) for process in self.processes for pid in tree(process.pid))

    def stop(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(getattr(signal, "SIG" + self.contestant.stop_signal))
        deadline = time.monotonic() + self.contestant.stop_seconds_max
        for process in self.processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for said in self.said:
            said.close()


def tree(pid):
    """The process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
    return found


def resident(pid):
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0

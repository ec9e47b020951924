"""Crowds over TLS: what a connection, a handshake and a push cost more, a storm of handshakes beside pushes, and a million clients."""

import json
import subprocess
import time

from context import ROOT
from course import note_connected, through_pushes
from crowd import SILENCE_S, Run, RunFailed, displayed
from processes import Process

KINDS = ("plain", "tls")
STORM_KINDS = ("calm", "storm")
PUSHES = 5
# A push each second: a few before the storm begins, and then for as long as it may last on two cores.
STORM_PUSHES, STORM_BEGINS_AFTER = 150, 5
# Clients that come at once, for each one that is connected.
STORM_SIZE = 2
# So many shake hands at any time. More would wait at the client, whose turn comes last, for longer than the server waits for them.
STORM_AT_ONCE = 4_096
# How long clients are held, and the pushes of that time.
HELD_S, HELD_PUSHES = 600, 3
# The server's CPU is watched from 120 s after the first push on, for two intervals of pings.
WATCH_AFTER_S, WATCHED_S = 120, 100
# Below the 60 s after which nginx and many load balancers end an idle connection. With 25 s, both ends fill two cores at 900,000 clients
# (AMD EPYC): pongs are late, and the server lets their clients go.
HELD_PING_INTERVAL = "50s"
# A certificate that is no authority's: the crowd takes it as its own authority (`--ca`).
CERTIFICATE = [
    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
    "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem",
]
FLOOR = ["cargo", "run", "--release", "--locked", "--quiet", "-p", "myriad-tls", "--example", "handshakes"]
TARGET = "wss://127.0.0.1:TLS_PORT/raw?channel=bench"


class Pair:
    """The certificate of a bench, and the options that name it."""

    def __init__(self, bench):
        self.certificate, self.key = bench.out / "cert.pem", bench.out / "key.pem"
        if not self.certificate.exists():
            subprocess.run(CERTIFICATE, cwd=bench.out, check=True, capture_output=True)

    def server_options(self, ports):
        return ["--tls-listen", f"127.0.0.1:{ports[1]}", "--tls-certificate", self.certificate, "--tls-key", self.key]

    @property
    def trust(self):
        return ["--ca", self.certificate]

    @property
    def crowd_options(self):
        # More handshakes at once only wait for the two processors, with 9 KB each, which malloc then keeps.
        return [*self.trust, "--connecting-max", 128]


def handshakes_per_s():
    """Handshakes a second that this machine makes now in memory, both ends, with the library alone."""
    done = subprocess.run(FLOOR, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RunFailed(f"measuring handshakes in memory failed: {done.stderr.strip()}")
    return json.loads(done.stdout)["rate_per_s"]


def broadcast(bench, name, kind, connections):
    """As `scenarios.broadcast`, to `raw` clients of the port with TLS, or of the plain one. Both servers have both ports."""
    every_s = 2 + connections // 50_000
    pair = Pair(bench)
    # Right before the run: other load on the machine or its host changes within minutes.
    floor = {"handshakes_per_s": handshakes_per_s()} if kind == "tls" else {}

    def crowd_options(_, ports):
        options = bench.publish_options("io_uring", ports, PUSHES, f"{every_s}s")
        return [*pair.crowd_options, *options] if kind == "tls" else options

    path = TARGET if kind == "tls" else "/raw?channel=bench"
    course = through_pushes(PUSHES, server_cpu_s=Run.cpu_seconds)
    figures = bench.run(name, "io_uring", connections, "0", crowd_options, course, path, server_options=pair.server_options)
    commands = [" ".join(CERTIFICATE), *([" ".join(FLOOR)] if floor else []), *figures["commands"]]
    return figures | floor | {"kind": kind, "commands": commands}


def storm(bench, name, kind, connections):
    """A crowd with TLS that gets a push each second, while twice as many clients come at once, or nobody comes."""
    pair, coming = Pair(bench), STORM_SIZE * connections
    storms, commands = [], []

    def begin(run):
        # The clients that come stand for other machines. Here they would take the processors of the crowd that is measured, so they run
        # at the lowest priority, and slow down the server alone.
        report = bench.out / f"{name}.storm.json"
        command = ["nice", "-n", "19", *bench.crowd_command(coming, run.ports, report, TARGET, *pair.trust, "--connecting-max", STORM_AT_ONCE, "--duration", "1s")]
        storms.append((Process(command, bench.out / f"{name}.storm.log"), report))
        commands.append(displayed(command))

    def course(run, event):
        note_connected(run, event)
        if event["event"] == "push":
            pushes = run.figures.setdefault("pushes", [])
            pushes.append(event)
            if kind == "storm" and len(pushes) == STORM_BEGINS_AFTER:
                begin(run)
        return False

    figures = bench.run(
        name, "io_uring", connections, "0",
        lambda _, ports: [*pair.crowd_options, *bench.publish_options("io_uring", ports, STORM_PUSHES, "1s")],
        course, TARGET, server_options=pair.server_options, others=coming,
    )
    for process, report in storms:
        with process:
            process.popen.wait(SILENCE_S)
        figures["storm"] = json.loads(report.read_text())["setup"]
    return figures | {"kind": kind, "commands": [" ".join(CERTIFICATE), *figures["commands"], *commands]}


def held(bench, name, kind, connections):
    """A crowd with TLS that is held for ten minutes, pinged each 50 s, and pushed to at the beginning, in the middle and at the end.

    The server's CPU is that of two intervals of pings, in which nothing else happens."""
    pair = Pair(bench)

    def course(run, event):
        note_connected(run, event)
        now = time.monotonic()
        if event["event"] == "push":
            run.figures.setdefault("pushes", []).append(event)
            run.pushed_at = getattr(run, "pushed_at", now)
        since = now - getattr(run, "pushed_at", now)
        if since >= WATCH_AFTER_S and not hasattr(run, "cpu_before"):
            run.cpu_before, run.watched_from = run.cpu_seconds(), now
        elif since >= WATCH_AFTER_S + WATCHED_S and "server_cpu_share" not in run.figures:
            run.figures["server_cpu_share"] = (run.cpu_seconds() - run.cpu_before) / (now - run.watched_from)
            run.figures["open_when_watched"] = run.connected
        return False

    def crowd_options(_, ports):
        return [*pair.crowd_options, *bench.publish_options("io_uring", ports, HELD_PUSHES, f"{HELD_S // (HELD_PUSHES - 1)}s")]

    figures = bench.run(name, "io_uring", connections, HELD_PING_INTERVAL, crowd_options, course, TARGET, server_options=pair.server_options)
    return figures | {"kind": kind, "commands": [" ".join(CERTIFICATE), *figures["commands"]]}

"""Runs with clients that speak HTTP: requests that are held, and streams."""

import time
import urllib.request

from course import note_connected, through_pushes, until_over
from crowd import Run, buckets

# In the same run, one after the other: what `raw` takes is the measure.
PROTOCOLS = ("raw", "long-poll", "sse")
PATHS = {
    "raw": "/raw?channel=bench",
    "long-poll": "http://127.0.0.1:PORT/v1/stream/bench?offset=now&live=long-poll",
    "sse": "http://127.0.0.1:PORT/v1/stream/bench?offset=now&live=sse",
    "read": "http://127.0.0.1:PORT/v1/stream/bench?offset=-1",
}
# A poll that nothing is published to must outlive the broadcasts.
PATIENT = 'poll-timeout = "10m"\n'

# The comet test: how long a poll is held, and for how long the crowd is.
HELD_FOR = "30s..90s"
COMET = f'poll-timeout = "{HELD_FOR}"\n'
COMET_S = 300
# After connecting, before the processor time is watched: until the first polls are answered.
COMET_SETTLE_S = 30

# Of polls-rate: publications that come faster than 100,000 answers a second allow, or none.
RATES = ("parked", "read")
RATE_EVERY_S = 0.05
RATE_SECONDS = 10


def create_stream(ports):
    """Creates the stream that the crowd reads; one that exists is left as it is."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{ports[0]}/v1/stream/bench", method="PUT", headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


def published(bench, ports, pushes, every):
    """By the API, to the same channel for all protocols."""
    options = bench.publish_options("io_uring", ports, pushes, every)
    return [*options, "--publish-channel", "bench"]


def broadcast(bench, name, kind, connections):
    """Connects, holds, pushes several times, to clients of the protocol `kind`."""
    pushes, every_s = 5, 2 + connections // 50_000

    def crowd_options(_, ports):
        create_stream(ports)
        return ["--protocol", kind, *published(bench, ports, pushes, f"{every_s}s")]

    course = through_pushes(pushes, server_cpu_s=Run.cpu_seconds)
    run = bench.run(name, "io_uring", connections, "0", crowd_options, course, PATHS[kind], PATIENT)
    return run | {"kind": kind}


def comet(bench, name, kind, connections):
    """Clients whose polls are answered after a random time, and that ask again at once."""

    def course(run, event):
        if note_connected(run, event):
            run.connected_at = time.monotonic()
        now = time.monotonic()
        if hasattr(run, "connected_at") and now >= run.connected_at + COMET_SETTLE_S:
            if not hasattr(run, "watched_from"):
                run.cpu_before, run.watched_from = run.cpu_seconds(), now
            elif event["event"] == "progress":
                used = run.cpu_seconds() - run.cpu_before
                run.figures["server_cpu_share"] = used / (now - run.watched_from)
                run.figures["lateness_s"] = buckets(run.metrics(), "myriad_poll_lateness_seconds")
        return False

    def crowd_options(_, ports):
        create_stream(ports)
        return ["--protocol", "long-poll", "--expect-held", HELD_FOR, "--duration", f"{COMET_S}s"]

    return bench.run(name, kind, connections, "0", crowd_options, course, PATHS["long-poll"], COMET)


def rate(bench, name, kind, connections):
    """As many polls a second as the server takes: parked and answered by publications, or answered at once."""

    def crowd_options(_, ports):
        create_stream(ports)
        if kind == "read":
            return ["--protocol", "long-poll", "--poll-position", "none", "--duration", f"{RATE_SECONDS}s"]
        pushes = round(RATE_SECONDS / RATE_EVERY_S)
        return ["--protocol", "long-poll", *published(bench, ports, pushes, f"{RATE_EVERY_S * 1000:.0f}ms")]

    path = PATHS["read" if kind == "read" else "long-poll"]
    return bench.run(name, "io_uring", connections, "0", crowd_options, until_over, path, PATIENT) | {"kind": kind}

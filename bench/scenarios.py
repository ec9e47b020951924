"""The runs behind the figures. Each scenario gives several rows of the table."""

import sys
import time
from dataclasses import dataclass

import accuracy
import application
import flows
import held
import namespace
import quantity
import report
import secured
import sessions
import tokens
from course import note_connected, push_from_probe, through_pushes
from crowd import Run

KINDS = ["baseline", "io_uring", "epoll"]


@dataclass(frozen=True)
class Scenario:
    name: str
    connections: int
    rounds: int
    kinds: tuple
    # A function of (bench, name of the run, kind, connections).
    measure: object
    larger_hash: bool = False
    # Run only when it is named: it needs more than the others, such as a larger machine.
    when_named: bool = False


def broadcast(bench, name, kind, connections, pushes=None, every_s=None):
    """Connects, holds, pushes several times: setup rate, memory, fan-out times, CPU per delivery."""
    pushes = pushes or (5 if connections <= 200_000 else 3 if connections <= 1_000_000 else 2)
    # Three times what the plain baseline takes here, because pushes must not overlap.
    every_s = every_s or 2 + connections // 50_000
    return bench.run(
        name, kind, connections, "0",
        lambda kind, ports: bench.publish_options(kind, ports, pushes, f"{every_s}s"),
        through_pushes(pushes, server_cpu_s=Run.cpu_seconds),
        watches_server=True,
    )


def broadcast_over_floor(bench, name, kind, connections):
    """The same, with the floor under connecting beside it."""
    # Right before the run, because other load on the machine or its host changes within minutes.
    floor_per_s = bench.connect_floor_per_s(connections)
    return broadcast(bench, name, kind, connections) | {"connect_floor_per_s": floor_per_s}


def compressed(bench, name, kind, connections):
    """Pushes 1 KiB of JSON to clients with or without compression, on the same driver."""
    pushes = 5
    every_s = 2 + connections // 50_000

    def crowd_options(_, ports):
        options = bench.publish_options("io_uring", ports, pushes, f"{every_s}s")
        options += ["--payload", "json", "--payload-size", "1024"]
        return options + ["--compression"] if kind == "compressed" else options

    course = through_pushes(pushes, server_cpu_s=Run.cpu_seconds, sent_bytes=Run.sent_bytes)
    return bench.run(name, "io_uring", connections, "0", crowd_options, course) | {"kind": kind}


def idle(bench, name, kind, connections):
    """Holds the crowd with pings every 25 s and measures the server's CPU over two of those intervals."""
    settle_s, watched_s = 30, 50

    def course(run, event):
        if note_connected(run, event):
            run.connected_at = time.monotonic()
        if not hasattr(run, "connected_at"):
            return False
        now = time.monotonic()
        if not hasattr(run, "cpu_before"):
            if now >= run.connected_at + settle_s:
                run.cpu_before, run.watched_from = run.cpu_seconds(), now
        elif now >= run.watched_from + watched_s:
            run.figures["server_cpu_share"] = (run.cpu_seconds() - run.cpu_before) / (now - run.watched_from)
            run.figures["open_when_watched"] = run.connected
            return True
        return False

    return bench.run(name, kind, connections, "25s", lambda kind, ports: ["--duration", "10m"], course)


def latency(bench, name, kind, connections):
    """Holds the crowd without pings; a second, tiny crowd publishes to a channel of its own."""

    def course(run, event):
        if event["event"] != "phase" or event["phase"] != "connected":
            return False
        run.figures["probe"] = push_from_probe(bench, name, run.ports, "/raw?channel=probe", 2_000, "10ms")
        return True

    figures = bench.run(name, kind, connections, "0", lambda kind, ports: ["--duration", "10m"], course)
    figures["commands"].append(figures["probe"].pop("command"))
    return figures


def everything(connections, rounds, connections_max=None):
    """All scenarios. `connections` and `rounds` override the usual ones if given; `connections_max` only larger ones."""

    def sized(usual):
        return connections or min(usual, connections_max or usual)

    def scenario(name, usual, usual_rounds, kinds, measure, **more):
        return Scenario(name, sized(usual), rounds or usual_rounds, tuple(kinds), measure, **more)

    io_uring = ("io_uring",)
    return [
        scenario("broadcast-100k", 100_000, 5, KINDS, broadcast_over_floor),
        scenario("compressed-100k", 100_000, 5, ("plain", "compressed"), compressed),
        scenario("tls-100k", 100_000, 3, secured.KINDS, secured.broadcast),
        scenario("tls-storm", 50_000, 3, secured.STORM_KINDS, secured.storm),
        scenario("sessions-100k", 100_000, 5, sessions.PROTOCOLS, sessions.sessions),
        scenario("tokens-100k", 100_000, 3, tokens.KINDS, tokens.with_tokens),
        scenario("proxy-connect", 50_000, 3, ("application",), application.asked_at_connect),
        scenario("sessions-1m", 1_000_000, 1, ("centrifuge-json",), sessions.sessions),
        scenario("rooms-100k", 100_000, 3, sessions.ROOM_LOADS, sessions.rooms),
        scenario("rooms-100k-clients", 100_000, 3, sessions.ROOM_LOADS, sessions.rooms_by_clients),
        scenario("rooms-10k-batched", 10_000, 3, io_uring, sessions.batched_rooms),
        scenario("publish-ack-10k", 10_000, 3, sessions.ACK_LOADS, sessions.publish_acks),
        scenario("history-100", 1_000, 3, io_uring, sessions.history),
        scenario("recovery-10k", 10_000, 3, io_uring, sessions.recovery),
        scenario("members-100k", 100_000, 3, io_uring, sessions.members),
        scenario("held-100k", 100_000, 5, held.PROTOCOLS, held.broadcast),
        scenario("polls-1m", 1_000_000, 1, io_uring, held.comet),
        scenario("polls-rate", 10_000, 3, held.RATES, held.rate),
        scenario("im-200k-1000", 200_000, 3, io_uring, flows.im_full_link),
        scenario("im-20k-2200", 20_000, 3, io_uring, flows.im_full_link),
        scenario("im-200k-2200", 200_000, 3, io_uring, flows.im_full_link),
        scenario("im-1m", 1_000_000, 1, io_uring, flows.im_full_link),
        scenario("accuracy", 50, 3, ("io_uring", "epoll"), accuracy.accuracy),
        scenario("requests", 500, 3, ("io_uring", "epoll"), flows.requests),
        scenario("api-publish", 1_000, 3, sessions.API_KINDS, sessions.api_publishes),
        scenario("channels-1m", 1_000_000, 1, io_uring, sessions.many_channels),
        scenario("broadcast-1m", 1_000_000, 3, KINDS, broadcast),
        scenario("idle-1m", 1_000_000, 1, ("io_uring", "epoll"), idle),
        scenario("latency-1m", 1_000_000, 1, ("io_uring", "epoll"), latency),
        scenario("tls-1m", 1_000_000, 1, ("tls",), secured.held),
        scenario("broadcast-1m-hash", 1_000_000, 3, KINDS, broadcast, larger_hash=True),
        # Both ends take 17 GB of kernel memory. The baseline's processes would need more.
        scenario("broadcast-2m", 2_000_000, 1, io_uring, broadcast, when_named=True),
    ]


def run_scenario(bench, scenario):
    """All rounds, one run after the other; each round begins with another kind. Returns the list of runs."""
    if scenario.larger_hash:
        return namespace.run_inside(lambda: _rounds(bench, scenario))
    return _rounds(bench, scenario)


def _rounds(bench, scenario):
    runs = []
    for turn in range(scenario.rounds):
        shift = turn % len(scenario.kinds)
        for kind in scenario.kinds[shift:] + scenario.kinds[:shift]:
            name = f"{scenario.name}.{turn}.{kind}"
            started = time.monotonic()
            figures = scenario.measure(bench, name, kind, scenario.connections)
            figures["round"] = turn
            runs.append(figures)
            print(f"  {name}: {summary(figures)}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            if figures["busy_before"] > 0.1:
                print(
                    f"  the machine was {figures['busy_before']:.0%} busy before this run: figures are doubtful",
                    file=sys.stderr,
                )
    return runs


def summary(figures):
    setup = figures["report"]["setup"]
    text = f"{setup['connected']:,} at {setup['rate_per_s']:,.0f}/s"
    if "pushes" in figures:
        text += ", last after " + " ".join(f"{push['last_ms'] or 0:.0f}" for push in figures["pushes"]) + " ms"
    if "sent_bytes" in figures:
        text += f", {quantity.size(figures['sent_bytes'])} sent, server CPU {figures['server_cpu_s']:.2f} s"
    if "server_cpu_share" in figures:
        text += f", server CPU {figures['server_cpu_share']:.1%}"
    return ", ".join([text, *report.push_notes(figures), *report.session_notes(figures), *report.cpu_notes(figures)])

"""Runs with clients that have a session: broadcasts, rooms, recovery, and answers to what clients ask."""

import time

from course import note_connected, push_from_probe, through_pushes, until_over
from crowd import Run

PATH = "/connection/websocket"
JSON_CLIENTS = ["--protocol", "centrifuge-json"]
PROTOCOLS = ("raw", "centrifuge-json", "centrifuge-protobuf")
# Longer than any measurement beside the crowd. The course ends it earlier.
HELD = ["--duration", "10m"]
# Between the end of connecting and the first publication of a client: the crowd's own `--warmup`.
WARM_UP_S = 2
# After connecting, before somebody asks: machine and server become quiet. A probe's own warm-up is as long.
CALM_S = 2

ROOM_MEMBERS = 100
# rooms-100k: for each kind of run, the share of the target rate that is published.
ROOM_LOADS = {"at 50%": 0.5, "at 80%": 0.8, "at 100%": 1.0}
ROOM_DELIVERIES_PER_S = 150_000
ROOM_SECONDS = 30

BATCHED_DELIVERIES_PER_S = 400_000
# As `--dev` has channels without a namespace, but for the delay.
BATCHED = """\
[[channel.namespaces]]
name = "batched"
batch_delay = "100ms"
presence = true
join_leave = true
history_size = 100
history_ttl = "300s"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
allow_publish_for_subscriber = true
allow_publish_for_anonymous = true
"""

# publish-ack-10k: for each kind of run, the share of the target rate that is published.
ACK_LOADS = {"at 25%": 0.25, "at 50%": 0.5, "at 75%": 0.75, "at 100%": 1.0}
ACKS_PER_S = 100_000
ACK_SECONDS = 20

MISSED_EACH = 50
# As many as `--dev` keeps.
PUBLISHED = 100

# api-publish: one publication in a request, or a batch of them.
API_KINDS = ("single", "batch")

# channels-1m: clients in a channel, the channel that is measured, and pushes to it.
CHANNEL_MEMBERS = 10
PROBED_CHANNEL = 77
PROBE_PUSHES = 1_000
# For what the probe pushed to reach the other members too.
REST_PATIENCE_S = 10


def sessions(bench, name, kind, connections):
    """As `broadcast`, to clients that speak the protocol `kind`, each with one subscription."""
    pushes = 5 if connections <= 200_000 else 3
    every_s = 2 + connections // 50_000
    path = "/raw" if kind == "raw" else PATH

    def crowd_options(_, ports):
        options = bench.publish_options("io_uring", ports, pushes, f"{every_s}s")
        return ["--protocol", kind, "--channel", "bench", *options]

    course = through_pushes(pushes, server_cpu_s=Run.cpu_seconds)
    return bench.run(name, "io_uring", connections, "0", crowd_options, course, path) | {"kind": kind}


def rooms(bench, name, kind, connections):
    """Publishes to rooms of 100 JSON clients each, at a share of 150,000 deliveries a second, for half a minute."""
    count, per_second = room_load(connections, ROOM_LOADS[kind] * ROOM_DELIVERIES_PER_S, 100_000)
    every_s = count / per_second

    def crowd_options(_, ports):
        pushes = max(round(ROOM_SECONDS / every_s), 1)
        options = bench.publish_options("io_uring", ports, pushes, f"{every_s * 1000:.0f}ms")
        return [*JSON_CLIENTS, "--channel", "room", "--channels", count, "--spread", *options]

    return bench.run(name, "io_uring", connections, "0", crowd_options, until_over, PATH) | {"kind": kind}


def rooms_by_clients(bench, name, kind, connections):
    """The same load, but the members publish over their own connections."""
    count, per_second = room_load(connections, ROOM_LOADS[kind] * ROOM_DELIVERIES_PER_S, 100_000)
    options = ["--channel", "room", "--channels", count, *client_publish(per_second, ROOM_SECONDS)]
    return run_json_clients(bench, name, connections, options) | {"kind": kind}


def batched_rooms(bench, name, kind, connections):
    """Members publish to rooms of 100, which deliver what came within 100 ms as one frame."""
    count, per_second = room_load(connections, BATCHED_DELIVERIES_PER_S, 10_000)
    options = ["--channel", "batched:room", "--channels", count, *client_publish(per_second, ROOM_SECONDS)]
    return run_json_clients(bench, name, connections, options, config=BATCHED) | {"kind": kind}


def publish_acks(bench, name, kind, connections):
    """Clients publish, each to a channel of its own, so that answers are measured more than deliveries."""
    per_second = ACK_LOADS[kind] * ACKS_PER_S * connections / 10_000
    options = ["--channel", "own", "--channels", connections, *client_publish(per_second, ACK_SECONDS)]
    return run_json_clients(bench, name, connections, options) | {"kind": kind}


def room_load(connections, deliveries_per_s, usual_connections):
    """How many rooms, and how many publications a second to all of them together.

    With fewer connections than usual fewer deliveries, so that a trial asks for the same rate of each room.
    """
    count = max(connections // ROOM_MEMBERS, 1)
    return count, deliveries_per_s / ROOM_MEMBERS * (connections / usual_connections)


def client_publish(per_second, duration_s):
    return ["--client-publish", f"{per_second:.10g}/s", "--duration", f"{WARM_UP_S + duration_s}s"]


def run_json_clients(bench, name, connections, options, course=until_over, config=None):
    return bench.run(
        name, "io_uring", connections, "0", lambda kind, ports: [*JSON_CLIENTS, *options], course, PATH, config
    )


def recovery(bench, name, kind, connections):
    """All clients connect at once, and each recovers the newest 50 publications of one channel."""
    filled = {}

    def crowd_options(_, ports):
        filled.update(bench.ask("fill", ports, "bench", count=PUBLISHED))
        position = f"{filled['epoch']}:{filled['offset'] - MISSED_EACH}"
        return [*JSON_CLIENTS, "--channel", "bench", "--recover-from", position, "--duration", "2s"]

    figures = bench.run(name, "io_uring", connections, "0", crowd_options, until_over, PATH)
    figures["commands"].insert(1, filled["command"])
    return figures | {"kind": kind, "missed_each": MISSED_EACH}


def history(bench, name, kind, connections):
    """One client reads 100 publications again and again. The crowd only listens."""
    filled = {}

    def crowd_options(_, ports):
        filled.update(bench.ask("fill", ports, "bench", count=PUBLISHED))
        return [*JSON_CLIENTS, "--channel", "bench", *HELD]

    course = while_held(bench, history=lambda run: PUBLISHED)
    figures = bench.run(name, "io_uring", connections, "0", crowd_options, course, PATH)
    figures["commands"].insert(1, filled["command"])
    return with_commands_of_asked(figures) | {"kind": kind}


def members(bench, name, kind, connections):
    """One client reads the first page of the members of a room again and again, and then how many there are."""
    course = while_held(bench, members=lambda run: run.connected, stats=lambda run: run.connected)
    figures = run_json_clients(bench, name, connections, ["--channel", "bench", *HELD], course)
    return with_commands_of_asked(figures) | {"kind": kind}


def while_held(bench, **counts):
    """A course that asks these questions of `ask.py` about the crowd's channel, and then ends.

    The value of a question is a function of the run: how many publications or members the answer must have. A client that
    did not connect is no member, and must not end a measurement of hours. Its round does not count.
    """

    def course(run, event):
        if not note_connected(run, event):
            return False
        time.sleep(CALM_S)
        run.figures["asked"] = {
            question: bench.ask(question, run.ports, "bench", count=count(run)) for question, count in counts.items()
        }
        return True

    return course


def with_commands_of_asked(figures):
    figures["commands"] += [asked["command"] for asked in figures["asked"].values()]
    return figures


def api_publishes(bench, name, kind, connections):
    """Publishes by the API as fast as it answers. The crowd listens to other channels."""

    def course(run, event):
        if not note_connected(run, event):
            return False
        time.sleep(CALM_S)
        run.figures["api"] = bench.load_api(kind, run.ports)
        return True

    figures = run_json_clients(bench, name, connections, ["--channel", "bench", *HELD], course)
    figures["commands"].append(figures["api"]["command"])
    return figures | {"kind": kind}


def many_channels(bench, name, kind, connections):
    """Holds clients in channels of ten. A second, tiny crowd joins one of these channels and publishes to it."""
    count = max(connections // CHANNEL_MEMBERS, 1)
    channel = min(PROBED_CHANNEL, count)
    # Clients are dealt out to the channels in turn.
    members = len(range(channel - 1, connections, count))

    def course(run, event):
        if event["event"] == "progress":
            run.messages = event["messages"]
        if note_connected(run, event):
            before = run.messages
            listening = [*JSON_CLIENTS, "--channel", f"room-{channel}"]
            run.figures["probe"] = push_from_probe(bench, name, run.ports, PATH, PROBE_PUSHES, "20ms", *listening)
            run.heard = lambda: run.messages - before
            run.patient_until = time.monotonic() + REST_PATIENCE_S
        if "probe" not in run.figures:
            return False
        run.figures["others"] = {"expected": members * PROBE_PUSHES, "received": run.heard()}
        return run.heard() >= members * PROBE_PUSHES or time.monotonic() > run.patient_until

    options = ["--channel", "room", "--channels", count, *HELD]
    figures = run_json_clients(bench, name, connections, options, course)
    figures["commands"].append(figures["probe"].pop("command"))
    return figures | {"kind": kind}

"""Runs with clients that have a session: broadcasts and rooms."""

from course import through_pushes, until_over
from crowd import Run

PATH = "/connection/websocket"
JSON_CLIENTS = ["--protocol", "centrifuge-json"]
PROTOCOLS = ("raw", "centrifuge-json", "centrifuge-protobuf")

ROOM_MEMBERS = 100
# Of rooms-100k: the share of the target that is published, by kind of run.
ROOM_LOADS = {"at 50%": 0.5, "at 80%": 0.8, "at 100%": 1.0}
ROOM_DELIVERIES_PER_S = 150_000
ROOM_SECONDS = 30


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
    count = max(connections // ROOM_MEMBERS, 1)
    # With fewer connections fewer deliveries, so that a trial asks for the same rate of each room.
    per_second = ROOM_LOADS[kind] * ROOM_DELIVERIES_PER_S / ROOM_MEMBERS * (connections / 100_000)
    every_s = count / per_second

    def crowd_options(_, ports):
        pushes = max(round(ROOM_SECONDS / every_s), 1)
        options = bench.publish_options("io_uring", ports, pushes, f"{every_s * 1000:.0f}ms")
        return [*JSON_CLIENTS, "--channel", "room", "--channels", count, "--spread", *options]

    return bench.run(name, "io_uring", connections, "0", crowd_options, until_over, PATH) | {"kind": kind}

"""How long nobody can publish when the NATS server that leads the stream steps down, or is killed."""

import json
import secrets
import socket
import time

import cluster_publisher
from cluster_figure import Figure
from cluster_publisher import Publisher
from cluster_stage import STREAM, Stage, nats, say

SERVERS = 3
# Publications a second, to 50 channels in turn. A pause is measured to 5 ms. As many as a client may have under way are more than
# those of the 3.5 s that a node tries to store each.
RATE = 200
# From the publisher's start to the fault.
LEAD_SECONDS = 3
STEP_DOWNS = 5
STEP_DOWN_SECONDS_MOST = 0.2
KILLS = 3
# JetStream elects a leader in that time.
ELECTION_SECONDS = (4, 9)


def measure(options):
    """One node publishes at a rate. The longest time without any acknowledgement counts, of several faults of each kind."""
    cluster_publisher.program()
    with Stage(options, SERVERS) as stage:
        stage.start(1)
        say(f"the stream's leader steps down, {STEP_DOWNS} times")
        downs = [pause(stage, "6s", step_down) for _ in range(STEP_DOWNS)]
        say(f"the stream's leader is killed, {KILLS} times")
        kills = [killed(stage) for _ in range(KILLS)]
    yield from figures_of_step_downs(downs)
    yield from figures_of_kills(kills)


def figures_of_step_downs(found):
    what = f"without publishes while the leader steps down, longest of {len(found)}"
    yield Figure(what, max(seconds_of("longest_pause_ms", found)), "s", (None, STEP_DOWN_SECONDS_MOST))
    # A publication that was on its way to the old leader is sent again after 1.5 s. Others are not held up by it.
    yield Figure("slowest publication meanwhile", max(seconds_of("slowest_ms", found)), "s")
    yield Figure("publications refused meanwhile", sum(one["refused"] for one in found), "")


def figures_of_kills(found):
    pauses = seconds_of("longest_pause_ms", found)
    for what, value in (("shortest", min(pauses)), ("longest", max(pauses))):
        yield Figure(f"without publishes after kill -9 of the leader, {what} of {len(found)}", value, "s", ELECTION_SECONDS)
    yield Figure("publications refused meanwhile, with error 100 after 3.5 s", sum(one["refused"] for one in found), "")


def seconds_of(name, found):
    return [one[name] / 1_000 for one in found]


def pause(stage, duration, fault):
    """What the publisher measures while a fault happens."""
    url = stage.nodes[0].websocket()
    with Publisher(stage.folder, [url], "-rate", RATE, "-warm-up", "1s", "-duration", duration) as publisher:
        time.sleep(LEAD_SECONDS)
        fault(stage)
        return publisher.figures()


def killed(stage):
    """The leader is killed; when the pause is over, it comes back, and all servers have all messages again."""
    servers = stage.cluster.servers
    found = pause(stage, "25s", lambda stage: leader(stage).kill())
    for server in servers:
        if server.process is None:
            server.start()
    nats.wait_for("JetStream", stage.cluster.is_ready)
    return found


def leader(stage):
    return nats.wait_for("a leader", lambda: stage.cluster.leader_of(STREAM))


def step_down(stage):
    answer = ask(leader(stage), f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}")
    if not answer.get("success"):
        raise RuntimeError(f"the leader does not step down: {answer}")


def ask(server, subject):
    """A request without a payload to a NATS server. Returns its answer."""
    inbox = f"_INBOX.{secrets.token_hex(8)}"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        answers = connection.makefile("rb")
        # Its INFO.
        answers.readline()
        hello = 'CONNECT {"verbose":false,"pedantic":false}'
        connection.sendall(f"{hello}\r\nSUB {inbox} 1\r\nPUB {subject} {inbox} 0\r\n\r\n".encode())
        for line in answers:
            if line.startswith(b"MSG"):
                return json.loads(answers.read(int(line.split()[-1])))
            if line.startswith(b"-ERR"):
                raise RuntimeError(f"{server.name} says {line!r}")
            if line.startswith(b"PING"):
                connection.sendall(b"PONG\r\n")
    raise RuntimeError(f"{server.name} has ended the connection")

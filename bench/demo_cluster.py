#!/usr/bin/env python3
"""A cluster that one can watch: three NATS servers, four nodes, a crowd on them, and pushes to all. A node and a NATS server are killed
meanwhile. The table at the end says what the clients saw.

    bench/demo_cluster.py --myriad target/release/myriad [--clients N] [--seconds S] [--every S] [--driver NAME]

As many clients as memory allows, at most a million. Everything listens on loopback addresses: nodes at ports 8001 to 8004.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

import nats  # noqa: E402
from node import Node, start_all  # noqa: E402

PORTS = [8001, 8002, 8003, 8004]
NATS_SERVERS = 3
# Both ends of a connection in the kernel, a session in the node and one in the crowd (docs/benchmarks.md), with some to spare.
BYTES_PER_CLIENT = 10_000
# For the NATS servers, the nodes and everything else.
BYTES_RESERVED = 4 << 30
CLIENTS_MAX = 1_000_000
# A push comes when the one before it has reached everybody: nodes, NATS servers and crowd share the machine.
EVERY_SECONDS_MIN = 2
DELIVERIES_PER_SECOND = 50_000
# From the last client's arrival to the end: at least so many seconds, and so many pushes.
SECONDS_MIN = 60
PUSHES_MIN = 8
STREAM = "myriad-~"
CONFIG = """
[channel.without_namespace]
history_size = 1000
history_ttl = "10m"
force_recovery = true
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[client]
allow_anonymous_connect_without_token = true
"""


def say(text):
    print(f"\n== {text}", flush=True)


def clients_that_fit():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return max(1_000, min(CLIENTS_MAX, (available - BYTES_RESERVED) // BYTES_PER_CLIENT // 1_000 * 1_000))
    raise RuntimeError("/proc/meminfo says nothing of MemAvailable")


class DemoNode(Node):
    """A node at a port that people can remember."""

    def __init__(self, options, folder, number, broker):
        super().__init__(options.myriad, folder, number, broker, NATS_SERVERS)
        self.name, self.port = f"node {number + 1}", PORTS[number]
        # When one is killed, its clients go to the others.
        self.arguments = [
            options.myriad, "serve", "--config", str(folder / "myriad.toml"), "--listen", f"127.0.0.1:{self.port}",
            "--broker", broker, "--broker-replicas", str(NATS_SERVERS), "--shards", "1", "--driver", options.driver,
            "--max-connections", str(options.clients), "--ping-interval", "5m", "--dev",
        ]

    def connections(self):
        try:
            _, metrics = self.request("GET", "/metrics")
        except OSError:
            return 0
        return int(re.search(r"^myriad_connections (\d+)$", metrics, re.M)[1])


def wait_until_connected(nodes, crowd, clients):
    while sum(node.connections() for node in nodes) < clients:
        if crowd.poll() is not None:
            raise RuntimeError("the crowd has ended before it was connected")
        time.sleep(1)


def crowd_arguments(options, report):
    return [
        options.myriad, "swarm", str(ROOT / "scenarios" / "cluster.toml"), "--connections", str(options.clients),
        "--duration", f"{options.seconds}s", "--var", f"every={options.every}s", "--json", str(report), "--no-tui", "--driver", options.driver,
    ]


def table(report, events):
    session, comeback = report.get("session") or {}, report.get("comeback") or {}
    fanout, messages = report.get("fanout") or {}, report["messages"]
    lasts = [push["last_ms"] for push in report.get("pushes", []) if push.get("last_ms")]
    rows = [
        ("clients connected", f"{report['setup']['connected']:,}"),
        *events,
        ("pushes made, and refused", f"{fanout.get('pushes', 0):,} and {fanout.get('failed', 0):,}"),
        ("to the last client, median and slowest push", f"{median(lasts or [0]):,.0f} ms and {max(lasts, default=0):,.0f} ms"),
        ("clients that lost their node", f"{comeback.get('gone', 0):,}"),
        ("back on another one", f"{comeback.get('back', 0):,}"),
        ("recovered all that they had missed, and not", f"{session.get('recovered', 0):,} and {session.get('unrecovered', 0):,}"),
        ("pushes that they missed for good", f"{comeback.get('missed', 0):,}"),
        ("pushes that a client got twice", f"{messages['duplicates']:,}"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")


def run(options, folder):
    (folder / "myriad.toml").write_text(CONFIG)
    cluster = nats.Cluster(options.nats, folder, NATS_SERVERS)
    nodes = [DemoNode(options, folder, number, cluster.url()) for number in range(len(PORTS))]
    crowd = None
    try:
        say("three NATS servers and four nodes start")
        cluster.start()
        start_all(nodes)
        say(f"{options.clients:,} clients connect; then a push every {options.every} s, for {options.seconds} s")
        report = folder / "report.json"
        crowd = subprocess.Popen(crowd_arguments(options, report))
        wait_until_connected(nodes, crowd, options.clients)
        time.sleep(options.seconds / 4)
        lost = nodes[-1].connections()
        say(f"{nodes[-1].name} is killed, with {lost:,} clients")
        nodes[-1].kill()
        time.sleep(options.seconds / 3)
        leader = cluster.leader_of(STREAM)
        say(f"NATS server {leader.name}, the leader of the stream, is killed")
        leader.kill()
        code = crowd.wait()
        say("what the clients saw")
        events = [(f"{nodes[-1].name} killed, with clients", f"{lost:,}"), ("NATS server killed", f"{leader.name}, the stream's leader")]
        table(json.loads(report.read_text()), events)
        return code
    finally:
        if crowd:
            crowd.kill()
        for node in nodes:
            node.kill()
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--myriad", default=str(ROOT / "target" / "release" / "myriad"))
    parser.add_argument("--clients", type=int, default=None, help="as many as memory allows")
    parser.add_argument("--seconds", type=int, help=f"from the last client's arrival to the end: {SECONDS_MIN}, or {PUSHES_MIN} pushes")
    parser.add_argument("--every", type=int, help=f"seconds between pushes: {EVERY_SECONDS_MIN}, or one for each {DELIVERIES_PER_SECOND:,} clients")
    parser.add_argument("--driver", default="auto", help="of nodes and crowd: auto, io_uring or epoll")
    options = parser.parse_args()
    options.clients = options.clients or clients_that_fit()
    options.every = options.every or max(EVERY_SECONDS_MIN, -(-options.clients // DELIVERIES_PER_SECOND))
    options.seconds = options.seconds or max(SECONDS_MIN, PUSHES_MIN * options.every)
    options.nats = nats.program_or_exit()
    with tempfile.TemporaryDirectory(prefix="demo-cluster-") as name:
        return run(options, Path(name))


if __name__ == "__main__":
    sys.exit(main())

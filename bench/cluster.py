#!/usr/bin/env python3
"""What the broker adds to a publication, and how fast a node reads what a stream keeps: the figures of docs/cluster.md.

    bench/cluster.py --myriad target/release/myriad [--publications N] [--kept N]

Publishes one after the other through the HTTP API of a node, with a pause between two: to a node alone, and to one of two nodes with one
and with three NATS servers. Then fills a stream, and starts a node that has to read it.
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

import nats  # noqa: E402
from node import KEY, Node, start_all  # noqa: E402

PAUSE_SECONDS = 0.003
CHANNELS = 50
# Publications of one request that fills the stream.
BATCH = 1_000


class Publisher:
    """A connection to the API of a node."""

    def __init__(self, node):
        self.connection = http.client.HTTPConnection("127.0.0.1", node.port)

    def post(self, method, request):
        headers = {"Content-Type": "application/json", "X-API-Key": KEY}
        self.connection.request("POST", f"/api/{method}", json.dumps(request), headers)
        answer = self.connection.getresponse()
        body = json.load(answer)
        if "error" in body:
            raise RuntimeError(f"{method}: {body['error']}")
        return body

    def seconds_of(self, number):
        began = time.perf_counter()
        self.post("publish", {"channel": f"c{number % CHANNELS}", "data": {"n": number}})
        return time.perf_counter() - began


def percentile(ordered, share):
    return 1_000 * ordered[int(len(ordered) * share)]


def latencies(node, publications):
    """p50 and p99 in ms, after a tenth of the publications."""
    publisher = Publisher(node)
    for number in range(publications // 10):
        publisher.seconds_of(number)
    taken = []
    for number in range(publications):
        taken.append(publisher.seconds_of(number))
        time.sleep(PAUSE_SECONDS)
    taken.sort()
    return percentile(taken, 0.5), percentile(taken, 0.99)


def with_servers(options, folder, count):
    """The latencies with so many NATS servers."""
    folder = folder / str(count)
    folder.mkdir()
    cluster = nats.Cluster(options.nats, folder, count)
    nodes = [Node(options.myriad, folder, index, cluster.url(), count) for index in range(2)]
    try:
        cluster.start()
        start_all(nodes)
        return latencies(nodes[0], options.publications)
    finally:
        for node in nodes:
            node.kill()
        cluster.stop()


def alone(options, folder):
    node = Node(options.myriad, folder, 9, None, 1)
    try:
        start_all([node])
        return latencies(node, options.publications)
    finally:
        node.kill()


def catching_up(options, folder):
    """Seconds that a node needs from its start until it has read a stream that keeps so many messages."""
    folder = folder / "kept"
    folder.mkdir()
    cluster = nats.Cluster(options.nats, folder, 1)
    nodes = [Node(options.myriad, folder, index, cluster.url(), 1) for index in range(2)]
    try:
        cluster.start()
        start_all(nodes[:1])
        publisher = Publisher(nodes[0])
        for first in range(0, options.kept, BATCH):
            numbers = range(first, first + BATCH)
            commands = [{"publish": {"channel": f"k{number}", "data": {"n": number}}} for number in numbers]
            replies = publisher.post("batch", {"commands": commands, "parallel": True})["replies"]
            failed = [reply for reply in replies if "error" in reply]
            if failed:
                raise RuntimeError(f"{len(failed)} of {BATCH} publications were refused: {failed[0]}")
        began = time.perf_counter()
        start_all(nodes[1:])
        return time.perf_counter() - began
    finally:
        for node in nodes:
            node.kill()
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--myriad", default=str(ROOT / "target" / "release" / "myriad"))
    parser.add_argument("--publications", type=int, default=3_000, help="of each row")
    parser.add_argument("--kept", type=int, default=100_000, help="messages that a starting node has to read")
    options = parser.parse_args()
    options.nats = nats.program_or_exit()
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as name:
        folder = Path(name)
        print("| publish through the API, one after the other | p50 | p99 |\n| --- | --- | --- |")
        base = alone(options, folder)
        print(f"| a node alone | {base[0]:.2f} ms | {base[1]:.2f} ms |", flush=True)
        for count in (1, 3):
            p50, p99 = with_servers(options, folder, count)
            print(f"| {count} NATS server{'s' if count > 1 else ''} | {p50:.2f} ms | {p99:.2f} ms |", flush=True)
        seconds = catching_up(options, folder)
        print(f"\nA node that starts reads {options.kept:,} messages and says so within {seconds:.2f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the broker adds to a publication, and how fast a node reads what a stream keeps."""

import http.client
import json
import time

from cluster_figure import Figure
from cluster_stage import KEY, Stage, say

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

    def publish_all(self, publications):
        """Publishes `(channel, data)` in one request. An answer comes when the node has read the publication."""
        commands = [{"publish": {"channel": channel, "data": data}} for channel, data in publications]
        replies = self.post("batch", {"commands": commands, "parallel": True})["replies"]
        if failed := [reply for reply in replies if "error" in reply]:
            raise RuntimeError(f"{len(failed)} of {len(replies)} publications were refused: {failed[0]}")

    def seconds_of(self, number):
        began = time.perf_counter()
        self.post("publish", {"channel": f"c{number % CHANNELS}", "data": {"n": number}})
        return time.perf_counter() - began


def percentile(ordered, share):
    return 1_000 * ordered[int(len(ordered) * share)]


def latencies(options, servers, nodes):
    """p50 and p99 in ms through one of the nodes, after a tenth of the publications."""
    with Stage(options, servers) as stage:
        publisher = Publisher(stage.start(nodes)[0])
        for number in range(options.publications // 10):
            publisher.seconds_of(number)
        taken = []
        for number in range(options.publications):
            taken.append(publisher.seconds_of(number))
            time.sleep(PAUSE_SECONDS)
    taken.sort()
    return percentile(taken, 0.5), percentile(taken, 0.99)


def measure_latency(options):
    """Publishes one after the other by the HTTP API, with a pause between two, to a node alone and to one of two nodes."""
    say(f"{options.publications:,} publications one after the other, three times")
    alone = latencies(options, 0, 1)
    yield Figure("publish by the API to a node alone, p50", alone[0], "ms")
    yield Figure("publish by the API to a node alone, p99", alone[1], "ms")
    for servers in (1, 3):
        p50, p99 = latencies(options, servers, 2)
        where = f"one of two nodes with {servers} NATS server{'s' if servers > 1 else ''}"
        yield Figure(f"publish by the API to {where}, p50", p50, "ms")
        yield Figure(f"publish by the API to {where}, p99", p99, "ms")
        yield Figure(f"publish by the API to {where}, p99 more than alone", p99 - alone[1], "ms")


def measure_start(options):
    """Fills a stream, and starts a node that has to read it before it says that it is healthy."""
    say(f"a stream gets {options.kept:,} messages, and another node starts")
    with Stage(options, 1) as stage:
        first = stage.start(1)[0]
        fill(Publisher(first), options.kept)
        began = time.perf_counter()
        stage.start_one_more()
        seconds = time.perf_counter() - began
    yield Figure(f"a node that starts has read {options.kept:,} messages", seconds, "s")


def fill(publisher, count):
    """Publishes to so many channels."""
    for first in range(0, count, BATCH):
        publisher.publish_all((f"k{number}", {"n": number}) for number in range(first, first + BATCH))

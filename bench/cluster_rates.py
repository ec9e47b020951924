"""How many publications a second are acknowledged: by nodes, and by plain JetStream on the same servers."""

from dataclasses import dataclass
from statistics import median

import cluster_publisher
from cluster_figure import Figure
from cluster_publisher import Publisher
from cluster_stage import Stage, say

CONNECTIONS = 4
# Publications on their way on each connection.
OUTSTANDING = 64
CHANNELS = 50
PAYLOAD_BYTES = 100
SECONDS = 8
RATIO_LEAST = 0.7


@dataclass(frozen=True)
class Way:
    """How publications go: through so many nodes, or, with none, straight to JetStream."""

    what: str
    nodes: int = 0
    # Of JetStream: messages have ids, and so many consumers read all of them. So it is with so many nodes.
    readers: int = 0
    # What nodes hear. Nobody has subscribed to the channels.
    interest: str = "stream"


PLAIN = Way("plain JetStream")
ONE = Way("one node", nodes=1)
FOUR = Way("four nodes", nodes=4)
ONE_BY_CHANNEL = Way("one node that hears by channel", nodes=1, interest="channel")
FOUR_BY_CHANNEL = Way("four nodes that hear by channel", nodes=4, interest="channel")
ONE_AUTO = Way("one node that chooses", nodes=1, interest="auto")
FOUR_AUTO = Way("four nodes that choose", nodes=4, interest="auto")
THROUGH_NODES = (ONE, ONE_AUTO, ONE_BY_CHANNEL, FOUR, FOUR_AUTO, FOUR_BY_CHANNEL)
LIKE_ONE = Way("plain JetStream with message ids and 1 reader", readers=1)
LIKE_FOUR = Way("plain JetStream with message ids and 4 readers", readers=4)


def measure(options):
    """Rounds of all ways in turn, so that a machine that becomes slower meanwhile is so for all. The median of each counts."""
    cluster_publisher.program()
    for servers in (1, 3):
        found = {way: [] for way in (PLAIN, *THROUGH_NODES, LIKE_ONE, LIKE_FOUR)}
        for turn in range(options.rounds):
            for way, rates in found.items():
                rates.append(rate(options, servers, way))
                say(f"round {turn + 1} of {options.rounds}, NATS servers {servers}, {way.what}: {rates[-1]:,.0f} a second")
        yield from figures(servers, {way: median(rates) for way, rates in found.items()})


def figures(servers, rates):
    beside = f"{servers} NATS server{'s' if servers > 1 else ''}"
    for way, value in rates.items():
        yield Figure(f"acknowledged publications, {way.what}, {beside}", value, "a second")
    for way in THROUGH_NODES:
        ratio = rates[way] / rates[PLAIN]
        yield Figure(f"{way.what} to plain JetStream, {beside}", ratio, "", (RATIO_LEAST, None))
    for way, like in ((ONE, LIKE_ONE), (FOUR, LIKE_FOUR)):
        yield Figure(f"{way.what} to {like.what}, {beside}", rates[way] / rates[like], "")


def rate(options, servers, way):
    """Acknowledged publications a second. Each measurement has new servers, and an empty stream that a node has made."""
    with Stage(options, servers, way.interest) as stage:
        nodes = stage.start(max(way.nodes, 1))
        if way.nodes:
            urls, arguments = [node.websocket() for node in nodes], ["-way", "websocket"]
        else:
            # The stream that it has made stays: plain JetStream has the same limits of it.
            nodes[0].kill()
            urls, arguments = stage.cluster.url().split(","), ["-way", "jetstream", "-readers", way.readers]
            arguments += ["-ids"] if way.readers else []
        arguments += [
            "-connections", CONNECTIONS, "-outstanding", OUTSTANDING, "-channels", CHANNELS, "-payload-bytes", PAYLOAD_BYTES,
            "-duration", f"{SECONDS}s",
        ]
        with Publisher(stage.folder, urls, *arguments) as publisher:
            found = publisher.figures()
    if found["refused"]:
        raise RuntimeError(f"{found['refused']:,} publications were refused: {found['reason']}")
    return found["acked_per_s"]

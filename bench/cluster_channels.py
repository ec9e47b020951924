"""What a channel with one subscriber costs a node, with the broker and without."""

import time

from cluster_figure import Figure
from cluster_stage import Stage, say

CHANNELS = 100_000
# From the last subscription to the look at the memory.
CALM_SECONDS = 3
HOLD = "6s"
SECONDS_MOST = 10
BYTES_MOST = 1_024


def measure(options):
    """Each client subscribes to a channel of its own, on one node."""
    count = CHANNELS // options.divisor
    say(f"{count:,} channels with a subscriber each, without the broker and with it")
    alone_s, alone_bytes = subscribe_all(options, 0, count)
    yield Figure(f"{count:,} clients connected and subscribed, a node alone", alone_s, "s")
    yield Figure("memory of a node for a client and its channel, alone", alone_bytes / count, "bytes")
    for interest in ["stream", "channel"]:
        seconds, grown_bytes = subscribe_all(options, 1, count, interest)
        by = f"with the broker, by {interest}"
        yield Figure(f"{count:,} clients connected and subscribed, {by}", seconds, "s", (None, SECONDS_MOST))
        yield Figure(f"memory of a node for a client and its channel, {by}", grown_bytes / count, "bytes")
        more = (grown_bytes - alone_bytes) / count
        yield Figure(f"memory that the broker adds for a channel, by {interest}", more, "bytes", (None, BYTES_MOST))


def subscribe_all(options, servers, count, interest="stream"):
    """Seconds from the first connection to the last subscription, and bytes by which the node's resident memory grew."""
    with Stage(options, servers, interest) as stage:
        node = stage.start(1, count)[0]
        before = node.resident_bytes()
        crowd = stage.crowd(
            node.websocket(), "--protocol", "centrifuge-json", "--channel", "room", "--channels", count, "--connections", count,
            "--duration", HOLD,
        )
        crowd.wait_until_connected()
        time.sleep(CALM_SECONDS)
        grown = node.resident_bytes() - before
        return crowd.finish()["setup"]["elapsed_s"], grown

"""What NATS does for a publication: the bytes that it sends to a node, and the time of its processor."""

from cluster_figure import Figure
from cluster_latency import BATCH, CHANNELS, Publisher
from cluster_stage import Stage, say
from processes import cpu_seconds

PAYLOAD_BYTES = 100
PUBLICATIONS = 40_000
# Nodes that read each publication: the time to store one is what is left when nobody reads.
READERS = (1, 4)


def bytes_sent(server):
    return server.ask("varz")["out_bytes"]


def cost(options, count, nodes):
    """Bytes that the NATS server sent for each of so many publications, and seconds of its processor."""
    with Stage(options, 1) as stage:
        publisher = Publisher(stage.start(nodes)[0])
        server = stage.cluster.servers[0]
        data = "x" * (PAYLOAD_BYTES - 2)
        publish(publisher, data, BATCH)
        sent, busy = bytes_sent(server), cpu_seconds([server.process.pid])
        publish(publisher, data, count)
        return (bytes_sent(server) - sent) / count, (cpu_seconds([server.process.pid]) - busy) / count


def publish(publisher, data, count):
    """Publishes to the channels in turn."""
    for first in range(0, count, BATCH):
        publisher.publish_all((f"c{number % CHANNELS}", data) for number in range(first, first + BATCH))


def measure(options):
    """With one node and with four: the difference is what three more nodes cost."""
    count = PUBLICATIONS // options.divisor
    say(f"{count:,} publications with {READERS[0]} and with {READERS[1]} nodes")
    (few_bytes, few_s), (many_bytes, many_s) = (cost(options, count, nodes) for nodes in READERS)
    more = READERS[1] - READERS[0]
    copy_s = (many_s - few_s) / more
    yield Figure(f"NATS sends to each node for a publication, beside {PAYLOAD_BYTES} B", (many_bytes - few_bytes) / more - PAYLOAD_BYTES, "B")
    yield Figure("processor of nats-server to send a publication to a node", copy_s * 1e6, "us")
    yield Figure("processor of nats-server to take and store one", (few_s - READERS[0] * copy_s) * 1e6, "us")

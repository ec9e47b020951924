"""How long a push takes to the last client, with the broker and without."""

from dataclasses import dataclass
from statistics import median

from cluster_figure import Figure
from cluster_stage import KEY, Stage, say

CLIENTS_OF_A_NODE = 25_000
PUSHES = 9
# Longer than a push to 100,000 clients takes on two cores.
EVERY = "3s"
RATIO_MOST = 1.1


@dataclass(frozen=True)
class Setup:
    """So many nodes, with so many NATS servers behind them, or none."""

    what: str
    nodes: int
    servers: int


# Nodes without a broker know nothing of each other: each push is published to all of them at once. With the broker it is published to
# one. The nodes, the clients and the crowd are the same, so the two cores have the same work but for that of the broker.
PAIRS = [
    (Setup("one node alone", 1, 0), Setup("one node with the broker", 1, 1)),
    (Setup("four nodes alone", 4, 0), Setup("four nodes with the broker", 4, 1)),
]


def measure(options):
    """Setups in turn, several rounds. The median of all pushes but the first of each round counts."""
    clients = CLIENTS_OF_A_NODE // options.divisor
    found = {setup: [] for pair in PAIRS for setup in pair}
    for turn in range(options.rounds):
        for setup, lasts in found.items():
            say(f"round {turn + 1} of {options.rounds}: pushes to {clients:,} clients of each node, {setup.what}")
            lasts += lasts_of(options, setup, clients)
    for alone, brokered in PAIRS:
        for setup in (alone, brokered):
            yield Figure(f"push to the last of {clients:,} clients of each node, {setup.what}", median(found[setup]), "ms")
        ratio = median(found[brokered]) / median(found[alone])
        yield Figure(f"{brokered.what} to {alone.what}", ratio, "", (None, RATIO_MOST))


def lasts_of(options, setup, clients):
    """Milliseconds from each push to its last client."""
    with Stage(options, setup.servers) as stage:
        nodes = stage.start(setup.nodes, clients)
        publishers = nodes[:1] if setup.servers else nodes
        urls = [word for node in publishers for word in ("--publish", node.publish_url())]
        report = stage.crowd(
            *[node.websocket() for node in nodes], "--protocol", "centrifuge-json", "--channel", "bench",
            "--connections", clients * len(nodes), *urls, "--api-key", KEY, "--every", EVERY, "--pushes", PUSHES,
        ).finish()
    pushes = report["pushes"]
    if missed := sum(push["missed"] for push in pushes):
        raise RuntimeError(f"{missed:,} deliveries are missing, {setup.what}: {report['errors']}")
    return [push["last_ms"] for push in pushes[1:]]

"""How long clients of a killed node take until they have all that they missed, on other nodes."""

import json
import time

from cluster_figure import Figure
from cluster_stage import Stage, say

NODES = 4
SERVERS = 3
CLIENTS_OF_A_NODE = 10_000
MISSED = 50
SECONDS_MOST = 10
DATA = "x" * 98
# Between the last client's arrival and the fault.
CALM_SECONDS = 2
SCENARIO = """\
[terminals]
count = {count}
protocol = "centrifuge-json"
targets = {targets}
channels = ["bench"]

[hold]
duration = "60s"

[reconnect]
backoff = "500ms..20s"
elsewhere = true
"""


def measure(options):
    """A node stands still while its clients miss publications. Then it is killed, and they come back on the other nodes."""
    clients = CLIENTS_OF_A_NODE // options.divisor
    say(f"{clients:,} clients on each of {NODES} nodes, of which one is killed")
    report = run(options, clients)
    yield from figures(report["comeback"], report["session"], clients)


def run(options, clients):
    """The report of the crowd."""
    with Stage(options, SERVERS) as stage:
        nodes = stage.start(NODES, NODES * clients)
        nodes[0].publish("bench", DATA)
        scenario = stage.folder / "scenario.toml"
        # A list of texts is the same in JSON and in TOML.
        targets = json.dumps([node.websocket() for node in nodes])
        scenario.write_text(SCENARIO.format(count=NODES * clients, targets=targets))
        crowd = stage.crowd(scenario)
        crowd.wait_until_connected()
        time.sleep(CALM_SECONDS)
        # Frozen first: so each of its clients misses exactly what is published now, however soon it is back.
        nodes[-1].freeze()
        nodes[0].publish("bench", DATA, MISSED)
        # Pushes to all others are measured elsewhere (fan-out), and take the two cores for seconds.
        crowd.wait_until_received((NODES - 1) * clients * MISSED)
        nodes[-1].kill()
        say("the node is killed; its clients have the rest of a minute")
        return crowd.finish()


def figures(comeback, session, clients):
    """The time counts from the end of a client's connection to the answer with all that it missed, with the waits of its back-off."""
    whole = session["recovered"]
    yield Figure("clients of the killed node", comeback["gone"], "", (clients, clients))
    yield Figure("of them, back on other nodes", comeback["back"], "", (clients, None))
    yield Figure("of them, with all that they missed", whole, "", (clients, None))
    yield Figure("publications that each has recovered", session["recovered_publications"] / max(whole, 1), "", (MISSED, MISSED))
    yield Figure("half of them were whole after", (comeback["p50_ms"] or 0) / 1_000, "s")
    yield Figure("the last of them was whole after", (comeback["slowest_ms"] or 0) / 1_000, "s", (None, SECONDS_MOST))

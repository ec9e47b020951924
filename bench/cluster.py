#!/usr/bin/env python3
"""The figures of docs/cluster.md.

    make bench-cluster                            everything: about 25 minutes on two cores, otherwise idle
    make bench-cluster CLUSTER='--only rates'     one measurement; may be repeated
    make bench-cluster CLUSTER='--quick'          a tenth of the clients, one round: does it work?

Each figure is a line on standard output: what, value, unit, and what is asked of it. Progress goes to standard error.
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

import cluster_channels
import cluster_fan_out
import cluster_latency
import cluster_pauses
import cluster_rates
import cluster_recovery
import cluster_traffic
from cluster_stage import nats
from context import ROOT, context

# Each yields figures.
MEASUREMENTS = {
    "latency": cluster_latency.measure_latency,
    "start": cluster_latency.measure_start,
    "rates": cluster_rates.measure,
    "fan-out": cluster_fan_out.measure,
    "recovery": cluster_recovery.measure,
    "channels": cluster_channels.measure,
    "pauses": cluster_pauses.measure,
    "traffic": cluster_traffic.measure,
}
ROUNDS = 3
QUICK_DIVISOR = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myriad", default=str(ROOT / "target" / "release" / "myriad"), help="the program to measure")
    parser.add_argument("--only", action="append", choices=list(MEASUREMENTS), help="a measurement; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures there, too")
    parser.add_argument("--rounds", type=int, help=f"of rates and fan-out; {ROUNDS} without it")
    parser.add_argument("--publications", type=int, default=3_000, help="of each row of latency")
    parser.add_argument("--kept", type=int, default=100_000, help="messages that a starting node has to read")
    parser.add_argument("--quick", action="store_true", help=f"a {QUICK_DIVISOR}th of the clients, one round: does it work?")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    options.divisor = QUICK_DIVISOR if options.quick else 1
    return options


def measure(options, name, results):
    """Prints the figures of one measurement, and adds them to the results."""
    results["figures"][name] = found = []
    for figure in MEASUREMENTS[name](options):
        print(figure.line(), flush=True)
        found.append(figure.as_json())
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))


def main():
    # So that whoever ends this process ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = arguments()
    options.nats = nats.program_or_exit()
    results = {"context": context(), "quick": options.quick, "figures": {}}
    with tempfile.TemporaryDirectory(prefix="cluster-bench-") as folder:
        options.folder = Path(folder)
        for name in options.only or MEASUREMENTS:
            measure(options, name, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

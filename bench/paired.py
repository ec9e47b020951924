#!/usr/bin/env python3
"""Measures two builds of Myriad in turn, and prints each figure of the later one over that of the earlier one.

    bench/paired.py --before OLD/target/release/myriad [--after target/release/myriad] --only broadcast-100k [--rounds 3]

The machine's speed changes within minutes, so that two runs of `make bench` on different days say little about a change. Here the
builds alternate, and a ratio is that of two runs side by side. The crowd is that of the later build for both, unless
--own-crowd is given: else a faster crowd would look like a faster server. Nothing is written to docs/benchmarks.md.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rows
import scenarios
from context import ROOT
from crowd import Bench
from run import build

# The C programs do not change with a build.
NOT_MYRIAD = "baseline"


class OneBuild(Bench):
    """A bench whose crowd may be of another build than its server."""

    crowd_program = None

    def crowd_command(self, *words):
        command = super().crowd_command(*words)
        return [self.crowd_program or command[0], *command[1:]]


def figures(run):
    """Figures to compare, by a name with its unit. A figure that this run lacks is left out."""
    found = {
        "user space a connection, B": run.get("user_bytes_per_connection"),
        "connections a second": rows.setup_rate(run),
    }
    if run.get("pushes"):
        found["publish to the last client, ms"] = rows.last_ms(run)
    if "server_cpu_s" in run:
        found["server CPU a delivery, us"] = rows.cpu_per_delivery_us(run)
    if "api" in run:
        found["publications a second"] = rows.api_rate(run)
    crowd = run["report"].get("crowd") or {}
    found["crowd's user space a client, B"] = crowd.get("user_bytes_per_client")
    if both := rows.both_cpu_us(run):
        found["crowd's CPU a message, us"] = both[0]
    return {name: value for name, value in found.items() if value}


def measure(benches, scenario, kind, rounds):
    """The figures of each round: a list of pairs, before and after. A round in which a client was missing does not count."""
    pairs = []
    for turn in range(rounds):
        pair = {}
        for side in sorted(benches, reverse=turn % 2 == 1):
            name = f"paired.{scenario.name}.{turn}.{kind}.{side}"
            run = scenario.measure(benches[side], name, kind, scenario.connections)
            pair[side] = figures(run) if rows.whole(run) else None
            print(f"  {name}: {scenarios.summary(run)}", file=sys.stderr, flush=True)
        if all(pair.values()):
            pairs.append((pair["before"], pair["after"]))
    return pairs


def show(scenario, kind, pairs):
    """Prints a line for each figure: medians of both builds, and the median of the ratios with the lowest and the highest."""
    if not pairs:
        print(f"| {scenario.name}, {kind} | no round in which all clients were there | | | |")
        return
    for name in pairs[0][0]:
        found = [(before[name], after[name]) for before, after in pairs if name in before and name in after]
        if not found:
            continue
        ratios = [after / before for before, after in found]
        before, after = (statistics.median(values) for values in zip(*found))
        ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} rounds)"
        print(f"| {scenario.name}, {kind} | {name} | {before:,.4g} | {after:,.4g} | {ratio} |", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the earlier program")
    parser.add_argument("--after", type=Path, default=ROOT / "target/release/myriad", help="the later program")
    parser.add_argument("--only", action="append", required=True, metavar="SCENARIO", help="a scenario of run.py; may be repeated")
    parser.add_argument("--kind", action="append", default=[], help="a kind of run of these scenarios; all of them unless told")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own-crowd", action="store_true", help="each server has the crowd of its own build")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out/paired", help="where raw results go")
    return parser.parse_args()


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [scenario for scenario in scenarios.everything(None, None) if scenario.name in options.only]
    if unknown := set(options.only) - {scenario.name for scenario in chosen}:
        sys.exit(f"There is no scenario named {', '.join(sorted(unknown))}. `bench/run.py --list` shows all.")
    for program in (options.before, options.after):
        if not program.exists():
            sys.exit(f"{program} does not exist. Build it there: cargo build --release")
    programs = [build(name, options.out) for name in ("push", "floor", "application", "delays", "echoes")]
    benches = {}
    for side, program in (("before", options.before), ("after", options.after)):
        benches[side] = OneBuild(program.resolve(), options.out, *programs[:2], 16, *programs[2:])
        if not options.own_crowd:
            benches[side].crowd_program = options.after.resolve()
    print("| scenario | figure | before | after | after over before |\n| --- | --- | ---: | ---: | --- |", flush=True)
    for scenario in chosen:
        for kind in scenario.kinds:
            if kind != NOT_MYRIAD and (not options.kind or kind in options.kind):
                show(scenario, kind, measure(benches, scenario, kind, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())

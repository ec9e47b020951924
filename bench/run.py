#!/usr/bin/env python3
"""Measures Myriad against its targets and against a plain epoll program, and writes docs/benchmarks.md.

    make bench                                  everything, two hours on two cores
    make bench BENCH='--only broadcast-100k'    one scenario or row; the others keep their last figures
    make bench BENCH='--quick'                  at most 20,000 connections and one round: does it work? writes no page

Everything runs one after the other on an otherwise idle machine. Raw results are kept in bench-out/.
"""

import argparse
import json
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
import rows
import scenarios
from context import ROOT, context
from crowd import Bench, RunFailed

QUICK_CONNECTIONS_MAX = 20_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myriad", type=Path, default=ROOT / "target/release/myriad", help="the program to measure")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="a row or scenario; may be repeated")
    parser.add_argument("--list", action="store_true", help="list rows and scenarios, and do nothing")
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_CONNECTIONS_MAX:,} connections, one round")
    parser.add_argument("--connections", type=int, help="instead of each scenario's own number; writes no page")
    parser.add_argument("--rounds", type=int, help="instead of each scenario's own number")
    # With 6 instead of 16 (as few as a descriptor limit of 20,000 allows at 100k) the time to the last client is the
    # same and CPU per message some 3% lower, on two cores.
    parser.add_argument("--baseline-processes", type=int, default=16, help="of the plain server; more are started if necessary")
    parser.add_argument("--hash", action="store_true", help="also with a larger connection hash, in a namespace")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out", help="where raw results go")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/benchmarks.md", help="where the page goes")
    parser.add_argument("--page-only", action="store_true", help="write the page again from the raw results")
    return parser.parse_args()


def build(name, out):
    """One of the plain C programs of `bench/baseline`."""
    program = out / name
    source = ROOT / f"bench/baseline/{name}.c"
    subprocess.run(["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-o", program, source], check=True)
    return program


def chosen(options):
    rounds = options.rounds or (1 if options.quick else None)
    everything = scenarios.everything(options.connections, rounds, QUICK_CONNECTIONS_MAX if options.quick else None)
    if not options.only:
        return [
            scenario for scenario in everything
            if not scenario.when_named and (options.hash or not scenario.larger_hash)
        ]
    wanted = {row.scenario for name in options.only for row in rows.named(name)}
    unknown = [name for name in options.only if not rows.named(name)]
    if unknown:
        sys.exit(f"There is no row or scenario named {', '.join(unknown)}. --list shows all.")
    if "soak" in wanted:
        sys.exit("a soak is no measurement of time and takes an hour: make soak")
    return [scenario for scenario in everything if scenario.name in wanted]


def show(scenario, runs):
    """Prints the rows of the page for this scenario."""
    for row in rows.ROWS:
        if row.scenario == scenario.name and (outcome := row.outcome(runs)):
            print(f"{row.title}: {outcome.measured}; target {row.target}: {outcome.reached}", flush=True)


def main():
    options = arguments()
    if options.list:
        for row in rows.ROWS:
            print(f"{row.scenario:<20} {row.name:<28} {row.title}")
        return 0
    # Figures of another size must not get into the page, nor into the folder of those that do.
    is_trial = options.quick or options.connections is not None
    out = options.out / "trial" if is_trial else options.out
    out.mkdir(parents=True, exist_ok=True)
    if not options.page_only:
        if not options.myriad.exists():
            sys.exit(f"{options.myriad} does not exist. Build it: cargo build --release")
        # SIGTERM must also end the processes of the measurement, so turn it into an exception.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        names = ("push", "floor", "application", "delays", "echoes")
        baseline, floor, *others = (build(name, out) for name in names)
        bench = Bench(options.myriad.resolve(), out, baseline, floor, options.baseline_processes, *others)
        for scenario in chosen(options):
            print(f"{scenario.name}: {scenario.connections:,} connections, {scenario.rounds} rounds", flush=True)
            try:
                runs = scenarios.run_scenario(bench, scenario)
            except (RunFailed, TimeoutError, RuntimeError) as failure:
                sys.exit(f"Measuring {scenario.name} failed: {failure}")
            result = {
                "scenario": scenario.name, "connections": scenario.connections, "context": context(), "runs": runs,
            }
            (out / f"{scenario.name}.scenario.json").write_text(json.dumps(result, indent=1) + "\n")
            show(scenario, runs)
    if not is_trial:
        report.write(out, options.page)
        print(f"Wrote {options.page}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

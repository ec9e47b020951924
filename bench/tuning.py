#!/usr/bin/env python3
"""Measures the effect of the settings that people change for many connections, and writes docs/tuning.md.

    make bench-tuning                                   one more round of everything at 100,000 connections
    make bench-tuning TUNING='--only hash --connections 1m'
    make bench-tuning TUNING='--machine'                also settings of the whole machine; needs root, puts them back
    make bench-tuning TUNING='--limits'                 what `myriad doctor --fix` changes: how far a run gets before and after

Every run has a network namespace of its own, so that a setting reaches nothing else. A round measures each setting
once, between runs with defaults; rounds add up until --fresh.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import limits
import namespace
import scenarios
import tuning_page
from context import ROOT, context
from crowd import Bench, RunFailed
from quantity import count
from settings import DEFAULTS, SETTINGS, SYSCTL
from whole_machine import current, machine_wide

# Settings between two runs with defaults: the machine's own drift is slower than that.
STRIDE = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myriad", type=Path, default=ROOT / "target/release/myriad", help="the program to measure")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a setting; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the settings and what they change, and do nothing")
    parser.add_argument("--connections", type=count, default=100_000, help="such as 100k or 1m")
    parser.add_argument("--rounds", type=int, default=1, help="rounds to add to those measured before")
    parser.add_argument("--machine", action="store_true", help="also settings of the whole machine; they are restored afterwards")
    parser.add_argument("--limits", action="store_true", help="the limits that doctor raises, instead of speeds")
    parser.add_argument("--fresh", action="store_true", help="delete the rounds measured before at this size")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out" / "tuning", help="where raw results go")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/tuning.md", help="where the page goes")
    parser.add_argument("--page-only", action="store_true", help="write the page again from the raw results")
    return parser.parse_args()


def chosen(options):
    known = {setting.name for setting in SETTINGS}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        sys.exit(f"There is no setting named {', '.join(unknown)}. --list shows all.")
    wanted = [setting for setting in SETTINGS if not options.only or setting.name in options.only]
    return [setting for setting in wanted if options.machine or not setting.machine]


def with_defaults(settings):
    """Defaults first, after every few settings, and last."""
    order = [DEFAULTS]
    for index, setting in enumerate(settings):
        order.append(setting)
        if (index + 1) % STRIDE == 0 or index + 1 == len(settings):
            order.append(DEFAULTS)
    return order


def turned(settings, turn):
    """Rotates the order: each round begins with another setting, so no setting always follows the same one."""
    shift = turn * STRIDE % max(len(settings), 1)
    return settings[shift:] + settings[:shift]


def prepare(setting):
    """Applies a setting in the namespace. Returns the values before and after."""
    changed = {}
    for name, values in setting.sysctls.items():
        before = current(SYSCTL + name)
        others = [value for value in values if value != before]
        value = next((value for value in others if accepted(SYSCTL + name, value)), None)
        if value is None:
            raise RunFailed(f"{name} is {before}, and takes none of {', '.join(others) or 'the others'} here")
        changed[name] = [before, value]
    if setting.steering:
        every_core = f"{(1 << os.cpu_count()) - 1:x}"
        path = namespace.own_sysfs() / "class/net/lo/queues/rx-0/rps_cpus"
        before = path.read_text().strip()
        path.write_text(every_core)
        changed["rps_cpus of lo"] = [before, every_core]
    return changed


def accepted(path, value):
    """Whether the kernel accepts the value: a namespace may not choose every congestion control."""
    try:
        Path(path).write_text(value)
    except (PermissionError, FileNotFoundError):
        return False
    return True


def measure(bench, setting, turn, position, connections):
    name = f"tuning.{turn}.{position}.{setting.name.replace(' ', '_')}"

    def inside():
        changed = prepare(setting)
        if setting.buckets:
            changed["tcp_ehash_entries"] = ["shared with the machine", str(setting.buckets)]
        figures = scenarios.broadcast(bench, name, "io_uring", connections, **pace(connections))
        figures["changed"] = changed
        return figures

    with machine_wide(setting.machine, bench.out) as before:
        figures = namespace.run_inside(inside, setting.buckets)
    for path, value in before.items():
        figures["changed"][path] = [value, setting.machine[path]]
    figures["setting"] = setting.name
    figures["round"] = turn
    return figures


def pace(connections):
    """A push a second is time enough for the last of 100,000; a larger crowd keeps the scenario's own pace."""
    return {"pushes": 6, "every_s": 1} if connections <= 100_000 else {}


def measure_round(bench, settings, turn, connections):
    runs = []
    skipped = {}
    for position, setting in enumerate(with_defaults(turned(settings, turn))):
        started = time.monotonic()
        try:
            run = measure(bench, setting, turn, position, connections)
        except (RunFailed, RuntimeError, OSError) as failure:
            if setting is DEFAULTS:
                raise
            # Not every kernel has every setting. Measure the others.
            print(f"  {setting.name}: not measured: {failure}", file=sys.stderr, flush=True)
            skipped[setting.name] = str(failure)
            continue
        runs.append(run)
        print(f"  {setting.name}: {scenarios.summary(run)}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return {"connections": connections, "context": context(), "runs": runs, "skipped": skipped}


def show_list():
    for setting in SETTINGS:
        what = [f"{name}={' or '.join(values)}" for name, values in setting.sysctls.items()]
        what += [f"{path}={value} (a setting of the whole machine; --machine)" for path, value in setting.machine.items()]
        if setting.buckets:
            what.append(f"a namespace with {setting.buckets:,} buckets")
        if setting.steering:
            what.append("rps_cpus of lo=all cores")
        print(f"{setting.name:<30} {'; '.join(what)}")


def measure_limits(options):
    if not options.page_only:
        if not options.myriad.exists():
            sys.exit(f"{options.myriad} does not exist. Build it: cargo build --release")
        limits.measure(options.myriad.resolve(), options.out, options.only, options.machine)
    tuning_page.write(options.out, options.page)
    print(f"Wrote {options.page}.")


def main():
    options = arguments()
    if options.list:
        show_list()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if options.limits:
        measure_limits(options)
        return 0
    earlier = sorted(options.out.glob(f"{options.connections}.*.round.json"))
    if options.fresh:
        for path in earlier:
            path.unlink()
        earlier = []
    if not options.page_only:
        if not options.myriad.exists():
            sys.exit(f"{options.myriad} does not exist. Build it: cargo build --release")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        bench = Bench(options.myriad.resolve(), options.out)
        settings = chosen(options)
        first = 1 + max((int(path.name.split(".")[1]) for path in earlier), default=-1)
        for turn in range(first, first + options.rounds):
            print(f"round {turn + 1}: {len(settings)} settings at {options.connections:,} connections", flush=True)
            try:
                result = measure_round(bench, settings, turn, options.connections)
            except (RunFailed, TimeoutError, RuntimeError) as failure:
                sys.exit(f"Measuring the defaults failed: {failure}")
            path = options.out / f"{options.connections}.{turn:03}.round.json"
            path.write_text(json.dumps(result, indent=1) + "\n")
    tuning_page.write(options.out, options.page)
    print(f"Wrote {options.page}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

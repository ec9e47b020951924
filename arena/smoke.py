#!/usr/bin/env python3
"""Builds every contestant, starts it, holds it to the contract and stops it; a row for each.

    smoke.py [--only NAME,NAME] [--connections 500] [--processes 2] [--port 26000] [--no-build] [--tls]

Exits with 1 if one fails; its row says why.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import check
import contestants
import held
import streams
from contestants import Order, Pair, Running, Unfit

TICK_MS = 200
# What the checker's client takes in beside its echoes, on a busy machine too.
TICKS_PER_SECOND_MAX = 5_000
HOLD_MS = (500, 1_500)


@dataclass
class Row:
    """What became of one contestant."""

    name: str
    version: str = ""
    build_s: float = 0
    start_s: float = 0
    resident_mb: float = 0
    checks: int = 0
    last_broadcast: str = ""
    reason: str = ""


def scenes(contestant, connections, tls=False):
    """How the contestant is started, once after the other, and what is checked then: each of its features is seen."""
    if contestant.kind == "tcp":
        yield {}, [("hold", held.check_hold)]
    elif contestant.kind == "longpoll":
        yield {}, [("counted", held.check_counted)]
        yield {"hold_ms": HOLD_MS}, [("held", held.held_between(*HOLD_MS))]
    elif contestant.kind == "websocket":
        features, deviations = contestant.features, contestant.deviations
        yield {}, list(check.checks_for(features, "push", 0, deviations, tls))
        if {"echo", "timer"} & set(features):
            mode = "echo" if "echo" in features else "push"
            every_ms = max(TICK_MS, connections * 1_000 // TICKS_PER_SECOND_MAX) if "timer" in features else 0
            checks = check.checks_for(features, mode, every_ms, deviations, tls)
            yield {"mode": mode, "push_every_ms": every_ms}, list(checks)
    for transport in () if tls else contestant.transports():
        yield {"held": transport}, [(transport, streams.CHECKS[transport])]


def run_one(contestant, options, pair=None):
    row = Row(contestant.name, contestant.version)
    try:
        started = time.monotonic()
        if not options.no_build:
            contestants.build(contestant)
        row.build_s = time.monotonic() - started
        row.version = contestants.version(contestant)
        for scene, checks in scenes(contestant, options.connections, bool(pair)):
            order = Order(options.port, options.connections, options.processes, tls=pair, **scene)
            started = time.monotonic()
            with Running(contestant, order) as running:
                row.start_s = row.start_s or time.monotonic() - started
                run_checks(row, running, checks, options)
    except (Unfit, check.Broken, subprocess.SubprocessError) as error:
        row.reason = str(error)
    return row


def run_checks(row, running, checks, options):
    def say(name, said):
        row.checks += 1
        if name == "push":
            row.last_broadcast = said.rpartition("last ")[2]
            row.resident_mb = running.resident_bytes() / 1e6
        if options.verbose:
            print(f"  {row.name}: {name}: {said}", flush=True)

    crowd = check.Crowd(
        running.ports,
        running.order.host,
        running.contestant.deviations,
        check.Surface.of(running.contestant, running.order.mode, running.order.held),
        running.order.tls and running.order.tls.context(),
    )
    asyncio.run(check.check(crowd, options.connections, checks, say))


HEADINGS = ("contestant", "version", "build", "start", "checks", "last reached", "RSS of all", "")
WIDTHS = (18, 22, 8, 8, 7, 13, 11, 0)


def line(words):
    return "  ".join(f"{word:<{width}}" for word, width in zip(words, WIDTHS)).rstrip()


def cells(row):
    return (
        row.name,
        row.version,
        f"{row.build_s:.1f} s",
        f"{row.start_s:.1f} s" if row.start_s else "-",
        str(row.checks),
        row.last_broadcast or "-",
        f"{row.resident_mb:.0f} MB" if row.resident_mb else "-",
        f"FAILED: {row.reason}" if row.reason else "ok",
    )


def chosen(names, tls=False):
    everybody = contestants.load()
    fitting = [contestant for contestant in everybody if (contestant.speaks_tls() if tls else contestant.start)]
    if not names:
        return fitting
    wanted = names.split(",")
    if unknown := set(wanted) - {contestant.name for contestant in everybody}:
        known = ", ".join(contestant.name for contestant in everybody)
        raise Unfit(f"no such contestant: {', '.join(sorted(unknown))}; there are: {known}")
    if unfit := set(wanted) - {contestant.name for contestant in fitting}:
        known = ", ".join(contestant.name for contestant in fitting)
        how = "with" if tls else "without"
        raise Unfit(f"{', '.join(sorted(unfit))} cannot be checked {how} --tls; these can: {known}")
    return [contestant for contestant in fitting if contestant.name in wanted]


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--port", type=int, default=26000, help="the first; as many follow as there are processes")
    parser.add_argument("--no-build", action="store_true", help="what is built already")
    parser.add_argument("--tls", action="store_true", help="everything over TLS, of those that speak it")
    parser.add_argument("--verbose", action="store_true", help="a line for every check")
    return parser.parse_args(words)


def rows_of(everybody, options, pair):
    print(line(HEADINGS), flush=True)
    rows = []
    for contestant in everybody:
        rows.append(run_one(contestant, options, pair))
        print(line(cells(rows[-1])), flush=True)
    return rows


def main():
    options = arguments()
    try:
        everybody = chosen(options.only, options.tls)
    except Unfit as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="arena-tls-") as folder:
        try:
            pair = Pair.make(folder) if options.tls else None
        except Unfit as error:
            print(error, file=sys.stderr)
            return 2
        rows = rows_of(everybody, options, pair)
    failed = [row.name for row in rows if row.reason]
    print(f"{len(rows) - len(failed)} kept the contract, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compiles the Rust tests with cargo, and then runs several of their binaries at once.

    tests/rust_tests.py [--at-once N]

`cargo test` runs one binary after the other, and most of them wait more than they compute. What is run is the same: each binary in the
folder of its package, and the tests in the documentation. The lints compute meanwhile. A binary's output is shown whole when it has
ended. The exit code is 0 only if everything was compiled, every binary ended well, and no lint complained.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TESTS = [CARGO, "test", "--workspace", "--locked"]
# The profile of the tests, whose build scripts have run. What waits beside it has the processor first.
LINTS = ["nice", CARGO, "clippy", "--profile", "test", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]
# For one binary, or for the lints. The longest binary takes five minutes. The lints run with low priority beside all of them.
RUN_SECONDS_MAX = 25 * 60
# Each binary runs as many of its tests at once as there are processors.
AT_ONCE = 3
# Binaries whose tests wait for deadlines of servers more than they compute. They run twice as many at once.
WAITING = {"server server", "swarm crowd", "reactor sockets"}
# Those that take longest go first, so that the end does not wait for one of them alone.
LONGEST = ["server server", "swarm crowd", "myriad arena", "swarm myriad_swarm", "myriad fleet", "shard real", "shard sim", "reactor sockets"]


@dataclass
class Binary:
    """A test binary, or a command that runs tests."""

    name: str
    command: list
    directory: Path = ROOT


@dataclass
class Ended:
    name: str
    code: int
    output: str
    seconds: float


def binary_of(message):
    """The test binary that a message of cargo tells of, or None."""
    if message.get("reason") != "compiler-artifact" or not message.get("executable"):
        return None
    if not message["profile"]["test"]:
        return None
    directory = Path(message["manifest_path"]).parent
    return Binary(f"{directory.name} {message['target']['name']}", [message["executable"]], directory)


def longest_first(binaries):
    """The order to start them in. Those that nobody knows to be long keep theirs."""
    places = {name: place for place, name in enumerate(LONGEST)}
    return sorted(binaries, key=lambda binary: places.get(binary.name, len(places)))


def compile_tests():
    """Compiles all test binaries and returns them, or None if that failed. Cargo's own words go to the output."""
    command = [*TESTS, "--no-run", "--message-format", "json-render-diagnostics"]
    binaries = []
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            if line.startswith("{") and (binary := binary_of(json.loads(line))):
                binaries.append(binary)
    return binaries if cargo.returncode == 0 else None


def environment_of(binary):
    """What cargo sets for it, and how many of its tests run at once."""
    of_waiting = {"RUST_TEST_THREADS": str(2 * len(os.sched_getaffinity(0)))} if binary.name in WAITING else {}
    return {**os.environ, "CARGO_MANIFEST_DIR": str(binary.directory), **of_waiting}


def run(binary):
    """Runs it to its end, or to the end of its time."""
    started = time.monotonic()
    process = subprocess.Popen(
        binary.command,
        cwd=binary.directory,
        env=environment_of(binary),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    timer = threading.Timer(RUN_SECONDS_MAX, process.kill)
    timer.start()
    try:
        output = process.stdout.read()
        code = process.wait()
    finally:
        timer.cancel()
    seconds = time.monotonic() - started
    if seconds >= RUN_SECONDS_MAX:
        output += f"\ntook longer than {RUN_SECONDS_MAX} s and was stopped\n"
    return Ended(binary.name, code, output, seconds)


def run_all(binaries, at_once):
    """Runs them, and shows each when it has ended. Returns how they ended."""
    ended = []
    with ThreadPoolExecutor(max_workers=at_once) as lanes:
        for future in as_completed([lanes.submit(run, binary) for binary in binaries]):
            one = future.result()
            ended.append(one)
            print(f"     Running {one.name}: {one.seconds:.1f} s\n{one.output}", flush=True)
    return ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="how many binaries run at once")
    arguments = parser.parse_args()
    started = time.monotonic()
    binaries = compile_tests()
    if binaries is None:
        return 1
    print(f"compiled {len(binaries)} test binaries in {time.monotonic() - started:.0f} s", flush=True)
    documentation = Binary("documentation", [*TESTS, "--doc", "--no-fail-fast"])
    # One after the other: cargo works for one command at a time.
    with ThreadPoolExecutor(max_workers=1) as lane:
        of_cargo = lane.submit(run_all, [documentation, Binary("lints", LINTS)], 1)
        ended = run_all(longest_first(binaries), arguments.at_once)
        ended += of_cargo.result()
    for one in ended:
        if one.code != 0:
            print(f"{one.name} ended with exit code {one.code}")
    return 1 if any(one.code != 0 for one in ended) else 0


if __name__ == "__main__":
    sys.exit(main())

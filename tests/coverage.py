#!/usr/bin/env python3
"""Measures the share of the lines of hub and shard that the simulator runs, and lists the lines that it does not run.

    tests/coverage.py [--seeds N] [--crate NAME ...] [--lines]

Builds the simulator with the compiler's own instrumentation into target/coverage, runs it, and reads the profile
with the toolchain's llvm tools (`rustup component add llvm-tools`). Without them it says so and measures nothing:
the exit code is 0 then, for a report that cannot be made is no failure of the code.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "coverage"
CARGO = os.environ.get("CARGO", "cargo")
RUSTC = os.environ.get("RUSTC", "rustc")


def say(command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def find_tools():
    """llvm-profdata and llvm-cov of this compiler. Other versions cannot read its profiles."""
    host = next(line.split()[1] for line in say([RUSTC, "-vV"]).splitlines() if line.startswith("host:"))
    folder = Path(say([RUSTC, "--print", "sysroot"]).strip()) / "lib" / "rustlib" / host / "bin"
    tools = [folder / "llvm-profdata", folder / "llvm-cov"]
    return tools if all(tool.exists() for tool in tools) else None


def build():
    """The instrumented simulator's path."""
    environment = {
        **os.environ,
        "RUSTFLAGS": "-C instrument-coverage",
        "CARGO_TARGET_DIR": str(TARGET),
        # Build scripts are instrumented too, and would write their profiles into their working directory.
        "LLVM_PROFILE_FILE": str(TARGET / "build-%p.profraw"),
    }
    command = [CARGO, "test", "--profile", "sim", "--locked", "-p", "myriad-shard", "--test", "sim", "--no-run"]
    built = subprocess.run(
        [*command, "--message-format", "json"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return next(message["executable"] for message in messages if message.get("executable"))


def run(simulator, seeds):
    for old in TARGET.glob("*.profraw"):
        old.unlink()
    environment = {
        **os.environ,
        "LLVM_PROFILE_FILE": str(TARGET / "sim-%p.profraw"),
        "MYRIAD_SIM_SEEDS": str(seeds),
    }
    # The regressions count too: they are part of the simulator.
    subprocess.run([simulator, "--skip", "equal_seeds", "--quiet"], cwd=ROOT / "crates/shard", env=environment, check=True)
    return list(TARGET.glob("sim-*.profraw"))


def measure(tools, simulator, profiles):
    """llvm-cov's figures of each file: {path: {"summary": ..., "segments": ...}}."""
    profdata, cov = tools
    merged = TARGET / "sim.profdata"
    subprocess.run([profdata, "merge", "--sparse", *profiles, "-o", merged], check=True)
    exported = say([cov, "export", "--instr-profile", merged, simulator])
    return {file["filename"]: file for file in json.loads(exported)["data"][0]["files"]}


def missed_lines(file):
    """Ranges of lines that no run reached. A segment is (line, column, count, has_count, is_entry, is_gap): the
    count holds from there to the next segment."""
    missed, reached = set(), set()
    segments = file["segments"]
    for (line, _, count, has_count, _, is_gap), following in zip(segments, segments[1:]):
        if not has_count or is_gap:
            continue
        lines = range(line, following[0] + (1 if following[1] > 1 else 0))
        (reached if count else missed).update(lines)
    return ranges(sorted(missed - reached))


def ranges(lines):
    """[1, 2, 3, 7] as "1-3, 7"."""
    parts = []
    for line in lines:
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def report(files, crates, shows_lines):
    for crate in crates:
        folder = ROOT / "crates" / crate / "src"
        own = {Path(path): file for path, file in files.items() if folder in Path(path).parents}
        if not own:
            sys.exit(f"There is no profile of {folder}: does the simulator run {crate}?")
        count = covered = 0
        print(f"\n{crate}")
        for path, file in sorted(own.items()):
            lines = file["summary"]["lines"]
            count, covered = count + lines["count"], covered + lines["covered"]
            print(f"  {lines['percent']:6.1f}% of {lines['count']:4} lines  {path.relative_to(folder)}")
            missed = missed_lines(file)
            if shows_lines and missed:
                print(f"          not run: {missed}")
        print(f"  {100 * covered / count:6.1f}% of {count:4} lines  all of {crate}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--crate", action="append", metavar="NAME", help="default: hub and shard")
    parser.add_argument("--lines", action="store_true", help="list the lines that did not run")
    arguments = parser.parse_args()
    tools = find_tools()
    if not tools:
        print("line coverage is not measured: the compiler's llvm tools are missing.\n"
              "Install them with `rustup component add llvm-tools` and run `make sim` again.")
        return 0
    simulator = build()
    files = measure(tools, simulator, run(simulator, arguments.seeds))
    print(f"\nLines run by {arguments.seeds} seeds and the regressions:")
    report(files, arguments.crate or ["hub", "shard"], arguments.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())

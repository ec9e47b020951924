#!/usr/bin/env python3
"""Runs the tests of wire, wheel and hub in Miri, which finds undefined behaviour.

    tests/miri.py [--crate NAME ...]

Needs a nightly toolchain with the components miri and rust-src, and tries to install the components. The three
crates have no unsafe code of their own: this is about what their dependencies do with what we give them, zlib-rs above
all. Where a test has many cases or large ones, Miri gets a few small ones of them (`cfg(miri)`): it does in a second
what a processor does in some hundred microseconds.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "miri"


def prepare():
    if subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True).returncode == 0:
        return
    subprocess.run(["rustup", "+nightly", "component", "add", "miri", "rust-src"], check=False)
    if subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True).returncode != 0:
        sys.exit("Miri is missing and could not be installed: "
                 "rustup toolchain install nightly --component miri,rust-src; then run `make miri` again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crate", action="append", metavar="NAME", help="default: wire, wheel and hub")
    arguments = parser.parse_args()
    prepare()
    # Tests read committed files, and property tests look for past failures beside the source.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "MIRIFLAGS": "-Zmiri-disable-isolation"}
    for crate in arguments.crate or ["wheel", "hub", "wire"]:
        print(f"\n--- {crate}", flush=True)
        command = ["cargo", "+nightly", "miri", "test", "--locked", "-p", f"myriad-{crate}"]
        if subprocess.run(command, cwd=ROOT, env=environment).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

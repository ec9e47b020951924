#!/usr/bin/env python3
"""Programs in Go that tests start. Go builds each once, in the quickest way there is.

    tests/go_programs.py NAME ...
"""

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Nothing is optimised, no debug information is made, and no C is compiled.
QUICK = ["-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w"]
# The compiler collects garbage less often, for 0.9 GB of memory. Programs that run for long would keep that much, too.
OF_THE_COMPILER = {"GOGC": "400"}


@dataclass(frozen=True)
class Source:
    version: str
    # Packages of Go, each of which makes a program with its last name.
    packages: tuple


SOURCES = {
    "centrifugo": Source("6.9.1", ("github.com/centrifugal/centrifugo/v6",)),
    "nats-server": Source("2.15.2", ("github.com/nats-io/nats-server/v2",)),
    "pebble": Source("2.10.3", tuple(f"github.com/letsencrypt/pebble/v2/cmd/{name}" for name in ("pebble", "pebble-challtestsrv"))),
}


def quick_environment():
    """The environment in which Go builds what only tests run. All share one build of Go's own library, which has these flags too."""
    flags = " ".join(f"'{flag}'" for flag in QUICK)
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} {flags}".strip()}


def folder(name):
    """Where the programs of a source are, once they are built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "go-programs" / f"{name}-{SOURCES[name].version}"


def build(name):
    """The folder of a source's programs, which are built if they are not there; None where there is no Go."""
    here = folder(name)
    built = here / "built"
    if not built.exists():
        if shutil.which("go") is None:
            return None
        here.mkdir(parents=True, exist_ok=True)
        # Tests in several processes ask at the same time. One builds.
        with (here / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists():
                install(name, here, quick_environment())
                built.touch()
    return here


def install(name, where, environment):
    """Builds the programs of a source in a folder."""
    source = SOURCES[name]
    packages = [f"{package}@v{source.version}" for package in source.packages]
    environment = {**environment, **OF_THE_COMPILER, "GOBIN": str(where)}
    subprocess.run(["go", "install", *packages], env=environment, check=True)


def main():
    for name in sys.argv[1:]:
        if build(name) is None:
            sys.exit(f"{name} is built with Go, which is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

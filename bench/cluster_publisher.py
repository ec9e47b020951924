"""The program that publishes for measurements: `cluster-publisher/`, in Go."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import processes
from context import ROOT

SOURCE = ROOT / "bench" / "cluster-publisher"


@functools.cache
def program():
    """Its path. Go builds it, in a second or so unless it is the first time."""
    if shutil.which("go") is None:
        sys.exit("bench/cluster-publisher is built with Go, which is not installed; install Go and try again")
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute() / "cluster-publisher"
    subprocess.run(["go", "build", "-buildvcs=false", "-o", built, "."], cwd=SOURCE, check=True)
    return built


class Publisher(processes.Process):
    """It publishes while the `with` block lasts, at the longest for its warm-up and its duration."""

    def __init__(self, folder, urls, *arguments):
        command = [program(), "-urls", ",".join(urls), *arguments]
        super().__init__(command, folder / "publisher.log", subprocess.PIPE)

    def figures(self):
        """Waits for its end. Returns what it has measured: `main.go`."""
        text = self.popen.stdout.read()
        if self.popen.wait() != 0:
            raise RuntimeError(f"publishing failed:\n{self.last_words()}")
        return json.loads(text)

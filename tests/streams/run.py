#!/usr/bin/env python3
"""Runs the public conformance suite of the Durable Streams protocol against a server, once for each driver.

    tests/streams/run.py [--myriad BINARY] [--driver NAME ...] [--tests PATTERN]

The suite is the npm package @durable-streams/server-conformance-tests (`npm ci` here installs it). Groups of tests that are
left out are named in EXCLUDED, with why. The last line is "N passed, N failed". A driver that the kernel forbids is not run, and
the output says so.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DRIVERS = ["io_uring", "epoll"]
# Of one driver: the suite has tests that wait for times to live.
RUN_SECONDS_MAX = 10 * 60

# Tests by a pattern of their names, and why they are left out.
EXCLUDED = {
    r"^Fork - ": "forks are not supported: PUT with Stream-Forked-From is answered 501",
    r"^Reserved subscription APIs": "the suite itself leaves them out unless it is asked for them; ours are webhooks",
}


class DriverUnavailable(Exception):
    """The kernel forbids it here."""


class Server:
    """A server with that driver, until the `with` block ends."""

    def __init__(self, binary, driver):
        command = [binary, "serve", "--config", HERE / "myriad.toml", "--listen", "127.0.0.1:0"]
        command += ["--driver", driver, "--drain", "0"]
        self.process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.match(r"listening on (\S+) \(", line):
                self.address = found[1]
                # Whatever else it says must not fill the pipe.
                threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()
                return
        self.process.wait()
        failure = DriverUnavailable if "cannot be used here" in "".join(said) else RuntimeError
        raise failure("".join(said).strip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)


def pattern_of(tests):
    """A regular expression of the names of tests that run."""
    left_out = "".join(f"(?!{group[1:]})" if group[0] == "^" else f"(?!.*(?:{group}))" for group in EXCLUDED)
    return f"^{left_out}.*(?:{tests}).*$"


def verdicts(report):
    """The names of tests that passed, and of those that failed with their first messages."""
    passed, failed = [], []
    for file in report["testResults"]:
        if file["status"] == "failed" and not file["assertionResults"]:
            failed.append((file["name"], file.get("message", "")))
        for test in file["assertionResults"]:
            if test["status"] == "passed":
                passed.append(test["fullName"])
            elif test["status"] == "failed":
                failed.append((test["fullName"], "\n".join(test["failureMessages"])))
    return passed, failed


def run_driver(driver, binary, tests):
    """Runs the suite against one driver. Returns the verdicts."""
    with Server(binary, driver) as server, tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        command = ["node_modules/.bin/vitest", "run", "--reporter=json", f"--outputFile={report}"]
        command += ["--testTimeout=30000", "-t", pattern_of(tests)]
        ran = subprocess.run(
            command,
            cwd=HERE,
            env={**os.environ, "CONFORMANCE_TEST_URL": f"http://{server.address}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS_MAX,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"the suite made no report:\n{ran.stdout}")
        passed, failed = verdicts(json.loads(report.read_text()))
        if server.process.poll() is not None:
            failed.append(("the server", f"it ended with exit code {server.process.returncode}"))
        return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myriad", default=TARGET / "debug" / "myriad", help="the server's binary")
    parser.add_argument("--driver", action="append", choices=DRIVERS, help="only this driver; may be repeated")
    parser.add_argument("--tests", default="", metavar="PATTERN", help="only tests whose names match")
    arguments = parser.parse_args()
    if not (HERE / "node_modules").exists():
        sys.exit("the suite is not installed: run npm ci in tests/streams")
    for group, why in EXCLUDED.items():
        print(f"left out: {group}: {why}")
    all_passed, all_failed = 0, 0
    drivers = arguments.driver or DRIVERS
    # At once: the suite waits for times to live.
    with ThreadPoolExecutor(max_workers=len(drivers)) as lanes:
        runs = [(driver, lanes.submit(run_driver, driver, arguments.myriad, arguments.tests)) for driver in drivers]
    for driver, ran in runs:
        try:
            passed, failed = ran.result()
        except DriverUnavailable as unavailable:
            print(f"{driver}: not run: {unavailable}")
            continue
        for name, message in failed:
            print(f"FAILED ({driver}): {name}\n{message}\n")
        print(f"{driver}: {len(passed)} passed, {len(failed)} failed")
        all_passed += len(passed)
        all_failed += len(failed)
    print(f"{all_passed} passed, {all_failed} failed")
    return 1 if all_failed or not all_passed else 0


if __name__ == "__main__":
    sys.exit(main())

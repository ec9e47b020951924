#!/usr/bin/env python3
"""Runs the Autobahn test suite against a server, once for each driver.

    tests/conformance/run.py [--quick | --cases PATTERN ...] [--driver NAME ...]

A case has passed when its verdict is OK or INFORMATIONAL and its connection ended cleanly with the right code;
each other one is listed with what was tried and what came. The last line is "N passed, N failed". The suite is
installed under the target directory; it needs a Python 2.7 (see suite.py), and where it cannot be installed the
exit code is 3 and the last line says why.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import report
import suite

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DRIVERS = ["io_uring", "epoll"]
# The suite's largest messages have 16 MiB, or 262,144 fragments, and the server echoes them.
LIMITS = ["--message-bytes-max", "16MiB", "--message-fragments-max", "300k", "--outbound-bytes-max", "64MiB"]
# Some cases (such as 6.4.4) pause in the middle of a frame. If a ping arrives then, the suite sends its pong there: the pong
# becomes payload, and the case fails by the suite's own fault.
LIMITS += ["--ping-interval", "0"]
# Of one driver. The suite bounds each case itself.
RUN_SECONDS_MAX = 30 * 60
# Everything but large messages (9), and of compression (12 and 13: minutes of it) small and large messages, whole and in
# fragments, with the whole window and the smallest.
QUICK = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.7.1", "9.8.1", "10.*"]
QUICK += ["12.1.1", "12.1.9", "12.2.13", "13.3.13", "13.7.5"]


class DriverUnavailable(Exception):
    """The kernel forbids it here."""


class Server:
    """A server with that driver, until the `with` block ends."""

    def __init__(self, binary, driver):
        command = [binary, "serve", "--dev", "--listen", "127.0.0.1:0", "--driver", driver, "--drain", "0", *LIMITS]
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

    def has_ended(self):
        return self.process.poll() is not None


def run_driver(driver, wstest, binary, patterns, directory):
    """The cases of one driver, and whether the server was still running at the end."""
    reports = directory / driver
    for old in reports.glob("*") if reports.exists() else []:
        old.unlink()
    reports.mkdir(parents=True, exist_ok=True)
    with Server(binary, driver) as server:
        spec = directory / f"{driver}.json"
        servers = [{"agent": driver, "url": f"ws://{server.address}/echo", "options": {"version": 18}}]
        spec.write_text(
            json.dumps({"outdir": str(reports), "servers": servers, "cases": patterns,
                        "exclude-cases": [], "exclude-agent-cases": {}})
        )
        log = directory / f"{driver}.log"
        command = [str(wstest), "--mode", "fuzzingclient", "--spec", str(spec)]
        with log.open("w") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=RUN_SECONDS_MAX)
        if done.returncode != 0:
            print(f"{driver}: the suite ended with exit code {done.returncode}; see {log}")
        return report.read(reports), not server.has_ended()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only cases that take less than half a minute a driver")
    which.add_argument("--cases", action="append", metavar="PATTERN", help="such as 7.* or 9.1.1; may be repeated")
    parser.add_argument("--driver", action="append", choices=DRIVERS, help="only this one; may be repeated")
    parser.add_argument("--myriad", default=TARGET / "release" / "myriad", help="the program to test")
    parser.add_argument("--reports", type=Path, default=TARGET / "conformance" / "reports", help="where to write them")
    arguments = parser.parse_args()
    patterns = QUICK if arguments.quick else arguments.cases or ["*"]
    try:
        wstest = suite.install(TARGET / "conformance" / "autobahn")
    except suite.Missing as missing:
        print(missing)
        return suite.EXIT_MISSING

    passed = failed = 0
    drivers = arguments.driver or DRIVERS
    # At once: the suite pauses in many cases.
    with ThreadPoolExecutor(max_workers=len(drivers)) as lanes:
        runs = [
            (driver, lanes.submit(run_driver, driver, wstest, arguments.myriad, patterns, arguments.reports))
            for driver in drivers
        ]
    for driver, ran in runs:
        try:
            cases, survived = ran.result()
        except DriverUnavailable as reason:
            print(f"{driver}: not run: {reason}")
            continue
        for case in cases:
            if not case.passed:
                print(f"FAILED ({driver}): {case.explain()}")
        print(f"{driver}: {len(cases)} cases: {report.summary(cases)}", flush=True)
        good = sum(case.passed for case in cases)
        passed += good
        failed += len(cases) - good
        if not survived:
            print(f"FAILED ({driver}): the server ended during the run")
            failed += 1
        if patterns == ["*"] and len(cases) != report.CASES_ALL:
            print(f"FAILED ({driver}): {report.CASES_ALL} cases were expected")
            failed += 1
    print(f"the suite's own reports: {arguments.reports}/*/index.html")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

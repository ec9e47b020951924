#!/usr/bin/env python3
"""Runs every check and test suite of the repository and adds up what they counted.

    tests/run.py [--only NAME ...] [--list] [--busy N] [--wide-ports]

A suite's own count is read from its output; a check without a count (formatting, lints, licences) counts as
one. A suite that ends with an error without having counted a failure counts as one failed, and so does one
that ran nothing at all: a silent suite must not look like a good one. The last line is "N passed, N failed",
and the exit code is 0 only if nothing failed.

Almost all suites run side by side, because they mostly wait. The output of such a one is shown whole when it has ended.

--busy and --wide-ports make the machine one that breaks careless tests: it computes something else meanwhile, or gives ports of servers to
outgoing connections.
"""

import argparse
import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import conformance.suite
import go_programs

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CARGO = os.environ.get("CARGO", "cargo")
MYRIAD = str(TARGET / "debug" / "myriad")
PYTHON = TARGET / "tests-python" / "bin" / "python"
NPM_INSTALL = ["npm", "ci", "--no-audit", "--no-fund"]
# CI has 40 minutes for everything. Most of this is compiling.
SUITE_SECONDS_MAX = 30 * 60
# What `myriad doctor` recommends to a machine with many outgoing connections.
WIDE_PORTS = "10000 65535"
# Computes until the parent that it is told has gone.
BUSY_LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"
# Of suites that may run side by side.
SIDE_BY_SIDE = 3
# A line of a suite's output that names what failed, or says why.
FAILURE = re.compile(
    r"""^(?:
          test\ .*\ \.\.\.\ FAILED                                       # cargo
        | thread\ '.*panicked\ at\ .*\n.*(?:\n\ +(?:left|right):\ .*)*   # cargo: where, the message, and what differs
        | error(?:\[E\d+\])?:\ .*(?:\n\ *-->\ .*)?                       # rustc, clippy: what, and where
        | Diff\ in\ .*                                                   # rustfmt
        | .*\ ended\ with\ exit\ code\ [-\d]+                            # rust_tests.py
        | took\ (?:too\ long|longer\ than)\ .*                           # a program that was stopped
        | (?:FAILED|ERROR)\ (?!\([\w\ ]+=).*                             # pytest, and our conformance harnesses
        | (?:FAIL|ERROR):\ .*                                            # unittest
        | \s*not\ ok\ \d+\ -\ (?!.*\#\ TODO).*                           # node, in TAP
        | \s*✖\ (?!failing\ tests:|.*\#\ TODO).*                         # node, on a terminal
        | \s*---\ FAIL:\ .*                                              # go
    )$""",
    re.M | re.X,
)
# The rest stands in the suite's own output, further up.
FAILURES_SHOWN_MAX = 12
FAILURE_LENGTH_MAX = 500


@dataclass
class Suite:
    name: str
    # Command lines. Each runs only if the one before succeeded. The output of the last one is counted.
    commands: list
    directory: Path = ROOT
    # Counts the tests in the last command's output. None: the command is one check.
    count: object = None
    environment: dict = field(default_factory=dict)
    # Why the suite cannot run here. It is reported and not counted.
    skipped: str = ""
    # Called before the installs. Returns why the suite cannot run, or "".
    prepare: object = None
    # Command lines that install what the commands need. They run while other suites compile and run.
    installs: list = field(default_factory=list)
    # Installs that several suites share. Each runs once, before the suite's own.
    shared_installs: list = field(default_factory=list)
    # A command line that compiles what the commands need. Suites that name the same one share it.
    build: list = None
    # Whether it disturbs no other suite that says so, and is disturbed by none.
    beside_others: bool = False
    seconds_max: int = SUITE_SECONDS_MAX


@dataclass
class Prepared:
    """What came of a suite's installs."""

    # Why the suite cannot run here, or "".
    skipped: str = ""
    # The exit code of the last install.
    code: int = 0
    # What all installs wrote.
    output: str = ""


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # What the output says of failed tests: which, and why if their program says so.
    failure_lines: list = field(default_factory=list, compare=False)

    def __add__(self, other):
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def count_cargo(output):
    """`test result: ok. 5 passed; 0 failed; 1 ignored; ...`, one line per test binary."""
    counts = Counts()
    for passed, failed, ignored in re.findall(
        r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.M
    ):
        counts += Counts(int(passed), int(failed), int(ignored))
    return counts


def count_unittest(output):
    """`Ran 11 tests in 1.0s`, then `OK` or `FAILED (failures=1, errors=2)`, perhaps with skipped=N."""
    counts = Counts()
    for ran, verdict in re.findall(r"^Ran (\d+) tests? in .*\n\n(OK.*|FAILED.*)$", output, re.M):
        numbers = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", verdict)}
        failed = numbers.get("failures", 0) + numbers.get("errors", 0) + numbers.get("unexpected successes", 0)
        skipped = numbers.get("skipped", 0)
        counts += Counts(int(ran) - failed - skipped, failed, skipped)
    return counts


def count_pytest(output):
    """`==== 3 failed, 12 passed, 1 skipped in 2.1s ====`, or with -q the same without the rules."""
    lines = re.findall(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s.*$", output, re.M)
    if not lines:
        return Counts()
    numbers = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", lines[-1])}
    failed = numbers.get("failed", 0) + numbers.get("error", 0) + numbers.get("errors", 0)
    return Counts(numbers.get("passed", 0), failed, numbers.get("skipped", 0))


def count_node(output):
    """The summary of `node --test`: `# pass 5` in TAP, `ℹ pass 5` on a terminal."""
    def number(name):
        return sum(int(found) for found in re.findall(rf"^[#ℹ] {name} (\d+)$", output, re.M))

    return Counts(number("pass"), number("fail") + number("cancelled"), number("skipped"))


def count_go(output):
    """`--- PASS: TestName (0.10s)`, one line per test with -v; subtests are indented."""
    def number(verdict):
        return len(re.findall(rf"^--- {verdict}: ", output, re.M))

    return Counts(number("PASS"), number("FAIL"), number("SKIP"))


def count_conformance(output):
    """`498 passed, 0 failed`, the harness's last line."""
    found = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.M)
    return Counts(*map(int, found[-1])) if found else Counts()


def missing_for_conformance():
    """Why the Autobahn suite cannot be installed here, or "" if it can."""
    try:
        conformance.suite.find_python()
    except conformance.suite.Missing as missing:
        return str(missing)
    return ""


def install_proxies():
    """Installs nginx and HAProxy as root in a container, where no systemd would start them. Returns what is missing, or
    "" if both are there."""
    return install_packages({"nginx": "nginx", "haproxy": "haproxy"})


def install_prometheus():
    """Installs Prometheus likewise, with promtool."""
    return install_packages({"promtool": "prometheus"})


def install_testssl():
    """Installs testssl.sh likewise. Without it the suite runs, and one test of it says that it is skipped."""
    install_packages({"testssl": "testssl.sh"})
    return ""


def missing_for_packages():
    """Why no packages can be made and installed here, or "" if they can. Installs what reads them likewise: tests of what is missing
    still say that they are skipped."""
    if os.geteuid() != 0:
        return "only root can install packages, on top of this machine's files"
    if not shutil.which("dpkg") or Path("/var/lib/dpkg/info/myriad.list").exists():
        return "this is no Debian, or myriad is installed as a package"
    if not shutil.which("go"):
        return "go is not installed, which builds nfpm"
    install_packages({"rpm": "rpm", "mandoc": "mandoc", "fish": "fish", "zsh": "zsh"})
    return install_packages({"systemd-sysusers": "systemd", "objdump": "binutils", "unshare": "util-linux"})


def install_packages(packages):
    """Installs those packages of Debian whose program is missing. Returns what is missing still, or ""."""
    search = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"

    def missing():
        return [package for program, package in packages.items() if not shutil.which(program, path=search)]

    is_ours = os.geteuid() == 0 and shutil.which("apt-get") and not Path("/run/systemd/system").exists()
    if missing() and is_ours:
        apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing()]):
            done = subprocess.run(
                ["apt-get", *command], env=apt, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            if done.returncode != 0:
                print(f"apt-get {command[0]} failed:\n{done.stdout.decode(errors='replace')}", flush=True)
    absent = missing()
    return f"{' and '.join(absent)} not installed (apt-get install {' '.join(absent)})" if absent else ""


def requirements():
    """What suites in Python need. Those of the conformance suite are for Python 2."""
    of_tests = {*ROOT.glob("tests/*/requirements.txt"), *ROOT.glob("tests/*/*/requirements.txt")}
    return sorted({ROOT / "arena" / "requirements.txt", *of_tests} - {ROOT / "tests" / "conformance" / "requirements.txt"})


def python_environment():
    """Commands that make the virtual environment of all suites in Python. One for each suite takes 7 s of processor time each time."""
    files = [word for file in requirements() for word in ("-r", file)]
    return [[sys.executable, "-m", "venv", PYTHON.parent.parent], [PYTHON, "-m", "pip", "install", "--quiet", *files]]


def suites():
    # The Rust tests have compiled all of it. The program alone would have fewer features of its dependencies, which would be compiled again.
    build = [CARGO, "test", "--workspace", "--locked", "--no-run", "--quiet"]
    # First, because the suites behind it need what it compiles. The lints run in it, while tests wait.
    yield Suite("rust", [[sys.executable, ROOT / "tests" / "rust_tests.py"]], count=count_cargo, build=build, beside_others=True)
    yield from checks()

    # Those that take longest go first. The cluster sleeps through faults of up to 40 s, while the Rust tests need the processors.
    # Without Go its tests skip themselves, and so do those of acme.
    yield python_suite("cluster", "cluster", build, ["-n", "4", "--dist", "worksteal"], programs=["nats-server"])
    yield python_suite("python clients", "clients/python", build, ["-n", "3", "--dist", "worksteal"])
    yield from conformance_suites(build)
    yield from node_suites(build)
    yield python_suite("acme", "acme", build, ["-n", "2"], programs=["pebble"])
    yield differential_suite(build)
    yield packages_suite(build)
    yield python_suite("proxies", "proxies", build, prepare=install_proxies)
    yield python_suite("monitoring", "monitoring", build, prepare=install_prometheus)
    yield python_suite("hostile TLS", "tls", build, ["-n", "2"], prepare=install_testssl)
    yield go_suite(build)

    # Alone: programs run into limits of the machine.
    yield python_suite("doctor's predictions", "doctor", build, beside_others=False)


def checks():
    """What needs nothing compiled, and runs while the others wait for that."""
    yield Suite("format", [[CARGO, "fmt", "--all", "--check"]], beside_others=True)
    # The fuzz targets are a workspace of their own, whose lock file no other command reads.
    fuzz = ROOT / "fuzz" / "Cargo.toml"
    tree = [CARGO, "tree", "--quiet", "--locked", "--depth", "0", "--manifest-path", fuzz]
    yield Suite("fuzz lock file", [tree], beside_others=True)
    yield Suite("licences", [[sys.executable, ROOT / "tests" / "licences.py"]], beside_others=True)
    yield Suite(
        "licences and advisories",
        [[CARGO, "deny", "--locked", "check"]],
        skipped="" if shutil.which("cargo-deny") else "cargo-deny is not installed (cargo install --locked cargo-deny)",
        beside_others=True,
    )
    arena = ROOT / "arena"
    for name, directory in [
        ("test runner", ROOT / "tests"),
        ("conformance harness", ROOT / "tests" / "conformance"),
        ("baseline", ROOT / "bench" / "baseline"),
        ("bench harness", ROOT / "bench"),
    ]:
        yield Suite(name, [[sys.executable, "-m", "unittest"]], directory, count_unittest, beside_others=True)
    yield Suite(
        "arena checker",
        [[PYTHON, "-m", "unittest", "discover", "-s", "tests"]],
        arena,
        count_unittest,
        shared_installs=python_environment(),
        beside_others=True,
    )


def conformance_suites(build):
    """Published conformance suites: Autobahn's of WebSocket, and that of the Durable Streams protocol."""
    autobahn = ROOT / "tests" / "conformance"
    yield Suite(
        "conformance",
        [[sys.executable, "run.py", "--quick", "--myriad", MYRIAD]],
        autobahn,
        count_conformance,
        skipped=missing_for_conformance(),
        installs=[[sys.executable, "suite.py", TARGET / "conformance" / "autobahn"]],
        build=build,
        beside_others=True,
    )
    yield Suite(
        "streams",
        [[sys.executable, "run.py", "--myriad", MYRIAD]],
        ROOT / "tests" / "streams",
        count_conformance,
        skipped="" if shutil.which("npm") else "npm is not installed",
        installs=[NPM_INSTALL],
        build=build,
        beside_others=True,
    )


def node_suites(build):
    node = ROOT / "tests" / "clients" / "node"
    missing = "" if shutil.which("npm") else "npm is not installed"
    if (node / "package.json").exists():
        yield Suite(
            "node clients",
            [["npm", "test"]],
            node,
            count_node,
            {"MYRIAD": MYRIAD},
            missing,
            installs=[NPM_INSTALL],
            build=build,
            beside_others=True,
        )


def go_suite(build):
    return Suite(
        "go clients",
        [["go", "test", "-count=1", "-v", "./..."]],
        ROOT / "tests" / "clients" / "go",
        count_go,
        {"MYRIAD": MYRIAD},
        "" if shutil.which("go") else "go is not installed",
        installs=[["go", "mod", "download"]],
        build=build,
        beside_others=True,
    )


def python_suite(name, folder, build, options=(), prepare=None, beside_others=True, programs=()):
    """A suite for pytest in a folder of tests/. `programs` are of tests/go_programs.py."""
    directory = ROOT / "tests" / folder
    of_go = [[sys.executable, ROOT / "tests" / "go_programs.py", *programs]] if programs and shutil.which("go") else []
    return Suite(
        name,
        [[PYTHON, "-m", "pytest", "-q", *options]],
        directory,
        count_pytest,
        {"MYRIAD": MYRIAD},
        prepare=prepare,
        shared_installs=python_environment(),
        installs=of_go,
        build=build,
        beside_others=beside_others,
    )


def differential_suite(build):
    """The same cases at Centrifugo and here."""
    suite = python_suite("differential", "differential", build, programs=["centrifugo"])
    suite.skipped = "" if shutil.which("go") else "go is not installed, which builds centrifugo"
    return suite


def packages_suite(build):
    """Packages of the program, made as `make package` makes them, and installed."""
    suite = python_suite("packages", "packages", build, prepare=missing_for_packages)
    suite.environment["NFPM"] = str(TARGET / "nfpm" / "nfpm")
    suite.installs.append(["make", "--no-print-directory", "-C", ROOT, f"CARGO_TARGET_DIR={TARGET}", "nfpm"])
    return suite


def title(command, suite):
    return f"\n--- {suite.name}: {' '.join(str(word) for word in command)}\n"


def run_command(command, suite, say=None):
    """Runs a command, and gives each line that it writes to `say`. Returns its exit code and its output."""
    started = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=suite.directory,
        env={**go_programs.quick_environment(), **suite.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    said = []
    for line in process.stdout:
        if say:
            say(line)
        said.append(line)
        if time.monotonic() - started > suite.seconds_max:
            process.terminate()
            said.append("took too long and was stopped\n")
    return process.wait(), "".join(said)


def prepare_suite(suite, done):
    """Installs what a suite needs. It shows nothing, because other suites run meanwhile. `done` has what the shared
    installs came to; only the one installer thread uses it."""
    prepared = Prepared(skipped=suite.prepare() if suite.prepare else "")
    if prepared.skipped:
        return prepared
    for command in [*suite.shared_installs, *suite.installs]:
        words = tuple(str(word) for word in command)
        is_shared = command in suite.shared_installs
        prepared.code, output = done[words] if is_shared and words in done else run_command(command, suite)
        if is_shared:
            done[words] = prepared.code, output
        prepared.output += title(command, suite) + output
        if prepared.code != 0:
            break
    return prepared


class Builds:
    """Commands that compile. Each runs once, however many suites need it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.done = {}

    def run(self, suite):
        """Its exit code and its output, or those of success where there is no such command."""
        if not suite.build:
            return 0, ""
        with self.lock:
            key = tuple(str(word) for word in suite.build)
            if key not in self.done:
                started = time.monotonic()
                self.done[key] = run_command(suite.build, suite)
                print(f"{title(suite.build, suite)}{time.monotonic() - started:.0f} s", flush=True)
            return self.done[key]


def run_suite(suite, prepared, builds, say=lambda text: print(text, end="", flush=True)):
    """Runs its commands, and counts. What they write goes to `say` as it comes."""
    code, output = prepared.code, prepared.output
    if code == 0 and suite.build:
        code, output = builds.run(suite)
        output = title(suite.build, suite) + output
    if code != 0:
        say(output)
    for command in suite.commands:
        if code != 0:
            break
        say(title(command, suite))
        code, output = run_command(command, suite, say)
    verdict = []
    if suite.count is None:
        counts = Counts(passed=1) if code == 0 else Counts(failed=1)
    else:
        counts = suite.count(output)
        ran_nothing = counts.passed == 0
        if counts.failed == 0 and (code != 0 or ran_nothing):
            verdict = ["ran no test" if code == 0 else f"ended with exit code {code}"]
            say(f"{suite.name}: {verdict[0]}\n")
            counts.failed = 1
    if counts.failed:
        counts.failure_lines = verdict + failure_lines(output)
    return counts


def failure_lines(output):
    """The lines that say what failed, in the words of the program that ran. An output that has none is quoted from its end."""
    found = [" ".join(text.split())[:FAILURE_LENGTH_MAX] for text in FAILURE.findall(output)]
    # pytest and node may say a line twice.
    found = list(dict.fromkeys(found)) or output.rstrip().splitlines()[-3:]
    if len(found) > FAILURES_SHOWN_MAX:
        found[FAILURES_SHOWN_MAX:] = [f"and {len(found) - FAILURES_SHOWN_MAX} more lines in its output above"]
    return found


@contextlib.contextmanager
def busy(loops):
    """So many programs that compute without end, until the block ends."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(os.getpid())]) for _ in range(loops)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextlib.contextmanager
def wide_ports():
    """A network namespace whose outgoing connections have the range WIDE_PORTS. Gives the words to put in front of a command that runs in it.

    Nothing there reaches the network: what tests install or build has to be there already.
    """
    prepare = f"ip link set lo up && echo {WIDE_PORTS} > /proc/sys/net/ipv4/ip_local_port_range && echo ready && exec cat"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", prepare], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as keeper:
        if keeper.stdout.readline() != "ready\n":
            sys.exit("--wide-ports needs root, unshare (util-linux) and ip (iproute2)")
        # It ends with its input.
        yield ["nsenter", f"--net=/proc/{keeper.pid}/ns/net"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="run only this suite; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the suites, and do nothing")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="compute in N endless loops meanwhile")
    parser.add_argument(
        "--wide-ports", action="store_true", help=f"run the suites where outgoing connections have the ports {WIDE_PORTS}"
    )
    arguments = parser.parse_args()
    chosen = [suite for suite in suites() if not arguments.only or suite.name in arguments.only]
    if arguments.list:
        print("\n".join(suite.name for suite in chosen))
        return 0
    if not chosen:
        parser.error(f"no such suite; there are: {', '.join(suite.name for suite in suites())}")

    # One install at a time: they wait for the network, while a processor each compiles and tests.
    installer = ThreadPoolExecutor(max_workers=1)
    with contextlib.ExitStack() as surroundings:
        surroundings.callback(installer.shutdown, cancel_futures=True)
        inside = surroundings.enter_context(wide_ports()) if arguments.wide_ports else []
        for suite in chosen:
            suite.commands = [[*inside, *command] for command in suite.commands]
            suite.seconds_max *= 1 + arguments.busy
        surroundings.enter_context(busy(arguments.busy))
        results = run_all(chosen, installer)
    return summarise(results)


def run_all(chosen, installer):
    """Runs the suites. Returns each with its counts and its seconds, or without counts if it was skipped."""
    done = {}
    preparing = {suite.name: installer.submit(prepare_suite, suite, done) for suite in chosen if not suite.skipped}
    builds = Builds()
    results = []
    for beside_others, group in itertools.groupby(chosen, lambda suite: suite.beside_others):
        with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE if beside_others else 1) as lanes:
            results += lanes.map(lambda suite: run_one(suite, preparing.get(suite.name), builds), group)
    return results


def run_one(suite, preparing, builds):
    """Runs a suite as soon as it is prepared. Its result is as in `run_all`."""
    prepared = preparing.result() if preparing else None
    if prepared:
        suite.skipped = prepared.skipped
    if suite.skipped:
        return suite, None, 0
    # Compiling for all is no part of a suite's seconds.
    builds.run(suite)
    started = time.monotonic()
    if not suite.beside_others:
        return suite, run_suite(suite, prepared, builds), time.monotonic() - started
    said = []
    counts = run_suite(suite, prepared, builds, said.append)
    # One write, so that nothing of another suite comes between.
    print("".join(said), end="", flush=True)
    return suite, counts, time.monotonic() - started


def summarise(results):
    """Prints what was counted. Returns the exit code."""
    total = Counts()
    print()
    for suite, counts, seconds in results:
        if counts is None:
            print(f"  {suite.name:<26} not run: {suite.skipped}")
            continue
        ignored = f", {counts.skipped} skipped" if counts.skipped else ""
        print(f"  {suite.name:<26} {counts.passed} passed, {counts.failed} failed{ignored}, {seconds:.0f} s")
        total += counts
    for suite, counts, _ in results:
        if counts and counts.failed:
            print(f"\nfailed: {suite.name}")
            print("\n".join(f"  {line}" for line in counts.failure_lines))
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())

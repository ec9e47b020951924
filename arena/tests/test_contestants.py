"""The manifest is whole, and what cannot be built or started says why."""

import asyncio
import contextlib
import io
import json
import re
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

ARENA = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ARENA), str(ARENA.parent / "tests")]

import check  # noqa: E402
import contestants  # noqa: E402
import ports  # noqa: E402
import smoke  # noqa: E402
from contestants import Order, Running, Unfit  # noqa: E402

# Where each ecosystem writes the versions that a build takes.
PINS = ("pom.xml", "package-lock.json", "go.mod", "Cargo.lock")
# Names Cargo's public registry and nothing else, which tests/licences.py checks.
WORKSPACE_LOCK = ARENA.parent / "Cargo.lock"


def crate_sources(lock):
    return set(re.findall(r'^source = "([^"]*)"', lock.read_text(), re.M))


def reference(**changes):
    """A contestant that is really there: tests/reference.py."""
    template = next(contestant for contestant in contestants.load() if contestant.name == "gws")
    return replace(
        template,
        **{
            "name": "reference",
            "folder": ARENA / "tests",
            "needs": [],
            "build": [],
            "start": [sys.executable, "reference.py"],
        }
        | changes,
    )


class ManifestTest(unittest.TestCase):
    def test_versions_are_those_that_are_built(self):
        for contestant in contestants.load():
            with self.subTest(contestant.name):
                if contestant.version_command:
                    continue
                pins = [path for name in PINS if (path := contestant.folder / name).exists()]
                pinned = "".join(path.read_text() for path in pins)
                if contestant.version:
                    self.assertRegex(pinned, rf"(?<![\d.]){re.escape(contestant.version)}\b")

    def test_npm_lock_files_name_no_place_but_a_sum_for_each_package(self):
        """npm leaves out where a package comes from if that is its registry: what is named is a mirror or a repository."""
        locks = [path for one in contestants.load() if (path := one.folder / "package-lock.json").exists()]
        self.assertTrue(locks)
        for path in locks:
            packages = json.loads(path.read_text())["packages"]
            for name, package in packages.items():
                # The first is the contestant itself.
                if name:
                    with self.subTest(path, package=name):
                        self.assertNotIn("resolved", package)
                        self.assertIn("integrity", package)

    def test_cargo_lock_files_name_the_registry_of_the_workspace_only(self):
        public = crate_sources(WORKSPACE_LOCK)
        self.assertEqual(len(public), 1)
        locks = [path for one in contestants.load() if (path := one.folder / "Cargo.lock").exists()]
        self.assertTrue(locks)
        for path in locks:
            with self.subTest(path):
                self.assertEqual(crate_sources(path), public)

    def test_the_readme_lists_everybody(self):
        readme = (ARENA / "README.md").read_text()
        for contestant in contestants.load():
            self.assertIn(f"`{contestant.name}`", readme)

    def test_a_large_crowd_gets_no_more_ticks_than_its_client_takes(self):
        for connections, every_ms in ((500, smoke.TICK_MS), (5_000, 1_000)):
            *_, (scene, _) = smoke.scenes(reference(), connections)
            self.assertEqual(scene["push_every_ms"], every_ms)

    def test_placeholders_are_known(self):
        for contestant in contestants.load():
            running = Running(contestant, Order(26_000, 1_000, 2))
            for word in [*contestant.start, *contestant.environment.values()]:
                self.assertNotIn("{", word.format(**running.placeholders(26_000)))
            order = Order(26_000, 1_000, 2, tls=contestants.Pair(Path("certificate.pem"), Path("key.pem")))
            running = Running(contestant, order)
            for word in running.command():
                self.assertNotIn("{", word.format(**running.placeholders(26_000)))

    def test_heap_grows_with_the_share_of_a_process(self):
        contestant = reference(heap={"base_mb": 100, "per_1000_connections_mb": 10})
        running = Running(contestant, Order(26_000, 100_000, 8))
        self.assertEqual(running.placeholders(26_000)["connections"], 12_500)
        self.assertEqual(running.placeholders(26_000)["heap_mb"], 225)

    def parse(self, **keys):
        defaults = contestants.tomllib.loads((ARENA / "arena.toml").read_text())["defaults"]
        entry = {"name": "it", "title": "It", "language": "c", "version": "1", "start": ["it"]} | keys
        return contestants.parse(entry, {"defaults": defaults, "jvm": {}}, ARENA)

    def test_an_unknown_key_is_named(self):
        with self.assertRaisesRegex(Unfit, "it: .*'colour'"):
            self.parse(colour="blue")

    def test_an_unknown_feature_is_named(self):
        with self.assertRaisesRegex(Unfit, r"it: `features` is \['teleport'\]; it can be push, timer"):
            self.parse(features=["teleport"])

    def test_a_run_with_tls_has_a_command_of_its_own_where_the_entry_has_one(self):
        pair = contestants.Pair(Path("c"), Path("k"))
        for tls, command in ((None, ["it"]), (pair, ["other", "{key}"])):
            running = Running(self.parse(start_tls=["other", "{key}"]), Order(26_000, 10, tls=tls))
            self.assertEqual(running.command(), command)
        self.assertEqual(Running(self.parse(), Order(26_000, 10, tls=pair)).command(), ["it"])
        with self.assertRaisesRegex(Unfit, "it: `start` is missing"):
            self.parse(start=[])

    def test_names_are_refused_in_runs_that_are_not_theirs(self):
        self.assertEqual([one.name for one in smoke.chosen("tokio", tls=True)], ["tokio"])
        with self.assertRaisesRegex(Unfit, "nio cannot be checked with --tls; these can: .*tokio"):
            smoke.chosen("tokio,nio", tls=True)
        with self.assertRaisesRegex(Unfit, "nginx-myriad cannot be checked without --tls"):
            smoke.chosen("nginx-myriad")

    def test_an_own_pool_has_one_port(self):
        self.assertEqual(Order(26_000, 100, 3).ports(self.parse(processes="own")), [26_000])
        self.assertEqual(Order(26_000, 100, 3).ports(self.parse()), [26_000, 26_001, 26_002])


class UnfitTest(unittest.TestCase):
    def reason(self, action, contestant):
        with self.assertRaises(Unfit) as caught:
            action(contestant)
        return str(caught.exception)

    def start(self, contestant):
        with Running(contestant, Order(ports.reserve(1), 10)):
            pass

    def test_a_missing_tool(self):
        contestant = reference(needs=["no-such-compiler"], needs_hint="install it")
        self.assertEqual(
            self.reason(contestants.build, contestant), "not on PATH: no-such-compiler; install it"
        )

    def test_a_build_that_fails(self):
        contestant = reference(build=[["sh", "-c", "echo 'error: does not compile'; echo bye; exit 3"]])
        self.assertRegex(self.reason(contestants.build, contestant), "ended with 3: error: does not compile$")

    def test_a_build_without_end(self):
        contestant = reference(build=[["sleep", "60"]], build_seconds_max=0.1)
        self.assertEqual(self.reason(contestants.build, contestant), "build: `sleep` took over 0.1 s")

    def test_a_start_that_ends(self):
        contestant = reference(start=["sh", "-c", "echo 'no such port' >&2; exit 7"])
        self.assertEqual(self.reason(self.start, contestant), "start: it ended with 7: no such port")

    def test_a_start_without_answer(self):
        contestant = reference(start=["sleep", "60"], start_seconds_max=0.1)
        self.assertRegex(self.reason(self.start, contestant), "unanswered after 0.1 s: it said nothing$")

    def test_a_start_of_nothing(self):
        self.assertEqual(
            self.reason(self.start, reference(start=["./nothing"])), "start: `./nothing`: No such file or directory"
        )


class SmokeTest(unittest.TestCase):
    def run_one(self, contestant, pair=None):
        arguments = smoke.arguments(["--port", str(ports.reserve(2)), "--connections", "9"])
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            return smoke.run_one(contestant, arguments, pair)

    def test_a_contestant_from_build_to_stop(self):
        row = self.run_one(reference())
        self.assertEqual((row.reason, row.checks), ("", 14))
        self.assertGreater(row.resident_mb, 1)

    def test_a_contestant_with_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            row = self.run_one(reference(), contestants.Pair.make(folder))
        self.assertEqual((row.reason, row.checks), ("", 16))

    def test_a_failure_is_a_row_with_its_reason(self):
        row = self.run_one(reference(start=["sh", "-c", "echo 'out of luck'; exit 1"]))
        self.assertIn("FAILED: start: it ended with 1: out of luck", smoke.line(smoke.cells(row)))

    def test_several_processes_stop_with_the_block(self):
        order = Order(ports.reserve(2), 4, 2)
        with Running(reference(), order) as running:
            pids = [process.pid for process in running.processes]
            crowd = check.Crowd(running.ports)
            self.assertEqual(asyncio.run(crowd.connections()), 0)
        self.assertEqual([Path(f"/proc/{pid}").exists() for pid in pids], [False, False])


if __name__ == "__main__":
    unittest.main()

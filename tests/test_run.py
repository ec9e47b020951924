"""Tests how run.py counts tests in the output of other programs, and how it and rust_tests.py run them."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run
import rust_tests
from run import Counts, Suite


class CountTest(unittest.TestCase):
    def test_cargo(self):
        output = (
            "running 2 tests\n..\n"
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n"
            "test result: FAILED. 5 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.02s\n"
        )
        self.assertEqual(run.count_cargo(output), Counts(7, 1, 3))

    def test_unittest(self):
        self.assertEqual(run.count_unittest("....\nRan 11 tests in 1.0s\n\nOK\n"), Counts(11, 0, 0))
        failed = "Ran 11 tests in 1.0s\n\nFAILED (failures=1, errors=2, skipped=3)\n"
        self.assertEqual(run.count_unittest(failed), Counts(5, 3, 3))

    def test_pytest(self):
        self.assertEqual(run.count_pytest("....\n12 passed in 2.10s\n"), Counts(12, 0, 0))
        rules = "===== 3 failed, 12 passed, 1 skipped in 2.10s =====\n"
        self.assertEqual(run.count_pytest(rules), Counts(12, 3, 1))
        self.assertEqual(run.count_pytest("==== 1 error in 0.10s ====\n"), Counts(0, 1, 0))
        self.assertEqual(run.count_pytest("no tests ran in 0.01s\n"), Counts())

    def test_node(self):
        tap = "# tests 6\n# pass 4\n# fail 1\n# cancelled 1\n# skipped 0\n"
        self.assertEqual(run.count_node(tap), Counts(4, 2, 0))
        self.assertEqual(run.count_node("ℹ tests 3\nℹ pass 3\nℹ fail 0\n"), Counts(3, 0, 0))

    def test_go(self):
        output = "=== RUN   TestA\n    --- PASS: TestA/one (0.00s)\n--- PASS: TestA (0.10s)\n--- FAIL: TestB (0.00s)\n--- SKIP: TestC (0.00s)\nFAIL\n"
        self.assertEqual(run.count_go(output), Counts(1, 1, 1))
        self.assertEqual(run.count_go("FAIL\tmyriad.test/clients [build failed]\n"), Counts())

    def test_conformance(self):
        output = "epoll: 249 cases: 248 OK, 1 FAILED; closes: 249 OK\n497 passed, 1 failed\n"
        self.assertEqual(run.count_conformance(output), Counts(497, 1, 0))
        self.assertEqual(run.count_conformance("installing the suite failed\n"), Counts())


class SuiteTest(unittest.TestCase):
    def outcome(self, *programs, count=None):
        commands = [[sys.executable, "-c", program] for program in programs]
        return run.run_suite(Suite("a suite", commands, count=count), run.Prepared(), run.Builds())

    def outcome_of_all(self, *suites):
        with ThreadPoolExecutor(max_workers=1) as installer:
            return [counts for _, counts, _ in run.run_all(suites, installer)]

    def test_a_check_counts_as_one(self):
        self.assertEqual(self.outcome("pass"), Counts(1, 0, 0))
        self.assertEqual(self.outcome("raise SystemExit(1)"), Counts(0, 1, 0))

    def test_an_error_without_a_counted_failure_is_a_failure(self):
        crash = "print('# pass 3'); raise SystemExit(9)"
        self.assertEqual(self.outcome(crash, count=run.count_node), Counts(3, 1, 0))

    def test_running_nothing_is_a_failure(self):
        self.assertEqual(self.outcome("pass", count=run.count_node), Counts(0, 1, 0))

    def test_installs_run_before_the_commands(self):
        with tempfile.TemporaryDirectory() as directory:
            install = [sys.executable, "-c", "open('installed', 'w')"]
            use = [sys.executable, "-c", "open('installed'); print('# pass 1')"]
            suite = Suite("a suite", [use], Path(directory), run.count_node, installs=[install])
            self.assertEqual(self.outcome_of_all(suite), [Counts(1, 0, 0)])

    def test_suites_share_installs(self):
        with tempfile.TemporaryDirectory() as directory:
            shared = [sys.executable, "-c", f"open({directory!r} + '/shared', 'x')"]
            own = [sys.executable, "-c", "open('own', 'x')"]
            suites = []
            for name in "ab":
                folder = Path(directory) / name
                folder.mkdir()
                use = [sys.executable, "-c", "open('own'); open('../shared'); print('# pass 1')"]
                suites.append(Suite(name, [use], folder, run.count_node, installs=[own], shared_installs=[shared]))
            self.assertEqual(self.outcome_of_all(*suites), [Counts(1, 0, 0)] * 2)

    def test_suites_in_python_need_the_same_versions(self):
        versions = {}
        for file in run.requirements():
            for line in file.read_text().split():
                name, version = line.split("==")
                self.assertEqual(versions.setdefault(name, version), version, file)

    def test_a_failed_install_is_shown_and_is_a_failure(self):
        fail = [sys.executable, "-c", "print('no such package'); raise SystemExit(2)"]
        use = [sys.executable, "-c", "print('# pass 3')"]
        suite = Suite("a suite", [use], count=run.count_node, installs=[fail])
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(self.outcome_of_all(suite), [Counts(0, 1, 0)])
        self.assertIn("no such package", shown.getvalue())

    def test_what_cannot_be_prepared_is_not_counted(self):
        absent = Suite("absent", [], skipped="it is not installed")
        missing = Suite("missing", [], prepare=lambda: "nginx is not installed")
        self.assertEqual(self.outcome_of_all(absent, missing), [None, None])
        self.assertEqual(missing.skipped, "nginx is not installed")

    def test_a_failed_command_before_the_last_is_a_failure(self):
        self.assertEqual(
            self.outcome("raise SystemExit(2)", "print('# pass 3')", count=run.count_node), Counts(0, 1, 0)
        )

    def test_suites_that_may_run_side_by_side(self):
        with tempfile.TemporaryDirectory() as directory:
            meets = "import os; os.mkdir({mine!r})\nwhile not os.path.exists({other!r}): pass\nprint('met', flush=True); print('# pass 1')"
            first, second = (
                Suite(
                    mine,
                    [[sys.executable, "-c", meets.format(mine=mine, other=other)]],
                    Path(directory),
                    run.count_node,
                    beside_others=True,
                )
                for mine, other in [("first", "second"), ("second", "first")]
            )
            alone = Suite("alone", [[sys.executable, "-c", "import os; os.rmdir('first'); os.rmdir('second')"]], Path(directory))
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                self.assertEqual(self.outcome_of_all(first, second, alone), [Counts(1, 0, 0)] * 3)
        # Each whole.
        sections = shown.getvalue().split("\n--- ")[1:]
        self.assertEqual(sorted(section.split(":")[0] for section in sections), ["alone", "first", "second"])
        self.assertEqual([section.count("met\n# pass 1\n") for section in sections], [1, 1, 0])

    def test_suites_share_what_is_compiled_for_them(self):
        with tempfile.TemporaryDirectory() as directory:
            build = [sys.executable, "-c", "open('compiled', 'x')"]
            use = [sys.executable, "-c", "open('compiled'); print('# pass 1')"]
            suites = [
                Suite(name, [use], Path(directory), run.count_node, build=build, beside_others=True) for name in "abc"
            ]
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(self.outcome_of_all(*suites), [Counts(1, 0, 0)] * 3)

    def test_what_cannot_be_compiled_fails_each_suite_that_needs_it(self):
        build = [sys.executable, "-c", "print('no such type'); raise SystemExit(101)"]
        suites = [Suite(name, [], count=run.count_node, build=build, beside_others=True) for name in "ab"]
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(self.outcome_of_all(*suites), [Counts(0, 1, 0)] * 2)
        self.assertEqual(len(re.findall("^no such type$", shown.getvalue(), re.M)), 2)

    def summary(self, *suites):
        with ThreadPoolExecutor(max_workers=1) as installer, contextlib.redirect_stdout(io.StringIO()):
            results = run.run_all(suites, installer)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            code = run.summarise(results)
        return code, shown.getvalue().splitlines()

    def test_the_summary_says_which_tests_failed_and_why(self):
        output = (
            "test a::good ... ok\ntest a::bad ... FAILED\n\n---- a::bad stdout ----\n\n"
            "thread 'a::bad' (7) panicked at src/a.rs:3:5:\nno answer came\nnote: run with RUST_BACKTRACE=1\n"
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        )
        bad = Suite("bad", [[sys.executable, "-c", f"print({output!r}); raise SystemExit(101)"]], count=run.count_cargo)
        good = Suite("good", [[sys.executable, "-c", "print('error: of a test that expects it'); print('# pass 3')"]], count=run.count_node)
        code, lines = self.summary(bad, good)
        self.assertEqual(code, 1)
        failed = lines.index("failed: bad")
        self.assertEqual(
            lines[failed + 1 :],
            ["  test a::bad ... FAILED", "  thread 'a::bad' (7) panicked at src/a.rs:3:5: no answer came", "4 passed, 1 failed"],
        )

    def test_failures_of_each_program(self):
        said = {
            "cargo": (
                "test a::good ... ok\ntest a::bad ... FAILED\n\n---- a::bad stdout ----\n\n"
                "thread 'a::bad' (7) panicked at src/a.rs:3:5:\nassertion `left == right` failed: why\n  left: 2\n right: 3\n"
                "note: run with RUST_BACKTRACE=1\n\nfailures:\n    a::bad\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n",
                [
                    "test a::bad ... FAILED",
                    "thread 'a::bad' (7) panicked at src/a.rs:3:5: assertion `left == right` failed: why left: 2 right: 3",
                ],
            ),
            "a binary that was killed": (
                "test result: ok. 5 passed; 0 failed; 0 ignored\nserver server ended with exit code -9\n",
                ["server server ended with exit code -9"],
            ),
            "rustfmt": ("Diff in /a/b.rs:10:\n-let a=1;\n+let a = 1;\n", ["Diff in /a/b.rs:10:"]),
            "clippy": (
                "error: this loop never ends\n  --> a.rs:3:5\n   |\n3  |     loop {}\n",
                ["error: this loop never ends --> a.rs:3:5"],
            ),
            "pytest": (
                "F.\n=== FAILURES ===\n    assert 2 == 3\n=== short test summary info ===\n"
                "FAILED test_a.py::test_it[ws] - assert 2 == 3\n1 failed, 1 passed in 0.10s\n",
                ["FAILED test_a.py::test_it[ws] - assert 2 == 3"],
            ),
            "unittest": (
                "FAIL: test_it (test_a.ATest.test_it)\n-----\nTraceback (most recent call last):\nAssertionError: 2 != 3\n\n"
                "Ran 2 tests in 0.001s\n\nFAILED (failures=1)\n",
                ["FAIL: test_it (test_a.ATest.test_it)"],
            ),
            "node in TAP": ("ok 1 - a\nnot ok 2 - b\nnot ok 3 - later # TODO\n# fail 1\n", ["not ok 2 - b"]),
            "node": ("✔ a (1ms)\n✖ b (2ms)\nℹ fail 1\n\n✖ failing tests:\n\n✖ b (2ms)\n", ["✖ b (2ms)"]),
            "go": ("    --- PASS: TestA/one (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\n", ["--- FAIL: TestB (0.00s)"]),
            "conformance": ("FAILED (epoll): 7.1.1: WRONG CODE, ended OK\n  got: 1006\n", ["FAILED (epoll): 7.1.1: WRONG CODE, ended OK"]),
            "any other": ("one\ntwo\nthree\nfour\n", ["two", "three", "four"]),
        }
        for program, (output, lines) in said.items():
            self.assertEqual(run.failure_lines(output), lines, program)

    def test_a_summary_says_how_a_silent_suite_ended(self):
        crash = Suite("crash", [[sys.executable, "-c", "print('# pass 3'); raise SystemExit(9)"]], count=run.count_node)
        _, lines = self.summary(crash)
        self.assertEqual(lines[-4:], ["failed: crash", "  ended with exit code 9", "  # pass 3", "3 passed, 1 failed"])

    def test_many_and_long_failures_leave_the_last_line_in_sight(self):
        found = run.failure_lines("".join(f"FAILED test_{number} {'x' * 1000}\n" for number in range(100)))
        self.assertEqual(len(found), run.FAILURES_SHOWN_MAX + 1)
        self.assertEqual({len(line) for line in found[:-1]}, {run.FAILURE_LENGTH_MAX})
        self.assertIn("88 more", found[-1])

    def test_each_suite_has_what_it_starts(self):
        for suite in run.suites():
            self.assertTrue(suite.directory.is_dir(), suite.name)


class RustTest(unittest.TestCase):
    def message(self, name, test=True, **changed):
        target = {"kind": ["test"], "name": name}
        manifest = "/work/crates/wire/Cargo.toml"
        return {
            "reason": "compiler-artifact", "manifest_path": manifest, "target": target, "profile": {"test": test},
            "executable": f"/work/target/debug/deps/{name}-1",
        } | changed  # fmt: skip

    def python(self, name, program):
        return rust_tests.Binary(name, [sys.executable, "-c", program])

    def outcome_of_all(self, *binaries):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            ended = rust_tests.run_all(binaries, 2)
        return {one.name: one.code for one in ended}, shown.getvalue()

    def test_which_artifacts_are_test_binaries(self):
        found = rust_tests.binary_of(self.message("corpus"))
        self.assertEqual(found.name, "wire corpus")
        self.assertEqual(found.command, ["/work/target/debug/deps/corpus-1"])
        self.assertEqual(found.directory, Path("/work/crates/wire"))
        # A program that tests start, a library, and the end.
        self.assertIsNone(rust_tests.binary_of(self.message("myriad", test=False)))
        self.assertIsNone(rust_tests.binary_of(self.message("myriad_wire", executable=None)))
        self.assertIsNone(rust_tests.binary_of({"reason": "build-finished", "success": True}))

    def test_the_longest_go_first(self):
        names = ["wire corpus", "shard sim", "hub myriad_hub", "server server"]
        ordered = rust_tests.longest_first([self.python(name, "") for name in names])
        self.assertEqual([one.name for one in ordered], ["server server", "shard sim", "wire corpus", "hub myriad_hub"])

    def test_binaries_that_wait_run_more_tests_at_once(self):
        processors = len(os.sched_getaffinity(0))
        waiting = rust_tests.environment_of(self.python("server server", ""))
        self.assertEqual(waiting["RUST_TEST_THREADS"], str(2 * processors))
        computing = rust_tests.environment_of(self.python("shard sim", ""))
        self.assertEqual(computing.get("RUST_TEST_THREADS"), os.environ.get("RUST_TEST_THREADS"))

    def test_a_binary_runs_in_the_folder_of_its_package(self):
        with tempfile.TemporaryDirectory() as directory:
            here = "import os; assert os.getcwd() == os.environ['CARGO_MANIFEST_DIR']; print(os.getcwd())"
            binary = rust_tests.Binary("it", [sys.executable, "-c", here], Path(os.path.realpath(directory)))
            codes, shown = self.outcome_of_all(binary)
            self.assertEqual(codes, {"it": 0})
            self.assertIn(os.path.realpath(directory), shown)

    def test_every_result_is_shown_whole_and_counted(self):
        result = "test result: {}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"
        good = self.python("good", f"print({result.format('ok', 5, 0)!r})")
        bad = self.python("bad", f"print('why'); print({result.format('FAILED', 2, 1)!r}); raise SystemExit(101)")
        codes, shown = self.outcome_of_all(good, bad)
        self.assertEqual(codes, {"good": 0, "bad": 101})
        self.assertEqual(run.count_cargo(shown), Counts(7, 1, 0))
        self.assertIn("why\ntest result: FAILED", shown)

    def test_a_crash_is_no_success(self):
        codes, _ = self.outcome_of_all(self.python("crash", "import os; os.abort()"))
        self.assertEqual(codes, {"crash": -6})


class SurroundingsTest(unittest.TestCase):
    def test_busy_loops_compute_until_they_are_not_wanted(self):
        def children():
            mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
            return {pid for pid in mine.read_text().split() if "sum(range" in Path(f"/proc/{pid}/cmdline").read_text()}

        with run.busy(2):
            # Both may not have begun their program yet.
            deadline = time.monotonic() + 30
            while len(children()) < 2:
                self.assertLess(time.monotonic(), deadline)
        self.assertEqual(children(), set())

    def test_a_loop_ends_with_its_parent(self):
        loop = f"[sys.executable, '-c', {run.BUSY_LOOP!r}, str(os.getpid())]"
        parent = f"import os, subprocess, sys; print(subprocess.Popen({loop}, stdout=subprocess.DEVNULL).pid)"
        started = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{started.stdout.strip()}/cmdline").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_outgoing_connections_have_wide_ports_in_a_namespace_only(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs root and unshare")
        ports = Path("/proc/sys/net/ipv4/ip_local_port_range")
        here = ports.read_text()
        with run.wide_ports() as inside:
            there = subprocess.run([*inside, "cat", ports], stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(there.stdout.split(), run.WIDE_PORTS.split())
            self.assertEqual(ports.read_text(), here)


if __name__ == "__main__":
    unittest.main()

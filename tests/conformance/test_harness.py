"""Tests the harness with made-up reports and Pythons."""

import json
import os
import stat
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import report
import suite


class Reports(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.directory = Path(place.name)

    def write(self, cases):
        index = {}
        for name, (behavior, ending) in cases.items():
            file = f"case_{name}.json"
            index[name] = {"behavior": behavior, "behaviorClose": ending, "reportfile": file}
            details = {"description": f"Send {name}.", "result": "Got\n   nothing.", "remoteCloseReason": None}
            (self.directory / file).write_text(json.dumps(details))
        (self.directory / "index.json").write_text(json.dumps({"epoll": index}))
        return report.read(self.directory)

    def test_only_ok_and_informational_pass_and_the_end_counts_as_much(self):
        cases = self.write(
            {
                "10.1.1": ("OK", "OK"),
                "2.1": ("INFORMATIONAL", "INFORMATIONAL"),
                "9.1": ("OK", "UNCLEAN"),
                "9.2": ("OK", "WRONG CODE"),
                "9.3": ("NON-STRICT", "OK"),
                "9.4": ("UNIMPLEMENTED", "OK"),
                "9.5": ("FAILED", "FAILED BY CLIENT"),
            }
        )
        self.assertEqual([case.name for case in cases if case.passed], ["2.1", "10.1.1"])
        self.assertIn("3 OK, 1 INFORMATIONAL, 1 NON-STRICT", report.summary(cases).replace("1 FAILED, ", ""))

    def test_cases_are_in_the_order_of_their_numbers(self):
        cases = self.write({name: ("OK", "OK") for name in ["10.1.1", "9.10", "9.9", "9.9.1"]})
        self.assertEqual([case.name for case in cases], ["9.9", "9.9.1", "9.10", "10.1.1"])

    def test_a_failure_is_explained(self):
        (case,) = self.write({"7.1": ("FAILED", "UNCLEAN")})
        self.assertEqual(case.explain(), "7.1: FAILED, ended UNCLEAN\n    tried: Send 7.1.\n    got: Got nothing.")
        (self.directory / "case_7.1.json").unlink()
        self.assertIn("no report", case.explain())

    def test_no_report_is_no_case(self):
        self.assertEqual(report.read(self.directory), [])
        (self.directory / "index.json").write_text("cut off {")
        self.assertEqual(report.read(self.directory), [])


class Pythons(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.directory = Path(place.name)

    def program(self, name, script):
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def found(self, **environment):
        with mock.patch.dict(os.environ, {"PATH": str(self.directory), **environment}, clear=True):
            return suite.find_python()

    def test_the_named_one_is_taken_or_refused_by_name(self):
        good = self.program("mine", "exit 0")
        self.assertEqual(self.found(PYTHON2=good), good)
        for bad in [self.program("other", "exit 1"), "/nowhere/python"]:
            with self.assertRaisesRegex(suite.Missing, f"PYTHON2={bad}"):
                self.found(PYTHON2=bad)

    def test_a_shim_that_leads_nowhere_is_passed_over(self):
        self.program("python2.7", "echo 'the version is not set' >&2; exit 127")
        with self.assertRaisesRegex(suite.Missing, "PYTHON2.*pyenv.*PATH"):
            self.found()
        self.program("python2", "exit 0")
        self.assertEqual(self.found(), "python2")

    def test_the_newest_of_pyenv_comes_first(self):
        version = self.directory / "2.7.18" / "bin"
        version.mkdir(parents=True)
        self.program("2.7.18/bin/python2.7", "exit 0")
        self.program(
            "pyenv",
            f'case "$1" in versions) echo 3.12.1; echo 2.7.9; echo 2.7.18; echo 2.7-dev;; prefix) echo {self.directory}/$2;; esac',
        )
        self.assertEqual(self.found(), str(version / "python2.7"))


if __name__ == "__main__":
    unittest.main()

"""Tests of the floor under connecting: it must really open what it counts, and leave nothing behind."""

import json
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 60


def connections_opened():
    """The kernel's own count of passive opens in this network namespace (`Tcp:` lines of /proc/net/snmp)."""
    with open("/proc/net/snmp") as file:
        names, values = [line.split() for line in file if line.startswith("Tcp:")]
    return int(values[names.index("PassiveOpens")])


class FloorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.program = os.path.join(cls.directory.name, "floor")
        source = os.path.join(HERE, "floor.c")
        subprocess.run(["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", cls.program, source], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_floor(self, *words):
        return subprocess.run([self.program, *words], capture_output=True, text=True, timeout=PATIENCE_S)

    def test_the_kernel_counts_as_many(self):
        before = connections_opened()
        done = self.run_floor("--connections", "3000", "--processes", "3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        figures = json.loads(done.stdout)
        self.assertEqual((figures["connections"], figures["processes"]), (3000, 3))
        # The rate is rounded, and so is the time.
        self.assertAlmostEqual(figures["rate_per_s"] * figures["elapsed_s"] / 3000, 1, delta=0.05)
        # Others on the machine may have opened some too.
        self.assertGreaterEqual(connections_opened() - before, 3000)

    def test_more_processes_where_descriptors_are_few(self):
        done = subprocess.run(
            ["sh", "-c", f"ulimit -n 512; {self.program} --connections 3000 --processes 2"],
            capture_output=True, text=True, timeout=PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["processes"], 6)

    def test_what_is_no_count_is_refused(self):
        done = self.run_floor("--connections", "none")
        self.assertEqual(done.returncode, 104)
        self.assertIn("--connections takes a number", done.stderr)


if __name__ == "__main__":
    unittest.main()

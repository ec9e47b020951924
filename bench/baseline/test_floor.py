"""Tests of the plain programs for connecting and for echoes: the kernel must have done what they count."""

import json
import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 60


def counted(name):
    """A count of the kernel's own in this network namespace (`Tcp:` lines of /proc/net/snmp)."""
    with open("/proc/net/snmp") as file:
        names, values = [line.split() for line in file if line.startswith("Tcp:")]
    return int(values[names.index(name)])


def connections_opened():
    return counted("PassiveOpens")


def segments_sent():
    return counted("OutSegs")


class PlainProgramTest(unittest.TestCase):
    """Compiles a program of this folder, named `NAME`, for the tests of it. Has no test itself."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.program = os.path.join(cls.directory.name, cls.NAME)
        source = os.path.join(HERE, f"{cls.NAME}.c")
        subprocess.run(["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", cls.program, source], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_program(self, *words):
        return subprocess.run([self.program, *words], capture_output=True, text=True, timeout=PATIENCE_S)


class FloorTest(PlainProgramTest):
    NAME = "floor"

    def test_the_kernel_counts_as_many(self):
        before = connections_opened()
        done = self.run_program("--connections", "3000", "--processes", "3")
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
        done = self.run_program("--connections", "none")
        self.assertEqual(done.returncode, 104)
        self.assertIn("--connections takes a number", done.stderr)


class EchoesTest(PlainProgramTest):
    NAME = "echoes"

    def test_the_kernel_carries_each_message_both_ways(self):
        before = segments_sent()
        done = self.run_program("--connections", "20", "--bytes", "500", "--seconds", "3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        figures = json.loads(done.stdout)
        self.assertEqual((figures["connections"], figures["bytes"]), (20, 500))
        self.assertGreater(figures["echoes"], 0)
        self.assertAlmostEqual(figures["rate_per_s"] * figures["elapsed_s"] / figures["echoes"], 1, delta=0.05)
        # A message is a segment each way. One second of four is not counted.
        self.assertGreater(segments_sent() - before, 2 * figures["echoes"])

    def test_several_messages_share_a_segment(self):
        before = segments_sent()
        done = self.run_program("--connections", "20", "--depth", "16", "--seconds", "1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        figures = json.loads(done.stdout)
        self.assertEqual(figures["depth"], 16)
        self.assertLess(segments_sent() - before, 2 * figures["echoes"])

    def test_what_it_cannot_do_is_refused(self):
        for words, said in (
            (("--connections", "none"), "--connections takes a number"),
            (("--bytes", "0"), "--bytes takes a number"),
            (("--seconds", "61"), "--seconds takes a number"),
            (("--connections", "10k"), "--connections takes a number"),
            (("--depth",), "--depth takes a number"),
            (("--depth", "2000"), "--depth times --bytes is 128000"),
            (("--size", "10"), "there is no option --size"),
        ):
            done = self.run_program(*words)
            self.assertEqual(done.returncode, 104, words)
            self.assertIn(said, done.stderr)
        done = subprocess.run(
            ["sh", "-c", f"ulimit -n 100; {self.program} --connections 100"], capture_output=True, text=True, timeout=PATIENCE_S
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("need more than the 100 descriptors", done.stderr)


if __name__ == "__main__":
    unittest.main()

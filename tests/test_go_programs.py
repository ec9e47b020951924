"""Tests how programs in Go are built: once, however many processes ask at the same time."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import go_programs

# Writes down what it was asked for, and makes the program.
GO = """#!/bin/sh
echo "$* $GOFLAGS" >> "$GOBIN/asked"
echo program > "$GOBIN/nats-server"
"""


class GoProgramsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = Path(folder.name)
        self.bin = self.target / "bin"
        self.bin.mkdir()
        environment = {"CARGO_TARGET_DIR": str(self.target), "PATH": f"{self.bin}:{os.environ['PATH']}", "GOFLAGS": "-buildvcs=false"}
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    def place_go(self, text=GO):
        (self.bin / "go").write_text(text)
        (self.bin / "go").chmod(0o755)

    def test_one_process_builds_for_all(self):
        self.place_go()
        command = [sys.executable, go_programs.ROOT / "tests" / "go_programs.py", "nats-server"]
        asking = [subprocess.Popen(command) for _ in range(4)]
        self.assertEqual([one.wait() for one in asking], [0] * 4)
        built = go_programs.build("nats-server")
        self.assertTrue((built / "nats-server").exists())
        asked = (built / "asked").read_text().splitlines()
        self.assertEqual(len(asked), 1)
        self.assertIn("nats-server/v2@v", asked[0])
        self.assertIn("-buildvcs=false '-gcflags=all=-N -l -dwarf=false'", asked[0])

    def test_a_build_that_failed_is_tried_again(self):
        self.place_go("#!/bin/sh\nexit 1\n")
        with self.assertRaises(subprocess.CalledProcessError):
            go_programs.build("nats-server")
        self.place_go()
        self.assertTrue((go_programs.build("nats-server") / "nats-server").exists())

    def test_without_go_there_is_none(self):
        with mock.patch.dict(os.environ, {"PATH": str(self.bin)}):
            self.assertIsNone(go_programs.build("nats-server"))


if __name__ == "__main__":
    unittest.main()

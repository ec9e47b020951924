"""The files of deploy/ agree with each other, with the tools that read them, and with the pages that show them."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


class DeployTest(unittest.TestCase):
    def test_the_pages_lines_are_those_of_the_files(self):
        pages = [
            ("proxies.md", "nginx", "nginx.conf"),
            ("proxies.md", "haproxy", "haproxy.cfg"),
            ("serve.md", "ini", "myriad.service"),
        ]
        for page, language, name in pages:
            text = (ROOT / "docs" / page).read_text()
            shown = [line.strip() for block in blocks(text, language) for line in block.splitlines()]
            self.assertGreater(len(shown), 5, f"docs/{page} shows nothing of {name}")
            there = {line.strip() for line in (DEPLOY / name).read_text().splitlines()}
            self.assertEqual([line for line in shown if line and line not in there], [], name)

    def test_the_image_has_the_toolchain_of_the_workspace(self):
        channel = re.search(r'^channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text(), re.M)[1]
        image = re.search(r"^FROM rust:([\d.]+)-", (DEPLOY / "Dockerfile").read_text(), re.M)[1]
        self.assertEqual(image, channel)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_unit(self):
        # The program of the unit is not installed here; systemd looks for it.
        unit = (DEPLOY / "myriad.service").read_text().replace("/usr/local/bin/myriad", shutil.which("true"))
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "myriad.service"
            file.write_text(unit)
            done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_systemd_waits_longer_than_a_drain(self):
        unit = (DEPLOY / "myriad.service").read_text()
        options = (ROOT / "docs" / "configuration.md").read_text()
        drain = re.search(r'^\| `drain` \|.*?\| `"(\d+)s"` \|', options, re.M)[1]
        stop = re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.M)[1]
        self.assertGreater(int(stop), int(drain) + 5)


if __name__ == "__main__":
    unittest.main()

"""The packages of the program in $MYRIAD, and machines to install them on."""

import os
import subprocess
from pathlib import Path

import pytest

from machine import Machine

ROOT = Path(__file__).resolve().parents[2]
MYRIAD = Path(os.environ.get("MYRIAD", ROOT / "target" / "debug" / "myriad"))
# The program says its own version all the same: only the packages have these.
VERSIONS = ("0.1.0", "0.2.0")


@pytest.fixture(scope="session")
def myriad():
    return MYRIAD


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Makes the packages of a version in a folder. Returns them by kind."""
    # Each package would have the symbols of a debug build, which are six times the program, read and written again.
    program = tmp_path_factory.mktemp("program") / "myriad"
    subprocess.run(["objcopy", "--strip-all", MYRIAD, program], check=True)

    def build(version, folder):
        environment = {**os.environ, "VERSION": version, "SOURCE_DATE_EPOCH": "1700000000"}
        command = [ROOT / "deploy" / "packages" / "build.sh", program, folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return {kind: next(folder.glob(f"*{version}*.{kind}")) for kind in ("deb", "rpm")}

    return build


@pytest.fixture(scope="session")
def packages(build, tmp_path_factory):
    """By kind, the older version first."""
    folder = tmp_path_factory.mktemp("packages")
    made = [build(version, folder) for version in VERSIONS]
    return {kind: [one[kind] for one in made] for kind in made[0]}


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.end()

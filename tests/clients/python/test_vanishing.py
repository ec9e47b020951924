"""The server detects clients that vanish without FIN by their missing pong."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSIDE = ["unshare", "--user", "--map-root-user", "--net"]


def missing():
    """Why a network namespace cannot be made here, or nothing if it can."""
    for program in ["unshare", "ip"]:
        if not shutil.which(program):
            return f"{program} is not installed"
    tried = subprocess.run([*INSIDE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no network namespace: {tried.stderr.strip()}"


def test_clients_that_vanish_without_fin_are_found_out(driver):
    if reason := missing():
        pytest.skip(reason)
    child = [sys.executable, str(Path(__file__).with_name("vanishing.py")), driver]
    done = subprocess.run([*INSIDE, *child], capture_output=True, text=True, timeout=120)
    if driver == "io_uring" and done.stderr.startswith("unavailable: "):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr

"""Finds a Python 2.7, and installs the Autobahn test suite for it.

    tests/conformance/suite.py DIRECTORY

Where that is not possible the exit code is 3 and the output says why.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

EXIT_MISSING = 3
HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
# The last version that makes environments for Python 2.7 and contains an installer for it.
VIRTUALENV = "virtualenv==20.15.1"


class Missing(Exception):
    """The suite cannot run here; the message says what is missing and how to get it."""


def _is_python_2_7(candidate):
    """Whether this is a Python 2.7. It must be run to know: a shim of pyenv is on the path even if no such Python is selected."""
    question = "import sys; sys.exit(sys.version_info[:2] != (2, 7))"
    try:
        return subprocess.run([candidate, "-c", question], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _pythons_of_pyenv():
    """The executables of its 2.7 versions, newest first."""
    if not shutil.which("pyenv"):
        return
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True).stdout.split()
    versions = [name for name in listed if name == "2.7" or (name.startswith("2.7.") and name[4:].isdigit())]
    for version in sorted(versions, key=lambda name: int(name[4:] or 0), reverse=True):
        prefix = subprocess.run(["pyenv", "prefix", version], capture_output=True, text=True).stdout.strip()
        if prefix:
            yield str(Path(prefix) / "bin" / "python2.7")


def find_python():
    """The path of a Python 2.7: the one named in PYTHON2, else one of pyenv, else one on the path."""
    if named := os.environ.get("PYTHON2"):
        if _is_python_2_7(named):
            return named
        raise Missing(f"PYTHON2={named} is no Python 2.7; name one that is, or unset it")
    for candidate in [*_pythons_of_pyenv(), "python2.7", "python2"]:
        if _is_python_2_7(candidate):
            return candidate
    raise Missing(
        "the Autobahn test suite needs Python 2.7, and there is none in PYTHON2, pyenv or PATH "
        "(pyenv install 2.7.18)"
    )


def _run(command, what):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        last_words = "\n".join(done.stdout.splitlines()[-15:])
        raise Missing(
            f"{what} failed (it needs a package index in reach, and a C compiler):\n{last_words}"
        )


def install(directory):
    """Installs the suite under `directory` unless it is there, and returns the path of its `wstest`."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = directory / "installed"
    wstest = directory / "suite" / "bin" / "wstest"
    if stamp.exists() and stamp.read_text() == wanted and wstest.exists():
        return wstest
    python = find_python()
    print(f"installing the Autobahn test suite for {python} in {directory}", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    maker = directory / "maker" / "bin"
    _run([sys.executable, "-m", "venv", maker.parent], "making an environment")
    _run([maker / "python", "-m", "pip", "install", "--quiet", VIRTUALENV], f"installing {VIRTUALENV}")
    _run([maker / "virtualenv", "--quiet", "--python", python, directory / "suite"], "making a Python 2.7 environment")
    pip = [directory / "suite" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    _run([*pip, "--requirement", REQUIREMENTS], "installing the suite")
    stamp.write_text(wanted)
    return wstest


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]))
    except Missing as missing:
        print(missing)
        sys.exit(EXIT_MISSING)

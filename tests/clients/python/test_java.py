"""Java's own HttpClient over TLS: https and wss. Java runs the program from its source."""

import shutil
import subprocess

import pytest
from certificates import Authority

from server import PATIENCE, ROOT

PROGRAM = ROOT / "tests" / "clients" / "java" / "Clients.java"


@pytest.mark.skipif(not shutil.which("java"), reason="java is not installed")
def test_java(serve, tmp_path):
    authority = Authority(tmp_path)
    authority.issue()
    server = serve(*authority.flags(), "--message-bytes-max", "1MiB", "--outbound-bytes-max", "8MiB")
    # It computes little behind its start, so the second compiler of the machine is not worth its time.
    command = ["java", "-XX:TieredStopAtLevel=1", str(PROGRAM), str(authority.file), server.secure]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "done with 2 versions of TLS and 2 of HTTP\n"
    assert server.metric("myriad_tls_broken_total") == 0

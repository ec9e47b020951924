"""The crowd against our server, and against one that knows nothing of it: the `websockets` package's."""

import json
import re
import subprocess
import sys
import threading

import pytest
from websockets.sync.server import serve as serve_elsewhere

from server import ROOT, run


@pytest.fixture
def elsewhere():
    """Starts a server whose handler is given; its port."""
    running = []

    def start(handler):
        server = serve_elsewhere(handler, "127.0.0.1", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server.socket.getsockname()[1]

    yield start
    for server in running:
        server.shutdown()


def swarm(*arguments, report, code=0):
    ended, _, log = run("swarm", *arguments, "--live", "off", "--json", str(report))
    assert ended == code, log
    return json.loads(report.read_text())


ECHO = ["--connections", "30", "--echo", "300/s", "--warmup", "500ms", "--duration", "1500ms"]


def test_echoes_of_our_server_come_back(serve, driver, tmp_path):
    server = serve()
    target = f"ws://{server.host}:{server.port}/echo"
    report = swarm(target, *ECHO, "--driver", driver, "--compression", report=tmp_path / "report.json")
    echo = report["echo"]
    assert echo["rate_per_s"] == 300
    assert echo["received"] == echo["sent"] > 0
    assert (echo["lost"], echo["errors"]) == (0, 0)
    times = echo["round_trip_ms"]
    assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["p999"] <= times["max"]


def test_echoes_of_another_server_come_back(elsewhere, driver, tmp_path):
    def handler(connection):
        for message in connection:
            assert isinstance(message, str)
            connection.send(message)

    target = f"ws://127.0.0.1:{elsewhere(handler)}/"
    report = swarm(target, *ECHO, "--driver", driver, "--echo-size", "1000", report=tmp_path / "report.json")
    echo = report["echo"]
    assert echo["received"] == echo["sent"] > 0
    assert (echo["lost"], echo["errors"]) == (0, 0)
    assert report["messages"]["payload_bytes"] == 1000 * echo["received"]


def test_a_server_that_changes_what_it_sends_back_is_found_out(elsewhere, tmp_path):
    def handler(connection):
        for message in connection:
            connection.send(message.upper())
            connection.send(f"you said {message}")

    target = f"ws://127.0.0.1:{elsewhere(handler)}/"
    # No message came back as it was sent: the load has failed, and the command with it.
    report = swarm(target, *ECHO, "--settle", "500ms", report=tmp_path / "report.json", code=1)
    assert report["echo"]["received"] == 0
    assert report["echo"]["lost"] == report["echo"]["sent"] > 0
    assert report["echo"]["errors"] == report["errors"]["echo_wrong"] > 0
    assert any("echo path" in warning for warning in report["warnings"])


HOOK_EXAMPLE = ROOT / "examples" / "publish_hook.py"


@pytest.fixture
def hooked():
    """The example server of docs/swarm.md: its port for clients and its port for pushes."""
    process = subprocess.Popen([sys.executable, HOOK_EXAMPLE, "0", "0"], stdout=subprocess.PIPE, text=True)
    yield re.findall(r"on (\d+)", process.stdout.readline())
    process.terminate()
    process.wait()


def test_a_publish_hook_of_ten_lines_is_enough(hooked, tmp_path):
    clients, hook = hooked
    report = swarm(
        f"ws://127.0.0.1:{clients}/", "--connections", "50", "--warmup", "100ms",
        "--publish", f"http://127.0.0.1:{hook}/", "--publish-body", "plain", "--pushes", "3", "--every", "100ms",
        "--threshold", "reach>=100%", "--threshold", "missed==0", report=tmp_path / "report.json",
    )
    assert [push["received"] for push in report["pushes"]] == [50, 50, 50]
    assert report["went_wrong"] is None


def test_the_page_shows_the_hook_as_it_is():
    page = (ROOT / "docs" / "swarm.md").read_text()
    [shown] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown in HOOK_EXAMPLE.read_text()
    assert len(shown.splitlines()) <= 10


def test_the_page_has_every_field_of_the_report(serve, tmp_path):
    server = serve()
    report = swarm(f"ws://{server.host}:{server.port}/echo", *ECHO, report=tmp_path / "report.json")
    page = (ROOT / "docs" / "swarm.md").read_text()
    table = page.split("## In the report")[1].split("## Kinds of errors")[0]
    fields = [*report, *(field for part in report.values() if isinstance(part, dict) for field in part)]
    missing = [field for field in fields if f"`{field}`" not in table]
    counted = {**report["errors"], **report["closes"], **report["server_said"]}
    assert set(missing) <= set(counted)

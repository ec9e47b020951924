"""A figure of the arena against a second instrument: a client that shares no code with Myriad."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import ports
from paced import REQUEST_S

HERE = Path(__file__).resolve().parent
CONNECTIONS = 60
PUSHES = 3
REQUESTS_PER_S = 20


def run_arena(folder):
    everybody = (HERE.parents[2] / "arena" / "arena.toml").read_text()
    defaults = everybody[everybody.index("\n[defaults]\n") : everybody.index("\n[[contestant]]\n")]
    start = json.dumps([sys.executable, str(HERE / "paced.py")])
    witness = folder / "witness.jsonl"
    (folder / "arena.toml").write_text(
        f"{defaults}\n[[contestant]]\nname = 'paced'\ntitle = 'Paced'\nlanguage = 'python'\nversion = '1'\n"
        f"folder = '.'\nfeatures = ['push', 'request']\nstart = {start}\nenvironment = {{ WITNESS = '{witness}' }}\n"
    )
    report = folder / "report.json"
    command = [
        os.environ["MYRIAD"], "arena", "--arena", folder, "--connections", str(CONNECTIONS), "--rounds", "1",
        "--pushes", str(PUSHES), "--idle", "0s", "--request-rate", str(REQUESTS_PER_S), "--request-duration", "1s",
        "--port", str(ports.reserve()), "--json", report,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    [row] = json.loads(report.read_text())["contestants"]
    return row, [json.loads(line) for line in witness.read_text().splitlines()]


def test_the_arena_and_an_independent_client_saw_the_same(tmp_path):
    row, witnessed = run_arena(tmp_path)
    seen = [line for line in witnessed if "handed" in line]
    assert [push["handed"] for push in seen] == [CONNECTIONS] * PUSHES
    assert row["ok"] and row["connections_held"] == CONNECTIONS and row["errors"] == 0
    # The last of the crowd got each push after the witness had it, and the crowd's clock began before the server's.
    waited_ms = [push["waited_ms"] for push in seen]
    assert row["push_last_ms"] >= statistics.median(waited_ms)
    assert max(arrival["ms"] for arrival in row["arrivals"]) >= max(waited_ms)
    # All others got it at once; who took every time for the last one's would not see that.
    assert row["push_first_ms"] <= row["push_p50_ms"] < row["push_last_ms"]
    # Each request found the whole crowd there, and took no less time than the server took for it.
    requests = [line for line in witnessed if "request" in line]
    assert requests and {request["held"] for request in requests} == {CONNECTIONS + 1}
    assert row["request_per_s"] <= len(requests) and row["request_p50_ms"] >= REQUEST_S * 1000

"""One of the server's threads stands still, as in a debugger: what the API answers meanwhile, and that it goes on afterwards."""

import contextlib
import ctypes
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ports
import pytest

from server import until

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
# Of <sys/ptrace.h>.
DETACH, SEIZE, INTERRUPT = 17, 0x4206, 0x4207
# Of <sys/wait.h>: a thread that is not a child of its own.
WAIT_ALL = 0x40000000

CONFIG = """
[channel.without_namespace]
presence = true
history_size = 10
history_ttl = "300s"
"""


def shards(process):
    """The threads of the shards."""
    folder = Path(f"/proc/{process.pid}/task")
    names = {int(task.name): (task / "comm").read_text().strip() for task in folder.iterdir()}
    return sorted(task for task, name in names.items() if "shard" in name), names


@contextlib.contextmanager
def stopped(task):
    """Stops one thread, and no other of its process."""

    def ptrace(what, argument=None):
        if LIBC.ptrace(what, task, None, argument) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {what}")

    try:
        ptrace(SEIZE)
    except PermissionError as reason:
        pytest.skip(f"threads cannot be stopped here: {reason}")
    try:
        ptrace(INTERRUPT)
        _, status = os.waitpid(task, WAIT_ALL)
        assert os.WIFSTOPPED(status)
        yield
    finally:
        ptrace(DETACH)


def test_a_shard_that_stands_still(serve, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text(CONFIG)
    # The control plane has an address of its own: connections to the common one may be the stuck shard's.
    port = ports.reserve()
    server = serve("--config", str(config), "--shards", "2", "--internal-listen", f"127.0.0.1:{port}")
    server.port = port

    def post(method, body):
        return server.request("POST", f"/api/{method}", json.dumps(body)).json()

    threads, names = shards(server.process)
    assert len(threads) == 2, names
    names = [f"c{number}" for number in range(16)]

    def codes():
        sent = post("broadcast", {"channels": names, "data": 1})["result"]["responses"]
        return [answer.get("error", {}).get("code") for answer in sent]

    assert codes() == [None] * 16
    with stopped(threads[1]):
        told = codes()
        # The homes of some channels stand still.
        assert set(told) == {None, 100}
        moving = names[told.index(None)]
        stuck = names[told.index(100)]
        with ThreadPoolExecutor(64) as pool:
            asked = [
                (method, pool.submit(post, method, body))
                for method, body in [
                    ("info", {}), ("presence", {"channel": moving}), ("channels", {}), ("connections", {}), ("history", {"channel": stuck}),
                    ("disconnect", {"user": "1"}), ("subscribe", {"user": "1", "channel": moving}), ("publish", {"channel": stuck, "data": 1}),
                    ("batch", {"commands": [{"presence": {"channel": moving}}] * 100}),
                ]
                for _ in range(4)
            ]  # fmt: skip
            for _ in range(20):
                assert post("publish", {"channel": moving, "data": 2})["result"]["offset"]
                assert post("rpc", {"method": "x"})["error"]["code"] == 104
            assert server.request("GET", "/healthz").status == 200
            for method, answer in asked:
                answer = answer.result()
                replies = answer["replies"] if method == "batch" else [answer]
                # Too many of them wait for their turns: these are told so by a status.
                assert {one["error"]["code"] for one in replies} <= {100, 106, 111, "busy"}, method
    assert codes() == [None] * 16
    assert post("info", {})["result"]["nodes"]
    # What nobody waits for any more is done all the same, and forgotten.
    until("all is answered", lambda: "result" in post("presence", {"channel": stuck}))

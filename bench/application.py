"""Runs in which an application says who connects: how fast the server asks it, and what the questions take of its memory."""

import json
import time
import urllib.request

import processes
from course import note_connected
from crowd import RunFailed, displayed
from processes import Process
from sessions import JSON_CLIENTS, PATH

READY_PATIENCE_S = 10
CONFIG = """\
[client.proxy.connect]
enabled = true
endpoint = "{url}/connect"
"""


def asked_at_connect(bench, name, kind, connections):
    """JSON clients with one subscription each connect, and an application is asked about each of them."""
    origin = f"127.0.0.1:{processes.free_ports(3)[-1]}"
    url = f"http://{origin}"
    command = [bench.application, "--listen", origin]

    def course(run, event):
        if not hasattr(run, "rss_before"):
            run.rss_before = processes.memory(run.server.pid)["rss_bytes"]
        if note_connected(run, event):
            run.figures["application"] = {
                "calls": calls(url),
                "rss_bytes_before": run.rss_before,
                "rss_bytes_peak": processes.peak_resident_bytes(run.server.pid),
            }
        return False

    def crowd_options(*_):
        return [*JSON_CLIENTS, "--channel", "bench", "--duration", "2s"]

    with Process(command, bench.out / f"{name}.application.log") as application:
        wait_until_ready(application, url)
        config = CONFIG.format(url=url)
        figures = bench.run(name, "io_uring", connections, "0", crowd_options, course, PATH, config)
    figures["commands"].insert(0, displayed(command))
    return figures | {"kind": kind}


def calls(url):
    """How often the application has said who a client is."""
    with urllib.request.urlopen(f"{url}/stats", timeout=READY_PATIENCE_S) as answer:
        return json.loads(answer.read())["calls"]


def wait_until_ready(application, url):
    deadline = time.monotonic() + READY_PATIENCE_S
    while True:
        try:
            return calls(url)
        except OSError as error:
            if application.popen.poll() is not None or time.monotonic() >= deadline:
                raise RunFailed(f"the application does not answer: {error}\n{application.last_words()}") from None
        time.sleep(0.02)

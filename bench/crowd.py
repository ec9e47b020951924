"""One measured run: a server, the crowd, and what both used."""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request

import processes
from context import ROOT
from processes import Process

READY_PATIENCE_S = 60
# Between two lines of the crowd's live report; it writes two a second.
SILENCE_S = 120
# For a program that measures beside a crowd that is held.
PROBE_PATIENCE_S = 300
# Options whose value is a file in the folder of raw results, or a process: what a page calls it.
SHOWN_AS = {
    "--json": "report.json", "--config": "myriad.toml", "--tokens": "tokens", "--server-pid": "PID",
    "--ca": "cert.pem", "--tls-certificate": "cert.pem", "--tls-key": "key.pem",
}


# Connections of the plain program for echoes, which has two processes: more than this shows the same.
ECHO_CONNECTIONS_MAX = 10_000


class RunFailed(Exception):
    """A server or a crowd failed."""


def _plain_rate_per_s(what, *command):
    """Runs a plain program. Returns its rate, when its connections are gone."""
    in_use, _ = processes.sockets()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SILENCE_S * 2)
    if done.returncode != 0:
        raise RunFailed(f"measuring plain {what} failed: {done.stderr.strip()}")
    processes.wait_until_drained(in_use)
    return json.loads(done.stdout)["rate_per_s"]


class Bench:
    """The programs that all runs start, and the folder for raw results."""

    def __init__(
        self, myriad, out, baseline=None, floor=None, baseline_processes=16, application=None, delays=None, echoes=None
    ):
        self.myriad, self.out, self.application, self.delays, self.echoes = myriad, out, application, delays, echoes
        self.baseline, self.floor, self.baseline_processes = baseline, floor, baseline_processes

    def connect_floor_per_s(self, connections):
        """Connections a second that this machine opens now, with nothing sent on them: `baseline/floor.c`."""
        return _plain_rate_per_s("connecting", self.floor, "--connections", connections, "--processes", self.baseline_processes)

    def plain_echoes_per_s(self, connections):
        """Messages a second that come back over plain TCP now, one on its way on each connection: `baseline/echoes.c`."""
        return _plain_rate_per_s("echoes", self.echoes, "--connections", min(connections, ECHO_CONNECTIONS_MAX))

    def server_command(self, kind, connections, ping_interval, ports, config=None, others=0):
        """The kinds: `baseline`, `io_uring`, `epoll`. `config` is the path of a config file. `others` connect beside the crowd."""
        # Room for probers and control connections, which count as connections too.
        room = connections + others + 1000
        if kind == "baseline":
            return [
                self.baseline, "--listen", f"127.0.0.1:{ports[0]}", "--control", f"127.0.0.1:{ports[1]}",
                "--processes", self.baseline_processes, "--connections", room,
            ]
        return [
            self.myriad, "serve", "--dev", "--listen", f"127.0.0.1:{ports[0]}", "--max-connections", room,
            "--driver", kind, "--ping-interval", ping_interval, "--drain", "1s",
            *(["--config", config] if config else []),
        ]

    def crowd_command(self, connections, ports, report, path, *options):
        """`path` is that of a WebSocket server, or a URL with PORT or TLS_PORT for the port, or a scenario file."""
        reports = ["--live", "json", "--json", report, *options]
        if path.endswith(".toml"):
            return [self.myriad, "swarm", ROOT / path, *reports]
        placed = path.replace("TLS_PORT", str(ports[1])).replace("PORT", str(ports[0]))
        target = placed if "://" in path else f"ws://127.0.0.1:{ports[0]}{path}"
        return [self.myriad, "swarm", target, "--connections", connections, *reports]

    def publish_options(self, kind, ports, pushes, every):
        url, body = f"http://127.0.0.1:{ports[0]}/api/publish", "api"
        if kind == "baseline":
            url, body = f"http://127.0.0.1:{ports[1]}/", "plain"
        return ["--publish", url, "--publish-body", body, "--pushes", pushes, "--every", every]

    def load_api(self, kind, ports):
        """Runs `api_load.py` to its end, and returns its figures. They have its command."""
        command = [sys.executable, ROOT / "bench/api_load.py", kind, f"127.0.0.1:{ports[0]}"]
        return json.loads(probe(command)) | {"command": displayed(command)}

    def ask(self, question, ports, channel, **options):
        """Runs `ask.py` to its end, and returns its figures. They have its command."""
        command = [sys.executable, ROOT / "bench/ask.py", question, f"127.0.0.1:{ports[0]}", channel]
        for name, value in options.items():
            command += [f"--{name}", value]
        return json.loads(probe(command)) | {"command": displayed(command)}

    def run(
        self, name, kind, connections, ping_interval, crowd_options, course, path="/raw?channel=bench", config=None,
        watches_server=False, server_options=lambda ports: [], others=0,
    ):
        """Starts both, hands the crowd's events to `course`, returns its figures with those all runs have.

        `crowd_options(kind, ports)` is called when the server is ready. `course(run, event)` is called for each live event
        and returns True when the run is over. `config` is the text of the server's config file, and `server_options(ports)` gives
        more of its options. So many `others` connect beside the crowd.
        With `watches_server` the crowd's report has what a message takes of the processors at both ends. The baseline's many processes are
        not watched, because looking at them costs the crowd more than looking at one.
        """
        in_use, _ = processes.sockets()
        ports = processes.free_ports(2)
        report = self.out / f"{name}.report.json"
        figures = {"kind": kind, "busy_before": round(processes.busy_share(), 3)}
        config_path = None
        if config:
            config_path = self.out / f"{name}.toml"
            config_path.write_text(config)
            figures["config"] = config
        server_command = self.server_command(kind, connections, ping_interval, ports, config_path, others)
        server_command += server_options(ports)
        with Process(server_command, self.out / f"{name}.server.log") as server:
            wait_until_ready(server, ports[1] if kind == "baseline" else ports[0], kind)
            run = Run(self, server, ports, figures)
            options = crowd_options(kind, ports)
            if watches_server and kind != "baseline":
                options = [*options, "--server-pid", server.pid]
            crowd_command = self.crowd_command(connections, ports, report, path, *options)
            with Process(crowd_command, self.out / f"{name}.crowd.log", subprocess.PIPE) as crowd:
                run.crowd = crowd
                follow(run, crowd, course)
                # The crowd writes its report after it has closed its connections.
                crowd.popen.wait(SILENCE_S)
        figures["report"] = json.loads(report.read_text())
        figures["commands"] = [displayed(server_command), displayed(crowd_command)]
        processes.wait_until_drained(in_use)
        return figures


class Run:
    """A run in progress, for its course."""

    def __init__(self, bench, server, ports, figures):
        self.bench, self.server, self.ports, self.figures = bench, server, ports, figures
        # Workers are forked before a server is ready, so that the tree does not change.
        self.pids = processes.tree(server.pid)
        self.anonymous_before = processes.anonymous_bytes(self.pids)
        self.slab_before = processes.slab_bytes()

    def cpu_seconds(self):
        return processes.cpu_seconds(self.pids)

    def metrics(self):
        """All of the server's metrics now, as text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[0]}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def sent_bytes(self):
        return metric(self.metrics(), "myriad_sent_bytes_total")

    def measure_memory(self, connected):
        connected = max(connected, 1)
        grown = processes.anonymous_bytes(self.pids) - self.anonymous_before
        self.figures["user_bytes_per_connection"] = grown / connected
        self.figures["kernel_bytes_per_connection"] = (processes.slab_bytes() - self.slab_before) / connected


def metric(metrics, name):
    """The value of a metric without labels."""
    if found := re.search(rf"^{name} (\S+)", metrics, re.M):
        return float(found[1])
    raise RunFailed(f"the server has no metric {name}")


def buckets(metrics, name):
    """A histogram without labels: pairs of an upper bound in its unit and how many values are not above it."""
    found = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)', metrics, re.M)
    if not found:
        raise RunFailed(f"the server has no histogram {name}")
    return [(float(bound), int(count)) for bound, count in found]


def probe(command):
    """Runs a program to its end beside a crowd, and returns what it wrote."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PROBE_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{displayed(command)} had not ended after {PROBE_PATIENCE_S} s") from None
    if done.returncode != 0:
        raise RunFailed(f"{displayed(command)} ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def wait_until_ready(server, port, kind):
    url = f"http://127.0.0.1:{port}/{'stats' if kind == 'baseline' else 'healthz'}"
    deadline = time.monotonic() + READY_PATIENCE_S
    while True:
        if server.popen.poll() is not None:
            raise RunFailed(f"the server ended early:\n{server.last_words()}")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200 and "listening on" in server.stderr_path.read_text():
                    return
        except OSError:
            pass
        if time.monotonic() >= deadline:
            raise RunFailed(f"the server was not ready after {READY_PATIENCE_S} s:\n{server.last_words()}")
        time.sleep(0.05)


def follow(run, crowd, course):
    """Feeds the crowd's events to the course, until that is satisfied or the crowd is done."""
    # A crowd that hangs would block the loop below forever.
    alarm = threading.Timer(SILENCE_S, crowd.popen.kill)
    alarm.start()
    told = False
    try:
        for line in crowd.popen.stdout:
            # A course may take its time, because it may measure meanwhile.
            alarm.cancel()
            event = json.loads(line)
            if event["event"] == "done":
                return
            # Only once: a second signal would end it without its report.
            if not told and course(run, event):
                told = True
                crowd.popen.terminate()
            alarm = threading.Timer(SILENCE_S, crowd.popen.kill)
            alarm.start()
    finally:
        alarm.cancel()
    raise RunFailed(f"the crowd ended early:\n{crowd.last_words()}")


def displayed(command):
    """As a person would type it in the repository: other folders left out, the target quoted."""
    words = [str(word) for word in command]
    words[0] = words[0].rsplit("/", 1)[-1]
    # A build under another name is the program that readers have.
    if words[0].startswith("myriad-"):
        words[0] = "myriad"
    shown = []
    for index, word in enumerate(words):
        if index and words[index - 1] in SHOWN_AS:
            word = SHOWN_AS[words[index - 1]]
        word = word.removeprefix(f"{ROOT}/")
        shown.append(f"'{word}'" if "?" in word else word)
    return " ".join(shown)

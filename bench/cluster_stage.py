"""The processes of a measurement: NATS servers, nodes and a crowd. All of them end with its `with` block."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import processes
from context import ROOT

sys.path.insert(0, str(ROOT / "tests" / "cluster"))

import nats  # noqa: E402
from node import KEY, Node, start_all  # noqa: E402

# The others import `nats` from here, because its folder is in the path only then.
__all__ = ["KEY", "STREAM", "Stage", "nats", "say"]

# Of channels without a namespace.
STREAM = "myriad-~"
REPLICAS_MAX = 3
# A crowd that has not ended by then is killed.
CROWD_PATIENCE_S = 300
# Connections of a node beside those of a crowd: requests, and clients that come back before the node knows that they had left.
SPARE_CONNECTIONS = 1_000


def say(text):
    """Progress goes to standard error. Standard output has figures only."""
    print(f"-- {text}", file=sys.stderr, flush=True)


class BenchNode(Node):
    """A node at a port that no client of a crowd can take.

    When a node is killed, its clients try its port again. Among 10,000 attempts, one that the kernel gave this very port for its own
    end would connect to itself.
    """

    def __init__(self, port, *arguments, **options):
        super().__init__(*arguments, **options)
        self.port = port
        self.arguments[self.arguments.index("--listen") + 1] = f"127.0.0.1:{port}"

    def publish_url(self):
        return f"http://127.0.0.1:{self.port}/api/publish"

    def resident_bytes(self):
        return processes.memory(self.process.pid)["rss_bytes"]

    def publish(self, channel, data, count=1):
        """Publishes so many times, and waits for the answers."""
        commands = [{"publish": {"channel": channel, "data": data}}] * count
        replies = self.call("batch", seconds=60, commands=commands)["replies"]
        if failed := [reply for reply in replies if "error" in reply]:
            raise RuntimeError(f"{len(failed)} of {count} publications were refused: {failed[0]}")


class Stage:
    """NATS servers, nodes, and a crowd, in a folder of their own. Without NATS servers each node is alone."""

    def __init__(self, options, servers, interest="stream"):
        self.options, self.servers, self.interest = options, servers, interest
        self.folder = Path(tempfile.mkdtemp(dir=options.folder))
        self.cluster = nats.Cluster(options.nats, self.folder, servers) if servers else None
        self.nodes = []
        self.sockets_before, _ = processes.sockets()
        # What ends everything, the last one first, also when one of them fails.
        self.ending = ExitStack()
        # A stream of a million messages is some hundred MB.
        self.ending.callback(shutil.rmtree, self.folder, ignore_errors=True)
        if self.cluster:
            self.ending.callback(self.cluster.stop)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.ending.close()
        if kind is None:
            # They would share hash buckets and slabs with those of the next measurement.
            processes.wait_until_drained(self.sockets_before)

    def start(self, count, clients=0):
        """Starts the NATS servers and so many nodes, each with room for so many clients. Returns the nodes."""
        if self.cluster:
            self.cluster.start()
        for port in processes.free_ports(count):
            self.add_node(port, clients)
        start_all(self.nodes)
        return self.nodes

    def start_one_more(self):
        """Starts a node beside the others."""
        ports = processes.free_ports(1)
        self.add_node(ports[0], 0)
        start_all(self.nodes[-1:])

    def add_node(self, port, clients):
        url = self.cluster.url() if self.cluster else None
        replicas = min(max(self.servers, 1), REPLICAS_MAX)
        # Pings to a crowd would be other work than what is measured.
        options = ["--max-connections", str(clients + SPARE_CONNECTIONS), "--ping-interval", "5m"] if clients else []
        myriad, index = self.options.myriad, len(self.nodes)
        node = BenchNode(port, myriad, self.folder, index, url, replicas, options=options, interest=self.interest)
        self.ending.callback(node.kill)
        self.nodes.append(node)

    def crowd(self, *arguments):
        """Starts a crowd. The arguments are those of `myriad swarm`."""
        crowd = Crowd(self.options.myriad, self.folder, arguments)
        self.ending.callback(crowd.stop)
        return crowd


class Crowd:
    """`myriad swarm`, and its report when it has ended."""

    def __init__(self, myriad, folder, arguments):
        self.report = folder / "report.json"
        command = [myriad, "swarm", *arguments, "--live", "json", "--json", self.report]
        self.process = processes.Process(command, folder / "crowd.log", subprocess.PIPE)
        # Reading from a crowd that hangs would have no end.
        self.alarm = threading.Timer(CROWD_PATIENCE_S, self.process.popen.kill)
        self.alarm.daemon = True
        self.alarm.start()

    def events(self):
        return map(json.loads, self.process.popen.stdout)

    def wait_until_connected(self):
        """Until every client is connected, and subscribed."""
        for event in self.events():
            if event["event"] == "phase" and event["phase"] == "connected":
                return
        raise RuntimeError(f"the crowd has ended before it was connected:\n{self.process.last_words()}")

    def wait_until_received(self, messages):
        """Until its clients have received so many messages."""
        for event in self.events():
            if event["event"] == "progress" and event["messages"] >= messages:
                return
        raise RuntimeError(f"the crowd has ended before it received {messages:,} messages:\n{self.process.last_words()}")

    def finish(self):
        """Waits for its end. Returns its report. Every client was connected."""
        for _ in self.events():
            pass
        self.process.popen.wait()
        if not self.report.exists():
            raise RuntimeError(f"the crowd has ended without a report:\n{self.process.last_words()}")
        report = json.loads(self.report.read_text())
        setup = report["setup"]
        connected, wanted = setup["connected"], setup["connections_wanted"]
        if connected != wanted:
            raise RuntimeError(f"{connected:,} of {wanted:,} clients were connected: {report['errors']}")
        return report

    def stop(self):
        self.alarm.cancel()
        self.process.stop()

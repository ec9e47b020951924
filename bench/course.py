"""What runs do while their crowd connects and pushes: courses for `Bench.run`, and parts of them."""

import json
import time

from crowd import displayed, probe


def note_connected(run, event):
    """Measures the memory of the connections when all are made. Returns whether that is now."""
    if event["event"] == "progress":
        run.connected = event["connected"]
    if event["event"] != "phase" or event["phase"] != "connected":
        return False
    run.measure_memory(run.connected)
    return True


def until_over(run, event):
    """A course that only measures the memory. The crowd ends by itself."""
    note_connected(run, event)
    return False


def through_pushes(pushes, **counters):
    """A course that measures the memory of the connections, and the growth of `counters` (functions of the run) while it
    pushes."""
    before = {}

    def course(run, event):
        figures = run.figures
        note_connected(run, event)
        if event["event"] == "phase" and event["phase"] == "pushing":
            # The publisher waits two seconds before the first push; connecting has calmed down by then.
            time.sleep(1)
            before.update({name: read(run) for name, read in counters.items()})
        elif event["event"] == "push":
            figures.setdefault("pushes", []).append(event)
            if len(figures["pushes"]) == pushes:
                figures.update({name: read(run) - before[name] for name, read in counters.items()})

    return course


def push_from_probe(bench, name, ports, path, pushes, every, *options):
    """The report of one client beside the crowd, with pushes to the channel that it listens to. It has its command."""
    report = bench.out / f"{name}.probe.json"
    origin = f"127.0.0.1:{ports[0]}"
    command = [
        bench.myriad, "swarm", f"ws://{origin}{path}", *options, "--connections", "1", "--threads", "1",
        "--live", "off", "--publish", f"http://{origin}/api/publish", "--pushes", pushes, "--every", every,
        "--json", report,
    ]
    probe(command)
    return json.loads(report.read_text()) | {"command": displayed(command)}

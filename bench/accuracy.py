"""What the crowd reports beside what a server knows that delays by a known distribution: `baseline/delays.c`."""

import json
import urllib.request

import processes
from context import ROOT
from crowd import SILENCE_S, RunFailed, displayed, probe
from processes import Process

PERCENTILES = ("p50", "p99", "p999")

# An error is none within this share of the server's figure, or within this time.
SHARE = 0.02
LEAST_MS = 0.1


def within(reported_ms, known_ms):
    """The error as a multiple of what is allowed: at most 1 is as it should be."""
    return abs(reported_ms - known_ms) / max(SHARE * known_ms, LEAST_MS)


def accuracy(bench, name, kind, connections):
    """Messages at 2,000/s that come back after 10 ms to 632 ms. `kind` is the driver of the crowd."""
    figures = {"kind": kind, "busy_before": round(processes.busy_share(), 3)}
    (port,) = processes.free_ports(1)
    report = bench.out / f"{name}.report.json"
    server_command = [bench.delays, "--listen", f"127.0.0.1:{port}"]
    with Process(server_command, bench.out / f"{name}.server.log"):
        crowd_command = [
            bench.myriad, "swarm", ROOT / "bench/accuracy.toml", "--live", "off", "--json", report,
            "--set", f"variables.server=127.0.0.1:{port}", "--connections", connections, "--driver", kind,
            "--set", "thresholds=[]",
        ]
        probe(crowd_command)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=SILENCE_S) as answer:
            known = json.load(answer)
    found = json.loads(report.read_text())
    flow = found["flows"][0]
    if not flow["sent"] == flow["complete"] == known["count"]:
        raise RunFailed(f"of {flow['sent']} messages {flow['complete']} came back, and {known['count']} were sent back")
    figures |= {"report": found, "known": known}
    for percentile in PERCENTILES:
        reported_ms, known_ms = flow["since_sent_ms"][percentile], known["held_ms"][percentile]
        print(f"{kind} {percentile}: {reported_ms:.3f} ms reported, {known_ms:.3f} ms known, "
              f"{reported_ms - known_ms:+.3f} ms or {(reported_ms / known_ms - 1) * 100:+.2f}%", flush=True)
    figures["commands"] = [displayed(server_command), displayed(crowd_command)]
    return figures

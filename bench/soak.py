#!/usr/bin/env python3
"""Holds a crowd for an hour, with churn, pushes and pings, and checks that nothing was lost and nothing grew.

    make soak                                            500,000 connections, an hour, 1% of them replaced a minute
    make soak SOAK='--connections 20k --minutes 2'       does it work? writes no page

This is no measurement of time: other programs may run on the machine meanwhile, and what they used of it is said
beside the figures. Raw results are kept in bench-out/; the exit code is 1 if anything judged did not hold.
"""

import argparse
import json
import re
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import processes
import report
from context import ROOT, context
from crowd import Bench, RunFailed, metric
from quantity import count

# What the page shows. A smaller soak is only a trial.
CONNECTIONS, MINUTES = 500_000, 60
EVERY_S = 30
SAMPLE_EVERY_S = 10
PING_INTERVAL_S = 25
# Allocators and page tables need this time to settle: 5 minutes of the hour, less of a shorter trial.
WARMUP_SHARE, WARMUP_MAX_S = 0.25, 300
DRIFT_MAX = 0.01
# Closes that the soak itself causes: clients that leave by close frame, and requests handed to the control plane.
EXPECTED_CLOSES = {"client", "handed_over"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--myriad", type=Path, default=ROOT / "target/release/myriad", help="the program to soak")
    parser.add_argument("--connections", type=count, default=CONNECTIONS, help="such as 500k")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="from the last connection on")
    parser.add_argument("--churn", type=percent, default=1.0, metavar="PERCENT", help="replaced each minute")
    parser.add_argument("--driver", choices=["io_uring", "epoll"], default="io_uring", help="of the server")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out", help="where raw results go")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/benchmarks.md", help="where the page is")
    return parser.parse_args()


def percent(text):
    value = float(text.removesuffix("%"))
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: write a share of the crowd such as 1%")
    return value


def closes(metrics):
    """Ended connections by reason, from the text of /metrics."""
    found = re.findall(r'^myriad_closes_total\{reason="(\w+)"\} (\d+)', metrics, re.M)
    return {reason: int(number) for reason, number in found}


class Sampler:
    """Samples both processes, the kernel and /metrics every ten seconds, after all clients are connected."""

    def __init__(self, run, crowd_pid):
        self.run, self.crowd_pid = run, crowd_pid
        self.started = self.due = time.monotonic()
        self.samples = []

    def look(self, progress):
        now = time.monotonic()
        if now < self.due:
            return
        # Samples that were missed while the machine was paused are not made up for.
        self.due = max(self.due + SAMPLE_EVERY_S, now)
        metrics = self.run.metrics()
        busy, total = processes.processor_ticks()
        in_use, waiting = processes.sockets()
        self.samples.append({
            "at_s": round(now - self.started, 1),
            "server": processes.memory(self.run.server.pid),
            "crowd": processes.memory(self.crowd_pid),
            "server_cpu_s": processes.cpu_seconds([self.run.server.pid]),
            "crowd_cpu_s": processes.cpu_seconds([self.crowd_pid]),
            "machine_busy_ticks": busy,
            "machine_ticks": total,
            "slab_bytes": processes.slab_bytes(),
            "sockets": in_use,
            "time_wait": waiting,
            "connections": int(metric(metrics, "myriad_connections")),
            "buffered_bytes": int(metric(metrics, "myriad_buffered_bytes")),
            "closes": closes(metrics),
            **{name: progress[name] for name in ("connected", "connecting", "churned", "reconnected", "lost")},
        })


def soak(bench, options):
    """Makes the run and returns its figures."""
    sampler = None

    def course(run, event):
        nonlocal sampler
        if event["event"] == "phase" and event["phase"] == "pushing":
            run.measure_memory(options.connections)
            sampler = Sampler(run, run.crowd.pid)
            print(f"connected after {event['elapsed_s']:.1f} s", flush=True)
        elif event["event"] == "phase" and event["phase"] == "draining":
            sampler.finished = True
        elif event["event"] == "push":
            print(
                f"push {event['sequence']}: {event['received']:,} of {event['expected']:,} "
                f"({event['churned']} left before it arrived), last after {event['last_ms'] or 0:.0f} ms", flush=True,
            )
        elif event["event"] == "progress" and sampler and not getattr(sampler, "finished", False):
            sampler.look(event)
        return False

    def crowd_options(kind, ports):
        return [
            # Not at full speed: the first connections must get their pongs in time meanwhile.
            "--connect-rate", "20k", "--handshake-timeout", "60s", "--churn", f"{options.churn:g}%/m", "--close", "orderly",
            "--duration", f"{round(options.minutes * 60)}s",
            "--publish", f"http://127.0.0.1:{ports[0]}/api/publish", "--every", f"{EVERY_S}s",
        ]

    figures = bench.run(
        "soak", options.driver, options.connections, f"{PING_INTERVAL_S}s", crowd_options, course
    )
    figures["samples"] = sampler.samples
    return figures


def settled(samples):
    """The samples after the warm-up."""
    warmup_s = min(samples[-1]["at_s"] * WARMUP_SHARE, WARMUP_MAX_S)
    return [sample for sample in samples if sample["at_s"] >= warmup_s]


def drift(samples, value):
    """The growth from the median of the first tenth to that of the last tenth, as a share."""
    tenth = max(len(samples) // 10, 1)
    first = statistics.median(value(sample) for sample in samples[:tenth])
    last = statistics.median(value(sample) for sample in samples[-tenth:])
    return (last - first) / first


def judge(figures, options):
    """A list of checks, each with its name, its target, the figure, and whether the target holds."""
    result, samples = figures["report"], figures["samples"]
    churn, messages, pushes = result["churn"], result["messages"], result["pushes"]
    checks = []

    def check(name, target, seen, holds):
        checks.append({"name": name, "target": target, "seen": seen, "holds": bool(holds)})

    check("the end", "as planned", result["outcome"], result["outcome"] == "finished")
    check("clients connected", f"{options.connections:,}", f"{result['setup']['connected']:,}",
          result["setup"]["connected"] == options.connections)
    check("connections lost", "0", f"{churn['lost']:,}", churn["lost"] == 0)
    errors = {**result["errors"], **{f"closed with {code}": n for code, n in result["closes"].items()}}
    check("errors of any other kind", "none", kinds(errors), not errors)
    # The share of the crowd times the minutes. Some of the last second may be missing.
    wanted = options.connections * options.churn / 100 * options.minutes
    check("clients that left on purpose", f"about {wanted:,.0f}", f"{churn['churned']:,}",
          abs(churn["churned"] - wanted) <= max(0.02 * wanted, 5))
    # Replacements of the last clients that left are still connecting.
    under_way = churn["churned"] - churn["reconnected"]
    check("of these, replaced", "all except those of the last second", f"{churn['reconnected']:,}",
          churn["given_up"] == 0 and under_way <= max(options.connections * options.churn / 100 / 60 * 2, 5))
    ended = {reason: n - samples[0]["closes"].get(reason, 0) for reason, n in samples[-1]["closes"].items()}
    other = {reason: n for reason, n in ended.items() if n and reason not in EXPECTED_CLOSES}
    # A client that waits 5 s for the answer to its close frame resets the connection and reports it as impatient. That
    # happens on a machine that is paused for a while. The server counts it as any other reset.
    if other.get("reset", 0) <= churn["impatient"]:
        other.pop("reset", None)
    check("connections that ended without their client's close frame", "none", kinds(other), not other)
    check("pushes", f"one every {EVERY_S} s", f"{len(pushes):,}",
          len(pushes) >= options.minutes * 60 // EVERY_S - 1)
    reach = min((push["reach"] or 0 for push in pushes), default=0)
    check("reach of each push", "100%", f"at least {reach:.4%}", reach == 1)
    for name, field in (("missing", "gaps"), ("repeated", "duplicates"), ("out of order", "overtaken"),
                        ("late", "late"), ("not asked for", "unexpected")):
        check(f"publications {name}", "0", f"{messages[field]:,}", messages[field] == 0)
    # Each connection is pinged once an interval, the first time within one interval. A replaced connection starts again.
    floor = options.connections * max(options.minutes * 60 / PING_INTERVAL_S - 1, 0) * 0.95
    check("pings answered", f"at least {floor:,.0f}", f"{result['pings']['answered']:,}",
          result["pings"]["answered"] >= floor)
    grown = drift(settled(samples), lambda sample: sample["server"]["rss_bytes"])
    check("resident memory of the server, last tenth against first", f"under {DRIFT_MAX:.0%} more", f"{grown:+.2%}",
          grown < DRIFT_MAX)
    return checks


def kinds(counts):
    return ", ".join(f"{kind} {number:,}" for kind, number in counts.items()) or "none"


def others_share(samples):
    """The share of the machine that programs other than server and crowd used."""
    first, last = samples[0], samples[-1]
    total = (last["machine_ticks"] - first["machine_ticks"]) / processes.CLOCK_TICKS_PER_S
    busy = (last["machine_busy_ticks"] - first["machine_busy_ticks"]) / processes.CLOCK_TICKS_PER_S
    own = sum(last[name] - first[name] for name in ("server_cpu_s", "crowd_cpu_s"))
    return max(busy - own, 0) / max(total, 1)


def main():
    options = arguments()
    if not options.myriad.exists():
        sys.exit(f"{options.myriad} does not exist. Build it: cargo build --release")
    trial = (options.connections, options.minutes) != (CONNECTIONS, MINUTES)
    out = options.out / "trial" if trial else options.out
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    where = context()
    bench = Bench(options.myriad.resolve(), out)
    try:
        figures = soak(bench, options)
    except (RunFailed, TimeoutError) as failure:
        sys.exit(f"The soak failed: {failure}")
    figures["round"] = 0
    figures["minutes"], figures["churn_percent_per_min"] = options.minutes, options.churn
    figures["checks"] = judge(figures, options)
    figures["others_share"] = others_share(figures["samples"])
    for memory in ("rss_bytes", "anonymous_bytes", "pss_bytes"):
        for who in ("server", "crowd"):
            figures[f"{who}_{memory}_drift"] = drift(settled(figures["samples"]), lambda s: s[who][memory])
    result = {"scenario": "soak", "connections": options.connections, "context": where, "runs": [figures]}
    (out / "soak.scenario.json").write_text(json.dumps(result, indent=1) + "\n")
    for check in figures["checks"]:
        mark = "ok  " if check["holds"] else "FAIL"
        print(f"{mark}  {check['name']}: {check['seen']} (wanted: {check['target']})")
    # An interrupted soak does not count.
    if not trial and figures["report"]["outcome"] == "finished":
        report.write(out, options.page)
        print(f"Wrote {options.page}.")
    return 0 if all(check["holds"] for check in figures["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())

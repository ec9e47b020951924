"""docs/benchmarks.md, made from the JSON files of all scenarios measured so far."""

import json
import statistics

import rows

HEAD = """# Benchmarks

Written by `make bench`; do not edit by hand. Server and crowd share the machine: every figure contains the cost of
both ends. The baseline is `bench/baseline/push.c`, a plain epoll program with one `send()` per connection and no
protocol beyond the upgrade, run between the others with the same crowd. The *floor* under connecting is
`bench/baseline/floor.c`: the same number of connections with nothing said on them. A ratio is taken per round, against the
baseline of the same round; the median of the rounds is shown, with the lowest and the highest. A round in which
somebody was not connected or not reached does not count.
"""


def write(directory, path):
    """From every scenario's file in `directory` to the page at `path`."""
    results = {}
    for file in sorted(directory.glob("*.scenario.json")):
        result = json.loads(file.read_text())
        results[result["scenario"]] = result
    path.write_text(page(results))


def page(results):
    parts = [HEAD, _machines(results), "## Targets\n", _targets(results)]
    for row_scenario in dict.fromkeys(row.scenario for row in rows.ROWS):
        if row_scenario in results:
            parts.append(_scenario(results[row_scenario]))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _machines(results):
    """One line where all was measured in the same place, one per scenario otherwise."""
    places = {}
    for name, result in results.items():
        context = result["context"]
        place = (
            f"{context['cores']} cores ({context['processor']}), {context['memory']}, Linux {context['kernel']}, "
            f"descriptor limit {context['descriptors']}, commit {context['commit']}, {context['date']}"
        )
        places.setdefault(place, []).append(name)
    lines = [f"- {place}" + ("" if len(places) == 1 else f": {', '.join(names)}") for place, names in places.items()]
    return "Measured on:\n\n" + "\n".join(lines)


def _targets(results):
    lines = ["| | target | measured | reached |", "| --- | --- | --- | --- |"]
    for row in rows.ROWS:
        outcome = row.outcome(results[row.scenario]["runs"]) if row.scenario in results else None
        if outcome is None:
            # Also when every round was invalid: then the section below shows why.
            measured, reached = "not measured", ""
        else:
            measured, reached = outcome.measured, outcome.reached
        lines.append(f"| {row.title} | {row.target} | {measured} | {reached} |")
    return "\n".join(lines)


def _scenario(result):
    """Its commands, and a line per run."""
    runs = result["runs"]
    name = result["scenario"]
    parts = [f"## {name}\n"]
    parts.append(f"{result['connections']:,} connections. `make bench BENCH='--only {name}'` runs:\n")
    parts.append("```sh")
    for kind in dict.fromkeys(run["kind"] for run in runs):
        parts.extend(rows.of_kind(runs, kind)[0]["commands"])
    parts.append("```\n")
    parts.append(
        "| round | server | connected in | setup rate | user space | kernel, both ends | "
        "publish to last | CPU per delivery | other |"
    )
    parts.append("| --- " * 9 + "|")
    parts.extend(_run_line(run) for run in runs)
    warnings = sorted({warning for run in runs for warning in run["report"]["warnings"]})
    if warnings:
        parts.append("\nThe crowd's own warnings:\n")
        parts.extend(f"- {warning}" for warning in warnings)
    return "\n".join(parts)


def _run_line(run):
    setup = run["report"]["setup"]
    cells = [str(run["round"] + 1), run["kind"], rows.seconds(setup["elapsed_s"]), rows.per_second(setup["rate_per_s"])]
    cells.append(rows.byte_count(run["user_bytes_per_connection"]) if "user_bytes_per_connection" in run else "")
    kernel = run.get("kernel_bytes_per_connection")
    cells.append(f"{kernel / 1000:.2f} KB" if kernel else "")
    times = [push["last_ms"] for push in run.get("pushes", []) if push["last_ms"] is not None]
    if times:
        cells.append(f"{statistics.median(times) / 1000:.2f} s ({min(times) / 1000:.2f} to {max(times) / 1000:.2f})")
    else:
        cells.append("")
    cells.append(f"{rows.cpu_per_delivery_us(run):.2f} us" if "server_cpu_s" in run and times else "")
    cells.append(_other(run))
    return "| " + " | ".join(cells) + " |"


def _other(run):
    notes = []
    if not rows.whole(run):
        notes.append("does not count: not everybody was connected or reached")
    if "connect_floor_per_s" in run:
        floor = rows.per_second(run["connect_floor_per_s"])
        notes.append(f"connects at {rows.setup_share_of_floor(run):.2f} of the floor of {floor}")
    if "server_cpu_share" in run:
        notes.append(f"server CPU {rows.share(run['server_cpu_share'])} of a core")
    if "probe" in run:
        times = run["probe"]["fanout"]["overall"]
        notes.append(f"p50 {rows.milliseconds(times['p50_ms'])}, p99 {rows.milliseconds(times['p99_ms'])}")
    if run["busy_before"] > 0.1:
        notes.append(f"machine {rows.share(run['busy_before'])} busy before")
    return "; ".join(notes)

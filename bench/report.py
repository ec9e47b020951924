"""Makes docs/benchmarks.md from the JSON files of all scenarios measured so far.

A scenario without a file was measured elsewhere. The page keeps its section, its place of measurement and its rows in
the table of targets.
"""

import json
import statistics

import quantity
import rows
import secured
from earlier import Earlier

HEAD = """# Benchmarks

`make bench` writes this page; do not edit it by hand. Server and crowd share the machine, so every figure contains the cost of
both ends. Sizes are in KiB, MiB and GiB (powers of 1,024). Sections that say KB, MB or GB were measured before, and mean
powers of 1,000.

* The *baseline* is `bench/baseline/push.c`, a plain epoll program with one `send()` per connection and no protocol beyond the
  upgrade. It runs between the other servers, under the same crowd.
* The *floor* of connecting is `bench/baseline/floor.c`: the same number of connections on which nothing is sent.
* The *plain program* for messages that come back is `bench/baseline/echoes.c`: two processes with epoll, TCP without a protocol,
  one message of 64 bytes on its way on each connection. Where several are on their way, as in our crowd, they share reads and sends.
* *Handshakes in memory* are those of `crates/tls/examples/handshakes.rs`: both ends, rustls alone, all cores, no sockets. There the client
  checks the chain of certificates each time; the crowd does so once a minute.
* A *ratio* compares a server with the baseline of the same round. The tables show the median of the rounds, with the lowest and
  the highest.
* A round does not count if a client was not connected or not reached.
* *Never* stands for the time of what did not happen in full: a publication did not reach everybody, or a client did not recover.
  Where clients publish or recover, a client that was not connected is such a case, and the round counts.
"""


def write(directory, path):
    """Reads every scenario's file in `directory` and writes the page at `path`."""
    results = {}
    for file in sorted(directory.glob("*.scenario.json")):
        result = json.loads(file.read_text())
        results[result["scenario"]] = result
    earlier = Earlier.read(path.read_text()) if path.exists() else Earlier()
    path.write_text(page(results, earlier))


def page(results, earlier=Earlier()):
    parts = [HEAD, _machines(results, earlier), "## Targets\n", _targets(results, earlier)]
    for scenario in dict.fromkeys(row.scenario for row in rows.ROWS):
        if scenario in results:
            section = _soak if scenario == "soak" else _scenario
            parts.append(section(results[scenario]))
        elif scenario in earlier.sections:
            parts.append(earlier.sections[scenario])
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _machines(results, earlier):
    """One line for each place of measurement, with its scenarios if there are several places."""
    places = {}
    for name, place in earlier.places.items():
        if name not in results:
            places.setdefault(place, []).append(name)
    for name, result in results.items():
        context = result["context"]
        place = (
            f"{context['cores']} cores ({context['processor']}), {context['memory']}, Linux {context['kernel']}, "
            f"descriptor limit {context['descriptors']}, commit {context['commit']}, {context['date']}"
        )
        places.setdefault(place, []).append(name)
    lines = [f"- {place}" + ("" if len(places) == 1 else f": {', '.join(names)}") for place, names in places.items()]
    return "Measured on:\n\n" + "\n".join(lines)


def _targets(results, earlier):
    lines = ["| | target | measured | reached |", "| --- | --- | --- | --- |"]
    for row in rows.ROWS:
        kept = earlier.targets.get((row.title, row.target))
        if row.scenario not in results and row.scenario in earlier.sections and kept:
            lines.append(kept)
            continue
        outcome = row.outcome(results[row.scenario]["runs"]) if row.scenario in results else None
        if outcome is None:
            # No outcome either if every round was invalid: the section below shows why.
            measured, reached = "not measured", ""
        else:
            measured, reached = outcome.measured, outcome.reached
        lines.append(f"| {row.title} | {row.target} | {measured} | {reached} |")
    return "\n".join(lines)


def _scenario(result):
    """A scenario's commands, and a line for each run."""
    runs = result["runs"]
    name = result["scenario"]
    parts = [f"## {name}\n"]
    parts.append(f"{result['connections']:,} connections. `make bench BENCH='--only {name}'` runs:\n")
    parts.append("```sh")
    for kind in dict.fromkeys(run["kind"] for run in runs):
        parts.extend(rows.of_kind(runs, kind)[0]["commands"])
    parts.append("```\n")
    if runs and "config" in runs[0]:
        parts.extend(["The server's `myriad.toml`:\n", "```toml", runs[0]["config"] + "```\n"])
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


def _soak(result):
    """The soak's checks, and the state after every tenth of its time."""
    [run] = result["runs"]
    parts = ["## soak\n"]
    parts.append(
        f"{result['connections']:,} connections for {run['minutes']:g} minutes, {run['churn_percent_per_min']:g}% of "
        "them replaced each minute, by a close frame from the client. `make soak` runs:\n"
    )
    parts.extend(["```sh", *run["commands"], "```\n"])
    parts.extend(["| | must be | was | holds |", "| --- | --- | --- | --- |"])
    for check in run["checks"]:
        parts.append(f"| {check['name']} | {check['target']} | {check['seen']} | {'yes' if check['holds'] else 'no'} |")
    parts.append("\nThe state over time:\n")
    parts.append(
        "| at | connections | replaced so far | server, resident | crowd, resident | server's buffers | "
        "kernel slabs, whole machine |"
    )
    parts.append("| --- " * 7 + "|")
    samples = run["samples"]
    for place in sorted({round(tenth * (len(samples) - 1) / 10) for tenth in range(11)}):
        sample = samples[place]
        parts.append(
            f"| {sample['at_s'] / 60:.1f} min | {sample['connections']:,} | {sample['reconnected']:,} | "
            f"{quantity.size(sample['server']['rss_bytes'])} | {quantity.size(sample['crowd']['rss_bytes'])} | "
            f"{sample['buffered_bytes']:,} B | {quantity.size(sample['slab_bytes'])} |"
        )
    parts.append("\n" + _soak_notes(run))
    return "\n".join(parts)


def _soak_notes(run):
    pushes = [push["last_ms"] for push in run["report"]["pushes"] if push["last_ms"] is not None]
    churned = sum(push["churned"] for push in run["report"]["pushes"])
    hours = run["samples"][-1]["at_s"] - run["samples"][0]["at_s"]
    shares = [
        (run["samples"][-1][f"{who}_cpu_s"] - run["samples"][0][f"{who}_cpu_s"]) / hours for who in ("server", "crowd")
    ]
    return (
        "A client that leaves on purpose between the publication of a push and its arrival is not expected to receive it "
        f"({churned:,} times in all pushes). A client that joins after the publication and still receives it is not counted "
        f"({run['report']['messages']['replayed']:,} times). Drift compares the medians of the first and the last tenth of "
        "the samples, one every ten seconds, after a warm-up of 5 minutes: server "
        f"{run['server_rss_bytes_drift']:+.2%} resident, {run['server_anonymous_bytes_drift']:+.2%} private; crowd "
        f"{run['crowd_rss_bytes_drift']:+.2%} and {run['crowd_anonymous_bytes_drift']:+.2%}. The server used "
        f"{rows.share(shares[0])} of a core, the crowd {rows.share(shares[1])}. The soak does not measure speed, because other "
        f"programs used {rows.share(run['others_share'])} of the machine meanwhile. Beside them, pushes took "
        f"{statistics.median(pushes) / 1000:.2f} s to the last client (median; the slowest {max(pushes) / 1000:.2f} s)."
    )


def _run_line(run):
    setup = run["report"]["setup"]
    cells = [str(run["round"] + 1), run["kind"], rows.seconds(setup["elapsed_s"]), rows.per_second(setup["rate_per_s"])]
    cells.append(rows.byte_count(run["user_bytes_per_connection"]) if "user_bytes_per_connection" in run else "")
    kernel = run.get("kernel_bytes_per_connection")
    total = kernel * setup["connected"] if kernel else 0
    cells.append(f"{quantity.size(kernel)}, {quantity.size(total)} in all" if kernel else "")
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
        why = "a client was not connected or not reached"
        notes.append(why if rows.fails_without_all(run) else f"does not count: {why}")
    if "connect_floor_per_s" in run:
        floor = rows.per_second(run["connect_floor_per_s"])
        notes.append(f"connects at {rows.setup_share_of_floor(run):.2f} of the floor of {floor}")
    if "handshakes_per_s" in run:
        floor = rows.per_second(run["handshakes_per_s"])
        notes.append(f"connects at {rows.setup_share_of_handshakes(run):.2f} of {floor}, the handshakes in memory")
    if "storm" in run:
        storm = run["storm"]
        notes.append(f"{storm['connected']:,} clients came within {rows.seconds(storm['elapsed_s'])}")
    if plain := run.get("plain_echoes_per_s"):
        notes.append(f"the plain program had {rows.per_second(plain)} echoes before, which are twice as many sends")
    if run["kind"] in secured.STORM_KINDS:
        notes.append(f"p99 {rows.milliseconds(rows.push_p99_ms(run))}")
    if "server_cpu_s" in run:
        notes.append(f"server CPU {run['server_cpu_s']:.1f} s for {len(run['pushes'])} pushes")
    if "server_cpu_share" in run:
        notes.append(f"server CPU {rows.share(run['server_cpu_share'])} of a core")
    if "pushes" not in run:
        notes += push_notes(run)
    notes += session_notes(run)
    notes += cpu_notes(run)
    if run["busy_before"] > 0.1:
        notes.append(f"machine {rows.share(run['busy_before'])} busy before")
    return "; ".join(notes)


def push_notes(run):
    """How long the pushes took that the crowd made, or the probe beside it."""
    notes = []
    # To a crowd that makes no pushes, those of the probe are foreign.
    fanout = run["report"].get("fanout")
    if fanout and fanout["origin"] == "own":
        notes.append(f"{fanout['pushes']:,} pushes, reach {fanout['reach'] or 0:.2%}, {_push_times(fanout)}")
    if "probe" in run:
        notes.append(_push_times(run["probe"]["fanout"]))
    return notes


def _push_times(fanout):
    return rows.times(fanout["overall"]["p50_ms"], fanout["overall"]["p99_ms"])


def session_notes(run):
    """What clients with sessions did, beside what all runs show."""
    notes = []
    if "missed_each" in run:
        session = run["report"]["session"]
        notes.append(
            f"{session['recovered']:,} recovered {session['recovered_publications']:,} publications, "
            f"{session['unrecovered']:,} did not"
        )
    for question, asked in run.get("asked", {}).items():
        size, times = quantity.size(asked["answer_bytes"]), asked["round_trip_ms"]
        notes.append(f"{question}: {asked['requests']:,} answers of {size}, {rows.times(times['p50'], times['p99'])}")
    if load := run["report"].get("client_publish"):
        notes += _client_publish_notes(load)
    for flow in run["report"].get("flows") or []:
        notes.append(_flow_note(flow))
    if known := run.get("known"):
        reported = run["report"]["flows"][0]["since_sent_ms"]
        pairs = (f"{name} {reported[name]:.3f} ms of {ms:.3f} ms" for name, ms in known["held_ms"].items())
        notes.append(f"reported of known: {', '.join(pairs)}")
    if echo := run["report"].get("echo"):
        times = rows.times(echo["round_trip_ms"]["p50"], echo["round_trip_ms"]["p99"])
        notes.append(f"{echo['received']:,} messages came back, {rows.per_second(echo['received_per_s'])}, {times}")
    if http := run["report"].get("http"):
        notes.append(_http_note(http))
    if "application" in run:
        asked = run["application"]
        before, peak = quantity.size(asked["rss_bytes_before"]), quantity.size(asked["rss_bytes_peak"])
        notes.append(f"{asked['calls']:,} calls, resident {before} before and {peak} at the peak")
    if "others" in run:
        notes.append(f"{run['others']['received']:,} of {run['others']['expected']:,} to the channel's other members")
    return notes


def cpu_notes(run):
    """What a message takes of the processors at both ends, as the crowd has measured it."""
    both = rows.both_cpu_us(run)
    return [f"a message takes {both[0]:.2f} us of the generator and {both[1]:.2f} us of the server"] if both else []


def _flow_note(flow):
    times = rows.times(flow["since_due_ms"]["p50"], flow["since_due_ms"]["p99"])
    rate = rows.per_second(flow["received_per_s"])
    return f"{flow['name']}: {flow['received']:,} of {flow['expected']:,} deliveries, {rate}, {times}"


def _http_note(http):
    note = f"{http['requests']:,} requests, {http['reopened']:,} connections replaced"
    if held := http.get("held"):
        note += f", {http['answers']:,} polls answered, best second {rows.per_second(http['peak_answers_per_s'] or 0)}"
        if held.get("mean_ms") is not None:
            low, high = (held[name] / 1000 for name in ("shortest_ms", "longest_ms"))
            note += f", {http['timeouts']:,} timed out after {low:.2f} to {high:.2f} s, mean {held['mean_ms'] / 1000:.3f} s"
    return note


def _client_publish_notes(load):
    delivery = load["delivery"]
    notes = [f"clients publish {rows.per_second(load['rate_per_s'])}"]
    for what, figures, times in (
        ("answers", load, load["round_trip_ms"]), ("deliveries", delivery, delivery["delivery_ms"]),
    ):
        rate, shown = rows.per_second(figures["received_per_s"]), rows.times(times["p50"], times["p99"])
        notes.append(f"{figures['received']:,} {what}, {rate}, {shown}")
    notes += [f"{load[what]:,} {what}" for what in ("lost", "errors", "unsent") if load[what]]
    if delivery["expected"] != delivery["received"]:
        expected = "nobody knows how many" if delivery["expected"] is None else f"{delivery['expected']:,}"
        notes.append(f"{expected} deliveries expected")
    return notes

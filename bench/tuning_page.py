"""docs/tuning.md, made from the rounds measured so far."""

import json
import re
import statistics

import effects
from settings import SETTINGS

HEAD = """# Tuning

Written by `make bench-tuning`; do not edit by hand. What are the settings worth that people change for many
connections? Each was measured between runs with defaults, in a network namespace of its own, with `myriad serve`
(io_uring) and `myriad swarm` on the two ends of the loopback: it connects, subscribes, pushes to everybody.

A figure is the setting's over the mean of the defaults measured just before and after it; the median of the rounds,
with the lowest and the highest. An effect is claimed only where every round shows it in the same direction and beyond
what two runs with the same defaults differ by, and its median is beyond twice that and 5%: with so many settings some
would look good by chance; a recommendation takes three rounds. A run that began while something else used the machine
does not count. What needs a real network (bandwidth, loss, distance) cannot show here.
"""

LIMITS_TITLE = "## Limits, before and after"
LIMITS = f"""{LIMITS_TITLE}

The settings above make things faster or slower. Those that `myriad doctor --fix` changes are limits: beyond them
connections fail, wait or are lost, and a time says nothing of that. So each was set low (the whole machine's are left as
they are), doctor was asked where it ends, a program ran into it; then it was set to what doctor would set it to for the
number wanted, and the program ran again. A setting of which the second run gets no further has no place in `--fix`.
Measured by `make bench-tuning TUNING='--limits'`.
"""


def write(directory, path):
    """From every round's file in `directory` to the page at `path`; a size measured elsewhere keeps its section."""
    by_size = {}
    for file in sorted(directory.glob("*.round.json")):
        result = json.loads(file.read_text())
        by_size.setdefault(result["connections"], []).append(result)
    text = path.read_text() if path.exists() else ""
    limits = directory / "limits.json"
    limits = limits_section(json.loads(limits.read_text())) if limits.exists() else earlier_limits(text)
    path.write_text(page(by_size, earlier_sections(text), limits))


def earlier_sections(text):
    """The sections of a page by their number of connections."""
    sections = re.findall(r"^(## ([\d,]+) connections\n.*?)(?=^## |\Z)", text, re.M | re.S)
    return {int(connections.replace(",", "")): section for section, connections in sections}


def earlier_limits(text):
    """The section on limits as the page has it."""
    found = re.search(rf"^{LIMITS_TITLE}\n.*?(?=^## |\Z)", text, re.M | re.S)
    return found[0] if found else ""


def page(by_size, earlier=(), limits=""):
    """`by_size`: the rounds of each number of connections; `earlier`: what an earlier page says of others; `limits`: that section."""
    sections = dict(earlier) | {connections: _section(connections, results) for connections, results in by_size.items()}
    parts = [HEAD, *(section for _, section in sorted(sections.items())), limits]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def limits_section(result):
    """From `limits.json`: a row for each setting that was measured, and why others were not."""
    rows = list(result["rows"].values())
    parts = [LIMITS, _places(rows), ""]
    parts.append("| setting | what is counted | before | doctor says | happened | as doctor sets it | of those wanted |")
    parts.append("| --- " * 7 + "|")
    for row in rows:
        foretold = "" if row["foretold"] is None else f"{row['foretold']:,}"
        parts.append(
            f"| {row['setting']} | {row['run']} | {row['before']} | {foretold} | {row['happened']:,} | {row['after']} | "
            f"{row['happened_after']:,} of {row['wanted']:,} |"
        )
    if result["skipped"]:
        missing = "; ".join(f"{name} ({why})" for name, why in result["skipped"].items())
        parts.extend(["", f"Not measured: {missing}."])
    return "\n".join(parts)


def _section(connections, results):
    rounds = [result["runs"] for result in results]
    parts = [f"## {connections:,} connections\n", _places(results), "", _defaults(rounds), ""]
    measured = [setting for setting in SETTINGS if effects.verdict(rounds, setting.name)[0] != "not measured"]
    parts.append("| setting | value | " + " | ".join(metric.name for metric in effects.METRICS) + " | verdict |")
    parts.append("| --- " * (len(effects.METRICS) + 3) + "|")
    parts.extend(_line(rounds, setting) for setting in measured)
    recommended = [setting.name for setting in measured if effects.verdict(rounds, setting.name)[1]]
    decided = [setting for setting in measured if not effects.verdict(rounds, setting.name)[0].startswith("one round")]
    others = [setting for setting in decided if setting.name not in recommended]
    parts.append("")
    parts.append(f"**Recommended:** {', '.join(recommended) or 'none of them'}.")
    if others:
        parts.append(f"**Not recommended here:** {'; '.join(f'{s.name} ({s.said})' for s in others)}.")
    missing = [setting for setting in SETTINGS if setting not in measured]
    if missing:
        parts.append("")
        parts.append("Not measured: " + "; ".join(_missing(setting, results) for setting in missing) + ".")
    parts.append("")
    parts.append(_commands(connections, rounds))
    return "\n".join(parts)


def _missing(setting, results):
    why = next((result["skipped"][setting.name] for result in results if setting.name in result["skipped"]), None)
    if why is None and setting.machine:
        why = "the whole machine's, with `--machine`"
    return setting.name + (f" ({why})" if why else "")


def _places(results):
    places = []
    for result in results:
        context = result["context"]
        place = (
            f"{context['cores']} cores ({context['processor']}), {context['memory']}, Linux {context['kernel']}, "
            f"commit {context['commit']}, {context['date']}"
        )
        if place not in places:
            places.append(place)
    return "Measured on:\n\n" + "\n".join(f"- {place}" for place in places)


def _defaults(rounds):
    runs = [run for found in rounds for run in found if run["setting"] == "defaults" and effects.counts(run)]
    if not runs:
        return "No run with defaults counts: in each the machine was busy with something else, or somebody was not reached."
    shown = [
        f"- {metric.name}: {metric.shown(statistics.median(metric.value(run) for run in runs))}; two runs in a row differ "
        f"by {effects.noise(rounds, metric):.0%}"
        for metric in effects.METRICS
    ]
    return f"With defaults, the median of {len(runs)} runs:\n\n" + "\n".join(shown)


def _line(rounds, setting):
    run = next(run for runs in rounds for run in runs if run["setting"] == setting.name)
    value = "; ".join(f"{name} {before} -> {after}" for name, (before, after) in run["changed"].items())
    cells = [_cell(effects.ratios(rounds, setting.name, metric)) for metric in effects.METRICS]
    return f"| {setting.name} | {value} | {' | '.join(cells)} | {effects.verdict(rounds, setting.name)[0]} |"


def _cell(ratios):
    if not ratios:
        return ""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _commands(connections, rounds):
    """What one run was, as a person would type it."""
    size = "" if connections == 100_000 else f" TUNING='--connections {connections}'"
    commands = next(run["commands"] for runs in rounds for run in runs)
    return "\n".join([f"`make bench-tuning{size}` runs, for each setting:", "", "```sh", *commands, "```"])

"""Makes docs/tuning.md from the rounds measured so far."""

import json
import re
import statistics

import effects
from settings import SETTINGS

HEAD = """# Tuning

`make bench-tuning` writes this page; do not edit it by hand. It measures the kernel settings that people change for many
connections. Each setting is measured between runs with defaults, in a network namespace of its own. `myriad serve` (io_uring) and
`myriad swarm` are the two ends of the loopback: the crowd connects and subscribes, and each push goes to all clients.

A figure is the ratio of the setting to the mean of the defaults measured just before and after it. The tables show the median of
the rounds, with the lowest and the highest. Among so many settings some would look good by chance, so an effect is claimed only if

* every round shows it in the same direction, and larger than the difference of two runs with defaults;
* the median is larger than twice that difference, and larger than 5%.

A recommendation needs three rounds. A run does not count if other work used the machine when it began. Effects that need a real
network (bandwidth, loss, distance) cannot show here.
"""

LIMITS_TITLE = "## Limits, before and after"
LIMITS = f"""{LIMITS_TITLE}

The settings above make things faster or slower. `myriad doctor --fix` changes limits: beyond a limit, connections fail, wait or
are lost, and a time does not show that. So each limit is measured in two runs:

1. The limit is set low (limits of the whole machine stay as they are). Doctor predicts where it ends, and a program runs into it.
2. The limit is set to doctor's value for the wanted number, and the program runs again.

If the second run gets no further than the first, the setting does not belong in `--fix`. The command is
`make bench-tuning TUNING='--limits'`.
"""


def write(directory, path):
    """Reads every round's file in `directory` and writes the page at `path`. A size measured elsewhere keeps its section."""
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
    """The page. `by_size` has the rounds of each number of connections, `earlier` the sections of an earlier page."""
    sections = dict(earlier) | {connections: _section(connections, results) for connections, results in by_size.items()}
    parts = [HEAD, *(section for _, section in sorted(sections.items())), limits]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def limits_section(result):
    """The section on limits: a row for each measured setting, and the reason for each other one."""
    rows = list(result["rows"].values())
    parts = [LIMITS, _places(rows), ""]
    parts.append("| setting | what is counted | low limit | doctor predicts | reached | doctor's limit | reached then |")
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
        parts.append(f"**Not recommended here:** {'; '.join(f'{s.name} ({s.claim})' for s in others)}.")
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
        why = "a setting of the whole machine, with `--machine`"
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
        return "No run with defaults counts: in each, other work used the machine, or a client was not reached."
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
    """The commands of one run, as a person would type them."""
    size = "" if connections == 100_000 else f" TUNING='--connections {connections}'"
    commands = next(run["commands"] for runs in rounds for run in runs)
    return "\n".join([f"`make bench-tuning{size}` runs, for each setting:", "", "```sh", *commands, "```"])

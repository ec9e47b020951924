"""Computes the effect of a setting: its runs against the runs with defaults before and after."""

import statistics
from dataclasses import dataclass

import rows

# Smaller effects are not worth a setting, even if they are certain.
LEAST = 0.05
# A run does not count if other work used more of the machine just before it.
BUSY_MOST = 0.1
# Number of rounds that must agree before a setting is recommended.
ROUNDS_TO_RECOMMEND = 3


@dataclass(frozen=True)
class Metric:
    name: str
    value: object
    more_is_better: bool = False
    # A value as a person reads it.
    shown: object = rows.byte_count


METRICS = [
    Metric("connects a second", rows.setup_rate, more_is_better=True, shown=rows.per_second),
    Metric("publish to last", rows.last_ms, shown=lambda ms: f"{ms:,.0f} ms"),
    Metric("CPU per delivery", rows.cpu_per_delivery_us, shown="{:.2f} us".format),
    Metric("kernel memory", lambda run: run["kernel_bytes_per_connection"]),
    Metric("user space", rows.user_bytes),
]


def counts(run):
    """Whether a run counts: all clients were reached, and no other work used the machine when it began."""
    return rows.whole(run) and run["busy_before"] <= BUSY_MOST


def ratios(rounds, name, metric):
    """For each round, the setting's figure over the mean of the defaults measured just before and after it."""
    found = []
    for runs in rounds:
        for index, run in enumerate(runs):
            if run["setting"] != name or not counts(run):
                continue
            beside = [
                metric.value(other)
                for other in (_defaults(runs[:index][::-1]), _defaults(runs[index + 1:]))
                if other is not None
            ]
            if beside:
                found.append(metric.value(run) / statistics.mean(beside))
    return found


def _defaults(runs):
    return next((run for run in runs if run["setting"] == "defaults" and counts(run)), None)


def noise(rounds, metric):
    """The median difference of two consecutive runs with defaults, as a share."""
    apart = []
    for runs in rounds:
        values = [metric.value(run) for run in runs if run["setting"] == "defaults" and counts(run)]
        apart.extend(abs(later / earlier - 1) for earlier, later in zip(values, values[1:]))
    return statistics.median(apart) if apart else 0.0


def effect(rounds, name, metric):
    """1 for better, -1 for worse, 0 for neither, None if nothing was measured.

    Among so many settings some would look good by chance. So an effect counts only if every round shows it in the same
    direction and larger than the difference of two runs with defaults, and if its median is larger than twice that
    difference and larger than LEAST.
    """
    found = ratios(rounds, name, metric)
    if not found:
        return None
    median = statistics.median(found)
    apart = noise(rounds, metric)
    above = all(value > 1 + apart for value in found)
    below = all(value < 1 - apart for value in found)
    if not (above or below) or abs(median - 1) <= max(LEAST, 2 * apart):
        return 0
    return 1 if (median > 1) == metric.more_is_better else -1


def verdict(rounds, name):
    """The verdict as text, and whether to recommend the setting."""
    effects = {metric.name: effect(rounds, name, metric) for metric in METRICS}
    if all(value is None for value in effects.values()):
        return "not measured", False
    taken = max(len(ratios(rounds, name, metric)) for metric in METRICS)
    if taken < 2:
        return "one round: too few to say", False
    better = [name for name, value in effects.items() if value == 1]
    worse = [name for name, value in effects.items() if value == -1]
    if better and worse:
        return f"better: {', '.join(better)}; worse: {', '.join(worse)}", False
    if better:
        return f"better: {', '.join(better)}", taken >= ROUNDS_TO_RECOMMEND
    if worse:
        return f"worse: {', '.join(worse)}", False
    return "no effect shown", False

"""The metrics that there are: what docs/metrics.md lists, and what a running server shows."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
# A row of the page: names with their labels, a type, and what it means.
ROW = re.compile(r"^\| (`[a-z_]+(?:\{[^`]*\})?`) \| (gauge|counter|histogram) \| (.*) \|$", re.M)
# What Prometheus itself adds to each target.
OF_TARGETS = {"job", "instance"}
SUFFIXES = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


@dataclass
class Metric:
    kind: str
    labels: set = field(default_factory=set)
    # By label, as far as they are known.
    values: dict = field(default_factory=lambda: defaultdict(set))


def documented():
    """Series by name: a histogram has three. Values of labels are the words in backticks of a row."""
    known = {}
    for name, kind, text in ROW.findall(PAGE.read_text()):
        name, _, labels = name.strip("`").removesuffix("}").partition("{")
        labels = {label for label in labels.split(",") if label}
        for suffix in SUFFIXES[kind]:
            metric = Metric(kind, labels | ({"le"} if suffix == "_bucket" else set()))
            for label in labels:
                metric.values[label] |= set(re.findall(r"`([^`]+)`", text))
            known[name + suffix] = metric
    return known


def shown(text):
    """The same of a page in the OpenMetrics format."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    known = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", text, re.M):
        family = next(name.removesuffix(end) for end in ("_total", "_bucket", "_sum", "_count", "") if name.removesuffix(end) in kinds)
        metric = known.setdefault(name, Metric(kinds[family]))
        for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels):
            metric.labels.add(label)
            metric.values[label].add(value)
    return known


def together(*catalogues):
    """Labels and their values of all of them."""
    known = {}
    for catalogue in catalogues:
        for name, metric in catalogue.items():
            one = known.setdefault(name, Metric(metric.kind))
            assert one.kind == metric.kind, name
            one.labels |= metric.labels
            for label, values in metric.values.items():
                one.values[label] |= values
    return known


def anchors(page):
    """What a link into a page may end with, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"): heading for heading in headings}

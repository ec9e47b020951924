"""The files of deploy/ that are tested here, read."""

import functools
import json
import re

import yaml

from catalogue import ROOT

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
RULE_TESTS = DEPLOY / "prometheus" / "rules.test.yml"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "myriad.json"


@functools.cache
def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def recorded():
    return [rule["record"] for rule in rules() if "record" in rule]


@functools.cache
def dashboard():
    return json.loads(DASHBOARD.read_text())


def panels():
    """All panels with data, each with the title of its row. Those of a folded row are inside it."""
    row = None
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            yield from ((row, inner) for inner in panel["panels"])
        else:
            yield row, panel


def dashboard_expressions():
    for row, panel in panels():
        for target in panel["targets"]:
            yield f"{row}: {panel['title']} {target['refId']}", target["expr"], target["legendFormat"]
    for annotation in dashboard()["annotations"]["list"]:
        if "expr" in annotation:
            yield f"annotation {annotation['name']}", annotation["expr"], annotation["titleFormat"]


def expressions():
    """Every expression, with a name of its place."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    yield from ((place, expression) for place, expression, _ in dashboard_expressions())


def filled_in(expression, window="10s"):
    """An expression of the dashboard as Grafana sends it, for all jobs and servers."""
    variables = {"$job": "myriad", "$instance": ".*", "$__rate_interval": window, "$__range": window}
    # The longest name first: one may begin like another.
    names = sorted(variables, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, names)), lambda found: variables[found[0]], expression)

"""Every expression gets an answer from a real Prometheus that reads a real server."""

import math
import time

import pytest

from expressions import selectors
from files import alerts, dashboard_expressions, filled_in, recorded
from running import watched
from server import PATIENCE

# Each second.
SCRAPES = 6
# What this server has none of: nodes beside it, and an authority that gives it certificates.
ABSENT = ("myriad_broker_", "myriad_nodes_", "myriad_tls_acme_")


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory):
    running = watched(server, tmp_path_factory.mktemp("prometheus"), SCRAPES)
    yield running
    running.stop()


def is_absent(expression):
    return any(one.metric.startswith(ABSENT) for one in selectors(expression))


def test_no_panel_is_empty_that_should_not_be(prometheus):
    empty, absent = [], 0
    for place, expression, _ in dashboard_expressions():
        if place.startswith("annotation"):
            # The server was not started again meanwhile.
            assert prometheus.query(filled_in(expression)) == []
            continue
        found = prometheus.query(filled_in(expression))
        if is_absent(expression):
            absent += 1
            assert found == [], place
        elif not any(math.isfinite(float(one["value"][1])) for one in found):
            empty.append((place, filled_in(expression), found))
    assert absent > 10
    assert empty == []


def test_rules_are_evaluated_and_no_alert_fires(prometheus):
    end = time.monotonic() + PATIENCE
    while True:
        groups = prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        if all(rule["health"] != "unknown" for rule in rules):
            break
        assert time.monotonic() < end, "rules are not evaluated"
        time.sleep(0.1)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert {rule["name"] for rule in rules} == {alert["alert"] for alert in alerts()} | set(recorded())
    firing = {rule["name"]: rule["alerts"] for rule in rules if rule.get("state") == "firing"}
    assert firing == {}
    assert [name for name in recorded() if not prometheus.query(name)] == []

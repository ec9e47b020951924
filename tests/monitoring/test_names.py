"""The rules and the dashboard use metrics that there are, as what they are."""

import re

from catalogue import OF_TARGETS, PAGE, documented, shown
from expressions import grouping_labels, legend_labels, selectors
from files import alerts, dashboard_expressions, expressions, panels, recorded

# Those of Prometheus itself.
OWN = {"up": OF_TARGETS}
# Functions of a range, and what they are for.
OF_COUNTERS = {"rate", "increase", "irate"}
OF_GAUGES = {"deriv", "delta", "changes", "max_over_time", "min_over_time", "avg_over_time"}
# Labels whose values come with requests, so no page has all of them.
OPEN = {"status", "job", "instance", "proxy", "endpoint", "stream", "name", "le", "version", "key"}


def test_the_page_and_the_server_agree(server):
    """Otherwise the other tests prove nothing. A Rust test compares the names; this one compares types and labels, too."""
    page, running = documented(), shown(server.request("GET", "/metrics").body)
    assert len(page) > 100 and len(running) > 100
    for name, metric in running.items():
        assert name in page, name
        assert metric.kind == page[name].kind, name
        assert metric.labels == page[name].labels, name


def test_every_metric_is_there(known):
    used = {one.metric for _, expression in expressions() for one in selectors(expression)}
    assert len(used) > 90
    assert used - set(known) - set(OWN) - set(recorded()) == set()


def test_every_label_is_one_of_its_metric(known):
    for place, expression in expressions():
        for one in selectors(expression):
            if one.metric in recorded():
                continue
            labels = OWN.get(one.metric) or known[one.metric].labels | OF_TARGETS
            assert {name for name, _, _ in one.matchers} <= labels, (place, one)


def test_every_value_of_a_label_exists(known):
    seen = 0
    for place, expression in expressions():
        for one in selectors(expression):
            for label in {name for name, _, _ in one.matchers} - OPEN:
                values = known[one.metric].values[label]
                for wanted in one.values(label):
                    assert any(re.fullmatch(wanted, value) for value in values), (place, label, wanted, sorted(values))
                    seen += 1
    assert seen > 30


def test_groups_and_legends_have_labels_that_are_there(known):
    for place, expression in expressions():
        metrics = [one.metric for one in selectors(expression)]
        labels = OF_TARGETS.union(*(known[name].labels for name in metrics if name in known))
        assert grouping_labels(expression) <= labels, place
    for place, expression, legend in dashboard_expressions():
        metrics = [one.metric for one in selectors(expression)]
        labels = OF_TARGETS.union(*(known[name].labels for name in metrics if name in known))
        assert legend_labels(legend) <= labels, place


def test_counters_are_rated_and_gauges_are_not(known):
    kinds = set()
    for place, expression in expressions():
        for one in selectors(expression):
            if one.metric in OWN or one.metric in recorded():
                continue
            kind = known[one.metric].kind
            kinds.add((kind, one.has_range))
            if kind == "gauge":
                assert not one.has_range or one.function in OF_GAUGES, (place, one)
            else:
                # A histogram's series are counters. A bare counter says how long the process has lived.
                assert one.has_range and one.function in OF_COUNTERS, (place, one)
    assert kinds == {("gauge", False), ("gauge", True), ("counter", True), ("histogram", True)}


def test_every_expression_of_the_dashboard_obeys_its_variables():
    for place, expression, _ in dashboard_expressions():
        for one in selectors(expression):
            matchers = [("job", "=~", "$job"), ("instance", "=~", "$instance")]
            assert set(matchers) <= set(one.matchers), (place, one)
        assert not re.search(r"\[\d", expression) or "acme" in expression, f"{place}: a window of its own"


def test_names_of_metrics_in_texts_are_there(known):
    texts = [text for alert in alerts() for text in alert["annotations"].values()]
    texts += [panel["description"] for _, panel in panels()]
    texts.append((PAGE.parent / "monitoring.md").read_text())
    named = {name for text in texts for name in re.findall(r"\bmyriad_[a-z_]+|\bprocess_[a-z_]+", text)}
    assert "myriad_connections_max" in named
    recorded_parts = {part for name in recorded() for part in name.split(":")}
    assert named - set(known) - recorded_parts == set()

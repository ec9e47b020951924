"""The tests of expressions find what is wrong in one."""

from expressions import grouping_labels, legend_labels, selectors


def test_metrics_are_found_with_their_labels_and_functions():
    expression = (
        'sum by (instance) (rate(a_total{job=~"$job",reason!~"x|y"}[5m] offset 10m)) * 300'
        " / on (job) group_left () clamp_min(max(b), 1) and c unless on (job, stream) (d == 1)"
    )
    found = list(selectors(expression))
    assert [(one.metric, one.function, one.has_range) for one in found] == [
        ("a_total", "rate", True),
        ("b", "max", False),
        ("c", "", False),
        ("d", "", False),
    ]
    assert list(found[0].values("reason")) == ["x", "y"]
    assert grouping_labels(expression) == {"instance", "job", "stream"}


def test_recorded_figures_are_metrics():
    assert [one.metric for one in selectors("instance:a:rate5m > 1 and instance:a:rate5m * 3e2 > 0.1 * b")] == [
        "instance:a:rate5m",
        "instance:a:rate5m",
        "b",
    ]


def test_a_function_is_no_metric():
    assert [one.metric for one in selectors("time() - max(process_start_time_seconds)")] == ["process_start_time_seconds"]
    assert [one.metric for one in selectors("histogram_quantile(0.99, sum by (le) (rate(a_bucket[1m])))")] == ["a_bucket"]


def test_a_legend_names_labels():
    assert legend_labels("{{stream}} on {{ instance }}") == {"stream", "instance"}

"""Runs of scenario files: a row must fail for every report that is not as good as its target says."""

import copy
import unittest

import flows
from test_bench import row
from test_bench import run as run_of
from test_sessions import spoiled


def chat(deliveries_per_s, p99_ms):
    """A run in which every message reached its group."""
    found = run_of("io_uring", 0, [])
    del found["pushes"]
    found["report"] |= {
        "errors": {}, "churn": {"lost": 0},
        "flows": [
            {"name": "history", "received_per_s": 10.0},
            {
                "name": "chat-ws", "received_per_s": deliveries_per_s, "since_due_ms": {"p99": p99_ms},
                "missing": 0, "duplicated": 0, "out_of_order": 0, "unexpected": 0, "late": 0, "unsent": 0,
            },
        ],
    }
    return found


class ChatTest(unittest.TestCase):
    def test_each_load_has_its_targets(self):
        for scenario, load in flows.IM_LOADS.items():
            run = chat(load.deliveries_per_s, 400.0)
            for figure in ("rate", "p99"):
                self.assertEqual(row(f"{scenario}-{figure}").outcome([run]).reached, "yes", scenario)
            slow = chat(0.98 * load.deliveries_per_s, 2_100.0)
            for figure in ("rate", "p99"):
                self.assertEqual(row(f"{scenario}-{figure}").outcome([slow]).reached, "no", scenario)

    def test_a_fault_is_no_time(self):
        for fault in ("missing", "duplicated", "out_of_order", "unexpected", "late", "unsent"):
            bad = chat(500_000, 1.0)
            bad["report"]["flows"][1][fault] = 1
            self.assertEqual(row("im-20k-2200-p99").outcome([bad]).measured, "never", fault)
        for path, value in {"report.errors": {"call_408": 1}, "report.churn.lost": 1}.items():
            bad = spoiled(chat(500_000, 1.0), path, value)
            self.assertEqual(row("im-20k-2200-p99").outcome([bad]).measured, "never", path)


class RequestsTest(unittest.TestCase):
    def test_messages_that_are_lost_or_never_sent_are_no_rate(self):
        good = run_of("epoll", 0, [])
        good["report"]["echo"] = {"received_per_s": 199_000.0, "unsent": 0, "lost": 0, "errors": 0}
        self.assertEqual(row("requests-epoll").outcome([good]).reached, "yes")
        for fault in ("unsent", "lost", "errors"):
            self.assertEqual(row("requests-epoll").outcome([spoiled(good, f"report.echo.{fault}", 1)]).reached, "no", fault)


class AccuracyTest(unittest.TestCase):
    def test_an_error_is_judged_by_what_is_allowed(self):
        good = run_of("epoll", 0, [])
        good["known"] = {"count": 1, "held_ms": {"p50": 1.0, "p99": 100.0, "p999": 300.0}}
        good["report"]["flows"] = [{"name": "delayed", "since_sent_ms": {"p50": 1.09, "p99": 101.9, "p999": 294.1}}]
        for percentile, wrong in {"p50": 1.11, "p99": 97.9, "p999": 306.1}.items():
            name = f"accuracy-{percentile}"
            self.assertEqual(row(name).outcome([good]).reached, "yes", percentile)
            bad = copy.deepcopy(good)
            bad["report"]["flows"][0]["since_sent_ms"][percentile] = wrong
            self.assertEqual(row(name).outcome([bad]).reached, "no", percentile)


if __name__ == "__main__":
    unittest.main()

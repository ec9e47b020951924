"""Runs of scenario files: a row must fail for every report that is not as good as its target says."""

import copy
import unittest

import flows
import report
import scenarios
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


class ProcessorTest(unittest.TestCase):
    @staticmethod
    def measured(found, generator_us, server_us):
        """The same run with what a message takes of the processors at both ends."""
        found["report"]["cpu"] = {
            "generator_cpu_us_per_message": generator_us, "server_cpu_us_per_message": server_us,
        }
        return found

    def test_a_message_may_cost_the_generator_as_much_as_the_server(self):
        name = "generator-cpu-im-20k-2200-io_uring"
        dear, cheap = (self.measured(chat(500_000, 1.0), generator_us, 4.0) for generator_us in (4.1, 3.0))
        self.assertEqual(row(name).outcome([cheap]).median, 0.75)
        self.assertEqual(row(name).outcome([cheap]).reached, "yes")
        self.assertEqual(row(name).outcome([dear]).reached, "no")

    def test_what_was_not_watched_is_not_measured(self):
        name = "generator-cpu-im-20k-2200-io_uring"
        self.assertIsNone(row(name).outcome([chat(500_000, 1.0)]))
        for both in ((None, None), (3.0, None), (3.0, 0.0)):
            self.assertIsNone(row(name).outcome([self.measured(chat(500_000, 1.0), *both)]), both)
        unknown = chat(500_000, 1.0)
        unknown["report"]["cpu"] = None
        self.assertIsNone(row(name).outcome([unknown]))

    def test_broadcasts_have_a_row_for_each_driver(self):
        for kind in ("io_uring", "epoll"):
            found = self.measured(run_of(kind, 0, [1, 1]), 2.0, 1.0)
            self.assertEqual(row(f"generator-cpu-100k-{kind}").outcome([found]).reached, "no")
            unreached = self.measured(run_of(kind, 0, [1], received=99), 1.0, 2.0)
            self.assertIsNone(row(f"generator-cpu-100k-{kind}").outcome([unreached]))
        found = self.measured(run_of("io_uring", 0, [1, 1]), 1.0, 2.0)
        self.assertEqual(row("generator-cpu-1m-io_uring").outcome([found]).measured, "0.50")

    def test_both_figures_are_shown(self):
        found = self.measured(chat(500_000, 1.0), 3.0, 4.0)
        self.assertEqual(report.cpu_notes(found), ["a message takes 3.00 us of the generator and 4.00 us of the server"])
        self.assertEqual(report.cpu_notes(chat(500_000, 1.0)), [])


class WatchTest(unittest.TestCase):
    def test_the_loads_of_these_rows_watch_their_server(self):
        watched = []

        class Bench:
            def run(self, *_, watches_server=False):
                watched.append(watches_server)
                return {"report": {}}

            def plain_echoes_per_s(self, connections):
                return 100_000.0

        flows.im_full_link(Bench(), "im-20k-2200.0.io_uring", "io_uring", 20_000)
        scenarios.broadcast(Bench(), "broadcast-100k.0.epoll", "epoll", 100_000)
        self.assertEqual(watched, [True, True])


class PlainTest(unittest.TestCase):
    def test_the_plain_program_runs_before_each_load(self):
        done = []

        class Bench:
            def run(self, *_, **__):
                done.append("run")
                return {"report": {}}

            def plain_echoes_per_s(self, connections):
                done.append(connections)
                return 100_000.0

        self.assertEqual(flows.requests(Bench(), "requests.0.epoll", "epoll", 500)["plain_echoes_per_s"], 100_000.0)
        flows.im_full_link(Bench(), "im-20k-2200.0.io_uring", "io_uring", 20_000)
        self.assertEqual(done, [500, "run", 20_000, "run"])


class RequestsTest(unittest.TestCase):
    def test_a_rate_with_lost_or_changed_messages_is_zero(self):
        good = run_of("epoll", 0, [])
        good["report"]["echo"] = {"received_per_s": 199_000.0, "unsent": 0, "lost": 0, "errors": 0}
        self.assertEqual(row("requests-epoll").outcome([good]).reached, "yes")
        for fault in ("lost", "errors"):
            self.assertEqual(row("requests-epoll").outcome([spoiled(good, f"report.echo.{fault}", 1)]).reached, "no", fault)


    def test_the_rate_is_held_against_the_plain_program_of_that_round(self):
        found = run_of("io_uring", 0, [])
        found["report"]["echo"] = {"received_per_s": 70_000.0, "unsent": 0, "lost": 0, "errors": 0}
        name = "requests-plain-io_uring"
        self.assertIsNone(row(name).outcome([found]))
        found["plain_echoes_per_s"] = 100_000.0
        self.assertEqual(row(name).outcome([found]).reached, "yes")
        found["plain_echoes_per_s"] = 101_000.0
        self.assertEqual(row(name).outcome([found]).reached, "no")


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

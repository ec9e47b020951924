"""Runs of clients that speak HTTP: a row must fail for every report that is not as good as its target says."""

import unittest

import held
import report
from test_bench import row
from test_bench import run as run_of
from test_sessions import spoiled


def polls(kind, turn=0):
    """A run in which all polls were answered as they were to be."""
    found = run_of(kind, turn, [])
    del found["pushes"]
    found["server_cpu_share"] = 0.5
    found["lateness_s"] = [(0.016384, 990), (0.131072, 1_000), (float("inf"), 1_000)]
    found["report"] |= {
        "errors": {},
        "messages": {"missed": 0, "gaps": 0, "duplicates": 0},
        "churn": {"lost": 0},
        "http": {
            "requests": 1_100, "answers": 1_000, "answers_per_s": 90_000.0, "peak_answers_per_s": 120_000.0,
            "timeouts": 900, "heartbeats": 0, "reopened": 0,
            "held": {
                "shortest_ms": 30_000.1, "mean_ms": 60_030.0, "p50_ms": 60_000.0, "p99_ms": 89_400.0,
                "longest_ms": 90_020.0, "expected_ms": [30_000.0, 90_000.0], "early": 0, "late": 0,
            },
        },
    }
    return found


class CometTest(unittest.TestCase):
    def test_polls_that_were_held_as_they_were_to_be_reach_their_targets(self):
        for name in ("polls-1m-errors", "polls-1m-timers", "polls-1m-late", "polls-1m-cpu"):
            self.assertEqual(row(name).outcome([polls("io_uring")]).reached, "yes", name)

    def test_a_poll_that_was_not_does_not(self):
        spoils = {
            "polls-1m-errors": {"report.errors": {"answer_500": 1}, "report.churn.lost": 1, "report.setup.connected": 99},
            "polls-1m-timers": {"report.http.held.early": 1, "report.http.held.late": 1, "report.http.timeouts": 0},
            "polls-1m-late": {"lateness_s": [(0.016384, 989), (0.131072, 1_000), (float("inf"), 1_000)]},
            "polls-1m-cpu": {"server_cpu_share": 0.61},
        }
        for name, values in spoils.items():
            for path, value in values.items():
                bad = spoiled(polls("io_uring"), path, value)
                self.assertEqual(row(name).outcome([bad]).reached, "no", f"{name} {path}")
        none = spoiled(polls("io_uring"), "lateness_s", [(0.016384, 0), (float("inf"), 0)])
        self.assertEqual(row("polls-1m-late").outcome([none]).measured, "never")


class RateTest(unittest.TestCase):
    def test_a_rate_at_which_something_was_missed_is_none(self):
        self.assertEqual(row("polls-rate-parked").outcome([polls("parked")]).measured, "120,000/s")
        self.assertEqual(row("polls-rate-read").outcome([polls("read")]).reached, "yes")
        spoils = {
            "report.messages.missed": 1, "report.errors": {"lost_end": 1}, "report.churn.lost": 1,
            "report.setup.connected": 99, "report.http.peak_answers_per_s": None,
        }
        for path, value in spoils.items():
            bad = spoiled(polls("parked"), path, value)
            self.assertEqual(row("polls-rate-parked").outcome([bad]).measured, "0/s", path)


class BroadcastTest(unittest.TestCase):
    def test_polls_and_streams_are_held_against_raw_in_their_round(self):
        runs = [run_of("raw", 0, [10.0]), run_of("long-poll", 0, [14.0]), run_of("sse", 0, [12.0])]
        self.assertEqual(row("polls-broadcast-100k").outcome(runs).measured, "1.40")
        self.assertEqual(row("polls-broadcast-100k").outcome(runs).reached, "yes")
        self.assertEqual(row("sse-broadcast-100k").outcome(runs).reached, "no")

    def test_a_stream_is_created_before_the_crowd_comes(self):
        created = []

        class Bench:
            def publish_options(self, kind, ports, pushes, every):
                return ["--pushes", pushes, "--every", every]

            def run(self, name, kind, connections, ping_interval, crowd_options, course, path, config):
                self.options = crowd_options(kind, [1, 2])
                self.path = path
                return {"kind": kind}

        bench, usual = Bench(), held.create_stream
        held.create_stream = created.append
        try:
            for kind in held.PROTOCOLS:
                self.assertEqual(held.broadcast(bench, "run", kind, 100)["kind"], kind)
                self.assertEqual(bench.options[:2], ["--protocol", kind])
            self.assertTrue(bench.path.startswith("http://127.0.0.1:PORT/v1/stream/bench?"))
            self.assertEqual(held.rate(bench, "run", "parked", 100)["kind"], "parked")
            self.assertIn(200, bench.options)
            self.assertEqual(held.rate(bench, "run", "read", 100)["kind"], "read")
            self.assertIn("none", bench.options)
            held.comet(bench, "run", "io_uring", 100)
            self.assertIn(held.HELD_FOR, bench.options)
        finally:
            held.create_stream = usual
        self.assertEqual(created, [[1, 2]] * 6)


class PageTest(unittest.TestCase):
    def test_what_polls_did_is_noted(self):
        notes = report.session_notes(polls("io_uring"))
        self.assertIn(
            "1,100 requests, 0 connections replaced, 1,000 polls answered, best second 120,000/s, "
            "900 timed out after 30.00 to 90.02 s, mean 60.030 s",
            notes,
        )


if __name__ == "__main__":
    unittest.main()

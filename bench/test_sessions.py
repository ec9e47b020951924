"""Runs of clients with sessions: a row must fail for every report that is not as good as its target says."""

import argparse
import contextlib
import io
import math
import tempfile
import unittest
from pathlib import Path

import course
import report
import rows
import run as bench_run
import scenarios
import sessions
from crowd import displayed
from context import ROOT
from earlier import Earlier
from test_bench import CONTEXT, row
from test_bench import run as run_of


def spoiled(found, path, value):
    """Changes one figure of a run, such as `report.session.gaps`, and returns the run."""
    *way, last = path.split(".")
    place = found
    for name in way:
        place = place[name]
    assert last in place, path
    place[last] = value
    return found


def published(kind, rate, turn=0, members=100):
    """A run of 10 s in which clients published, and nothing went wrong."""
    found = run_of(kind, turn, [])
    del found["pushes"], found["server_cpu_s"]
    times = {"mean": 2.0, "p50": 1.5, "p90": 5.0, "p99": 12.5, "p999": 20.0, "max": 21.0}
    found["report"] |= {
        "fanout": None,
        "session": {"gaps": 0, "duplicates": 0, "overtaken": 0},
        "client_publish": {
            "rate_per_s": rate, "sent": rate * 10, "received": rate * 10, "lost": 0, "errors": 0, "unsent": 0,
            "received_per_s": rate, "round_trip_ms": dict(times),
            "delivery": {
                "expected": rate * 10 * members, "received": rate * 10 * members,
                "received_per_s": rate * members, "delivery_ms": dict(times),
            },
        },
    }
    return found


class ClientRoomsTest(unittest.TestCase):
    def test_a_room_that_missed_something_has_no_time(self):
        spoils = {
            "unsent": 1, "lost": 1, "errors": 1, "delivery.received": 1_199_999, "delivery.expected": None,
            "delivery.delivery_ms.p99": 1000.5,
        }
        good = published("at 80%", 1_200)
        self.assertEqual(row("rooms-100k-clients-80").outcome([good]).measured, "12.50 ms")
        self.assertEqual(row("rooms-100k-clients-80").outcome([good]).reached, "yes")
        for name, value in spoils.items():
            bad = spoiled(published("at 80%", 1_200), f"report.client_publish.{name}", value)
            self.assertEqual(row("rooms-100k-clients-80").outcome([bad]).reached, "no", name)
        for name in ("gaps", "duplicates", "overtaken"):
            bad = spoiled(published("at 80%", 1_200), f"report.session.{name}", 1)
            self.assertEqual(row("rooms-100k-clients-80").outcome([bad]).measured, "never", name)

    def test_a_room_without_one_of_its_members_has_no_time(self):
        runs = [published("at 80%", 1_200, turn) for turn in range(3)]
        for found in runs[:2]:
            spoiled(found, "report.setup.connected", 99)
            spoiled(found, "report.client_publish.delivery.expected", None)
        self.assertEqual(row("rooms-100k-clients-80").outcome(runs).measured, "never (12.50 ms to never, 3 rounds)")

    def test_rooms_in_which_nothing_happened_have_no_time(self):
        silent = published("at 50%", 0)
        silent["report"]["client_publish"]["delivery"]["delivery_ms"]["p99"] = None
        self.assertEqual(row("rooms-100k-clients-50").outcome([silent]).reached, "no")

    def test_one_round_of_three_that_missed_something_shows(self):
        runs = [published("at 100%", 1_500, turn) for turn in range(3)]
        spoiled(runs[1], "report.client_publish.lost", 2)
        self.assertEqual(row("rooms-100k-clients-100").outcome(runs).measured, "12.50 ms (12.50 ms to never, 3 rounds)")


class BatchedRoomsTest(unittest.TestCase):
    def test_the_rate_may_miss_one_percent(self):
        for rate, reached in ((400_000, "yes"), (396_000, "yes"), (395_999, "no")):
            found = spoiled(published("io_uring", 4_000), "report.client_publish.delivery.received_per_s", rate)
            self.assertEqual(row("rooms-10k-batched-rate").outcome([found]).reached, reached, rate)

    def test_a_delivery_that_is_missing_leaves_no_time(self):
        found = published("io_uring", 4_000)
        self.assertEqual(row("rooms-10k-batched-p99").outcome([found]).reached, "yes")
        spoiled(found, "report.client_publish.delivery.received", 3_999_999)
        self.assertEqual(row("rooms-10k-batched-p99").outcome([found]).measured, "never")

    def test_a_round_without_one_of_the_members_counts(self):
        runs = [published("io_uring", 4_000, turn) for turn in range(2)]
        spoiled(runs[1], "report.setup.connected", 99)
        spoiled(runs[1], "report.client_publish.delivery.expected", None)
        self.assertEqual(row("rooms-10k-batched-rate").outcome(runs).rounds, 2)
        self.assertEqual(row("rooms-10k-batched-p99").outcome(runs).high, math.inf)


class AcksTest(unittest.TestCase):
    def steps(self, turn=0):
        return [published(kind, round(share * 100_000), turn, 1) for kind, share in sessions.ACK_LOADS.items()]

    def test_the_highest_rate_that_answers_keep_up_with_counts(self):
        steps = self.steps()
        outcome = row("publish-ack-10k").outcome(steps)
        self.assertEqual((outcome.measured, outcome.reached), ("100,000/s", "yes"))
        spoiled(steps[3], "report.client_publish.received_per_s", 98_999)
        spoiled(steps[2], "report.client_publish.unsent", 1)
        outcome = row("publish-ack-10k").outcome(steps)
        self.assertEqual((outcome.measured, outcome.reached), ("50,000/s", "no"))

    def test_each_round_has_its_own(self):
        runs = self.steps(0) + self.steps(1) + self.steps(2)
        for found in runs[4:8]:
            spoiled(found, "report.client_publish.unsent", 9)
        spoiled(runs[11], "report.client_publish.received_per_s", 90_000)
        outcome = row("publish-ack-10k").outcome(runs)
        self.assertEqual(outcome.measured, "75,000/s (0/s to 100,000/s, 3 rounds)")

    def test_a_step_without_all_clients_does_not_count(self):
        steps = self.steps()
        spoiled(steps[3], "report.setup.connected", 99)
        self.assertEqual(row("publish-ack-10k").outcome(steps).median, 75_000)


class RecoveryTest(unittest.TestCase):
    def run_of(self, **session):
        found = run_of("io_uring", 0, [])
        found["missed_each"] = 50
        found["report"]["session"] = {"recovered": 100, "unrecovered": 0, "recovered_publications": 5_000} | session
        return found

    def test_all_are_whole_or_it_never_ended(self):
        outcome = row("recovery-10k").outcome([self.run_of()])
        self.assertEqual((outcome.median, outcome.reached), (1.25, "yes"))
        self.assertEqual(
            row("recovery-10k").outcome([spoiled(self.run_of(), "report.setup.elapsed_s", 3.01)]).reached, "no"
        )
        for session in ({"recovered": 99}, {"unrecovered": 1}, {"recovered_publications": 4_999},
                        {"recovered_publications": 5_001}, {"recovered": 0, "recovered_publications": 0}):
            outcome = row("recovery-10k").outcome([self.run_of(**session)])
            self.assertEqual((outcome.measured, outcome.reached), ("never", "no"), session)

    def test_a_round_in_which_one_does_not_come_back_counts(self):
        runs = [self.run_of(), self.run_of(recovered=99, recovered_publications=4_950)]
        spoiled(runs[1], "report.setup.connected", 99)
        self.assertEqual(row("recovery-10k").outcome(runs).measured, "never (1.2 s to never, 2 rounds)")


class AskedTest(unittest.TestCase):
    def run_of(self, p99=4.9, question="history"):
        times = {"mean": 1.0, "p50": 1.0, "p90": 2.0, "p99": p99, "max": 30.0}
        asked = {"requests": 2_000, "answer_bytes": 11_254, "round_trip_ms": times}
        return run_of("io_uring", 0, []) | {"asked": {question: asked}}

    def test_the_99th_percentile_counts(self):
        for name, question, bound in (
            ("history-100", "history", 5), ("members-100k-page", "members", 20), ("members-100k-stats", "stats", 5),
        ):
            self.assertEqual(row(name).outcome([self.run_of(bound, question)]).reached, "yes")
            self.assertEqual(row(name).outcome([self.run_of(bound + 0.01, question)]).reached, "no")

    def test_a_crowd_that_is_not_whole_does_not_count(self):
        self.assertIsNone(row("members-100k-stats").outcome(
            [spoiled(self.run_of(question="stats"), "report.setup.connected", 99)]
        ))


class ManyChannelsTest(unittest.TestCase):
    def run_of(self, reach=1.0, p99_ms=4.5, received=10_000):
        found = run_of("io_uring", 0, [], received=1_000_000, wanted=1_000_000)
        del found["pushes"], found["server_cpu_s"]
        found["report"] |= {"churn": {"lost": 0}, "session": {}, "fanout": {"origin": "foreign", "pushes": 225}}
        found["user_bytes_per_connection"] = 450.0
        overall = {"p50_ms": 0.5, "p99_ms": p99_ms}
        return found | {
            "probe": {"fanout": {"origin": "own", "reach": reach, "overall": overall}},
            "others": {"expected": 10_000, "received": received},
        }

    def test_all_members_of_the_channel_get_all(self):
        def reached(found):
            return row("channels-1m-publish").outcome([found]).reached

        self.assertEqual(reached(self.run_of()), "yes")
        self.assertEqual(reached(self.run_of(p99_ms=5.01)), "no")
        self.assertEqual(reached(self.run_of(reach=0.999)), "no")
        self.assertEqual(reached(self.run_of(received=9_999)), "no")
        self.assertEqual(reached(self.run_of(received=10_001)), "no")

    def test_a_million_is_held_in_500_mb(self):
        found = self.run_of()
        self.assertEqual(row("channels-1m-memory").outcome([found]).measured, "429 MiB")
        self.assertEqual(row("channels-1m-memory").outcome([found]).reached, "yes")
        found["user_bytes_per_connection"] = 501.0
        self.assertEqual(row("channels-1m-memory").outcome([found]).reached, "no")

    def test_who_was_not_there_shows_even_where_the_round_does_not_count(self):
        self.assertEqual(row("channels-1m-held").outcome([self.run_of()]).reached, "yes")
        found = spoiled(self.run_of(), "report.setup.connected", 999_990)
        found["report"]["churn"]["lost"] = 3
        self.assertEqual(row("channels-1m-held").outcome([found]).measured, "13")
        self.assertEqual(row("channels-1m-held").outcome([found]).reached, "no")
        self.assertIsNone(row("channels-1m-memory").outcome([found]))


class PageTest(unittest.TestCase):
    def page(self, scenario, found):
        result = {"scenario": scenario, "connections": 100, "context": CONTEXT, "runs": [found]}
        page = report.page({scenario: result})
        # What was measured once stays on the page word for word.
        self.assertEqual(report.page({}, Earlier.read(page)), page)
        return page

    def test_what_clients_published_is_shown(self):
        found = published("io_uring", 4_000) | {"config": sessions.BATCHED}
        page = self.page("rooms-10k-batched", found)
        self.assertIn('```toml\n[[channel.namespaces]]\nname = "batched"\n', page)
        self.assertIn("| 400,000/s, less 1% at most | 400,000/s | yes |", page)
        self.assertIn(
            "clients publish 4,000/s; 40,000 answers, 4,000/s, p50 1.50 ms, p99 12.50 ms; "
            "4,000,000 deliveries, 400,000/s, p50 1.50 ms, p99 12.50 ms |", page
        )
        spoiled(found, "report.client_publish.unsent", 7)
        spoiled(found, "report.client_publish.delivery.received", 3_999_999)
        found["report"]["client_publish"]["round_trip_ms"] = dict.fromkeys(["p50", "p99"])
        page = self.page("rooms-10k-batched", found)
        self.assertIn("no times; 3,999,999 deliveries", page)
        self.assertIn("7 unsent; 4,000,000 deliveries expected |", page)
        spoiled(found, "report.client_publish.delivery.expected", None)
        self.assertIn("nobody knows how many deliveries expected |", self.page("rooms-10k-batched", found))

    def test_recovery_and_answers_are_shown(self):
        found = RecoveryTest().run_of(unrecovered=2)
        self.assertIn("100 recovered 5,000 publications, 2 did not", self.page("recovery-10k", found))
        spoiled(found, "report.setup.connected", 98)
        self.assertIn("| a client was not connected or not reached; ", self.page("recovery-10k", found))
        page = self.page("history-100", AskedTest().run_of())
        self.assertIn("history: 2,000 answers of 11.0 KiB, p50 1.00 ms, p99 4.90 ms", page)

    def test_the_pushes_of_a_probe_are_shown_once(self):
        page = self.page("channels-1m", ManyChannelsTest().run_of())
        self.assertIn("| p50 0.50 ms, p99 4.50 ms; 10,000 of 10,000 to the channel's other members |", page)
        # Nothing arrived.
        found = ManyChannelsTest().run_of(reach=0.0, p99_ms=None)
        self.assertIn("| no times; 10,000 of", self.page("channels-1m", found))


class FakeBench:
    """Notes what runs would be started with, and plays `events` to their course."""

    def __init__(self, events=()):
        self.events, self.asked, self.ended_at = events, [], None

    def publish_options(self, kind, ports, pushes, every):
        return ["--publish", "url", "--pushes", pushes, "--every", every]

    def ask(self, question, ports, channel, **options):
        self.asked.append((question, channel, options))
        return {"command": f"ask.py {question}", "epoch": "abc", "offset": 100}

    def run(self, name, kind, connections, ping_interval, crowd_options, course, path, config=None):
        self.path, self.config = path, config
        self.options = [str(word) for word in crowd_options(kind, [8000, 8001])]
        self.run = argparse.Namespace(figures={}, ports=[8000, 8001], measure_memory=lambda connected: None)
        for place, event in enumerate(self.events):
            if course(self.run, event):
                self.ended_at = place
                break
        return {"kind": kind, "commands": ["serve", "swarm"], **self.run.figures}

    def option(self, name):
        return self.options[self.options.index(name) + 1]


def progress(connected, messages=0):
    return {"event": "progress", "connected": connected, "messages": messages}


CONNECTED = {"event": "phase", "phase": "connected"}


class CommandTest(unittest.TestCase):
    def test_rooms_ask_each_room_for_the_same_rate_in_a_trial(self):
        for measure, kind, connections, count, rate in (
            (sessions.rooms_by_clients, "at 50%", 100_000, "1000", "750/s"),
            (sessions.rooms_by_clients, "at 50%", 10_000, "100", "75/s"),
            (sessions.rooms_by_clients, "at 50%", 300, "3", "2.25/s"),
            (sessions.rooms_by_clients, "at 100%", 100_000, "1000", "1500/s"),
            (sessions.batched_rooms, "io_uring", 10_000, "100", "4000/s"),
            (sessions.batched_rooms, "io_uring", 500, "5", "200/s"),
            (sessions.publish_acks, "at 25%", 10_000, "10000", "25000/s"),
            (sessions.publish_acks, "at 100%", 10_000, "10000", "100000/s"),
            (sessions.publish_acks, "at 100%", 300, "300", "3000/s"),
            (sessions.publish_acks, "at 100%", 1_000_000, "1000000", "10000000/s"),
        ):
            bench = FakeBench()
            self.assertEqual(measure(bench, "run", kind, connections)["kind"], kind)
            self.assertEqual((bench.option("--channels"), bench.option("--client-publish")), (count, rate))
            self.assertEqual((bench.option("--protocol"), bench.path), ("centrifuge-json", "/connection/websocket"))

    def test_batched_rooms_are_in_a_namespace_with_a_delay(self):
        bench = FakeBench()
        sessions.batched_rooms(bench, "run", "io_uring", 10_000)
        self.assertTrue(bench.option("--channel").startswith("batched:"))
        self.assertIn('name = "batched"\nbatch_delay = "100ms"', bench.config)

    def test_recovery_begins_fifty_before_the_newest(self):
        bench = FakeBench()
        figures = sessions.recovery(bench, "run", "io_uring", 10_000)
        self.assertEqual(bench.asked, [("fill", "bench", {"count": 100})])
        self.assertEqual((bench.option("--channel"), bench.option("--recover-from")), ("bench", "abc:50"))
        self.assertEqual(figures["commands"], ["serve", "ask.py fill", "swarm"])
        self.assertEqual(figures["missed_each"], 50)

    def test_questions_are_asked_when_all_are_connected(self):
        bench = FakeBench([progress(7), CONNECTED])
        with replaced(sessions, "CALM_S", 0):
            figures = sessions.members(bench, "run", "io_uring", 7)
        self.assertEqual(bench.asked, [("members", "bench", {"count": 7}), ("stats", "bench", {"count": 7})])
        self.assertEqual(bench.ended_at, 1)
        self.assertEqual(figures["commands"], ["serve", "swarm", "ask.py members", "ask.py stats"])
        bench = FakeBench([progress(7), CONNECTED])
        with replaced(sessions, "CALM_S", 0):
            figures = sessions.history(bench, "run", "io_uring", 7)
        self.assertEqual([question for question, *_ in bench.asked], ["fill", "history"])
        self.assertEqual(bench.asked[1], ("history", "bench", {"count": 100}))
        self.assertEqual(figures["commands"], ["serve", "ask.py fill", "swarm", "ask.py history"])

    def test_who_did_not_connect_is_no_member(self):
        bench = FakeBench([progress(6), CONNECTED])
        with replaced(sessions, "CALM_S", 0):
            sessions.members(bench, "run", "io_uring", 7)
        self.assertEqual([options for *_, options in bench.asked], [{"count": 6}, {"count": 6}])

    def test_the_probe_waits_for_the_other_members(self):
        probed = []

        def push(bench, name, ports, path, pushes, every, *options):
            self.assertEqual((path, pushes), (sessions.PATH, 1_000))
            probed.append(options[-1])
            return {"command": "swarm probe"}

        events = [progress(1_000), CONNECTED, progress(1_000, 9_999), progress(1_000, 10_000), progress(1_000, 10_001)]
        with replaced(sessions, "push_from_probe", push):
            bench = FakeBench(events)
            figures = sessions.many_channels(bench, "run", "io_uring", 1_000)
            self.assertEqual((bench.ended_at, bench.option("--channels")), (3, "100"))
            self.assertEqual(figures["others"], {"expected": 10_000, "received": 10_000})
            self.assertEqual(figures["commands"], ["serve", "swarm", "swarm probe"])
            # Two channels: the second has a client less.
            figures = sessions.many_channels(FakeBench(events[:2]), "run", "io_uring", 25)
            self.assertEqual(figures["others"]["expected"], 12_000)
        self.assertEqual(probed, ["room-77", "room-2"])

    def test_the_probe_does_not_wait_forever(self):
        with replaced(sessions, "push_from_probe", lambda *_: {"command": ""}), replaced(sessions, "REST_PATIENCE_S", -1):
            bench = FakeBench([progress(1_000), CONNECTED, progress(1_000, 10_000)])
            self.assertEqual(sessions.many_channels(bench, "run", "io_uring", 1_000)["others"]["received"], 0)
            self.assertEqual(bench.ended_at, 1)

    def test_a_probe_is_one_client_that_pushes_to_itself(self):
        started = []

        def probe(command):
            started.append([str(word) for word in command])
            command[-1].write_text('{"fanout": {}}')

        with tempfile.TemporaryDirectory() as out, replaced(course, "probe", probe):
            bench = argparse.Namespace(out=Path(out), myriad="/build/myriad")
            found = course.push_from_probe(bench, "run", [8000], "/raw?channel=probe", 2_000, "10ms", "--protocol", "raw")
        self.assertEqual(started[0][2:5], ["ws://127.0.0.1:8000/raw?channel=probe", "--protocol", "raw"])
        self.assertEqual(found, {"fanout": {}, "command": (
            "myriad swarm 'ws://127.0.0.1:8000/raw?channel=probe' --protocol raw --connections 1 --threads 1 --live off "
            "--publish http://127.0.0.1:8000/api/publish --pushes 2000 --every 10ms --json report.json"
        )})

    def test_the_page_names_no_folders(self):
        command = [
            "/usr/bin/python3", ROOT / "bench/ask.py", "history", "127.0.0.1:8000", "--config", ROOT / "bench-out/a.toml"
        ]
        self.assertEqual(
            displayed(command), "python3 bench/ask.py history 127.0.0.1:8000 --config myriad.toml"
        )


@contextlib.contextmanager
def replaced(module, name, value):
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class SizeTest(unittest.TestCase):
    def chosen(self, **options):
        asked = {"connections": None, "rounds": None, "quick": False, "hash": True, "only": []} | options
        return {scenario.name: scenario for scenario in bench_run.chosen(argparse.Namespace(**asked))}

    def test_quick_makes_scenarios_smaller_and_never_larger(self):
        sizes = {name: (found.connections, found.rounds) for name, found in self.chosen(quick=True).items()}
        self.assertEqual(sizes["channels-1m"], (20_000, 1))
        self.assertEqual(sizes["publish-ack-10k"], (10_000, 1))
        self.assertEqual(sizes["history-100"], (1_000, 1))

    def test_a_number_of_connections_holds_for_all(self):
        found = self.chosen(connections=300, rounds=2).values()
        self.assertEqual({(scenario.connections, scenario.rounds) for scenario in found}, {(300, 2)})
        self.assertEqual(self.chosen(connections=300, quick=True)["history-100"].connections, 300)

    def test_scenarios_have_the_size_of_their_name(self):
        scale = {"k": 1_000, "m": 1_000_000}
        for scenario in scenarios.everything(None, None):
            size = next((word for word in scenario.name.split("-") if word[:-1].isdigit()), None)
            if size and size[-1] in scale:
                self.assertEqual(scenario.connections, int(size[:-1]) * scale[size[-1]], scenario.name)


class ReportedTest(unittest.TestCase):
    def test_rows_of_a_scenario_are_printed_with_never(self):
        [scenario] = [found for found in scenarios.everything(None, None) if found.name == "recovery-10k"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            bench_run.show(scenario, [RecoveryTest().run_of(recovered=99)])
        self.assertIn("all whole: never; target within 3 s: no", out.getvalue())
        self.assertEqual(rows.recovery_seconds(RecoveryTest().run_of(recovered=99)), math.inf)


if __name__ == "__main__":
    unittest.main()

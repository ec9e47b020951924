"""The arithmetic of the benchmark: a wrong median is a wrong claim. No server is started here."""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import context
import crowd
import namespace
import paired
import processes
import quantity
import report
import rows
import scenarios
import soak
from earlier import Earlier


def run(kind, turn, last_ms, cpu_s=1.0, received=100, wanted=100):
    pushes = [{"last_ms": ms, "received": received} for ms in last_ms]
    setup = {"connected": wanted, "rate_per_s": 90_000.0, "elapsed_s": 1.25}
    return {
        "kind": kind,
        "round": turn,
        "pushes": pushes,
        "server_cpu_s": cpu_s,
        "user_bytes_per_connection": 131.4,
        "kernel_bytes_per_connection": 8100.0,
        "busy_before": 0.01,
        "commands": [f"serve {kind}", "swarm 'ws://x?y'"],
        "report": {"setup": setup, "settings": {"connections": wanted}, "warnings": []},
    }


CONTEXT = {
    "cores": 2, "processor": "some", "memory": "24.0 GiB", "kernel": "6.18.0", "descriptors": "20,000",
    "commit": "abc", "date": "2026-01-02",
}


def row(name):
    [found] = [row for row in rows.ROWS if row.name == name]
    return found


class QuantityTest(unittest.TestCase):
    def test_sizes_have_three_digits_and_powers_of_two(self):
        for value, shown in [
            (0, "0 B"), (131.4, "131 B"), (1_023, "1,023 B"), (7_340, "7.17 KiB"), (1_048_575, "1.00 MiB"),
            (55_010_000, "52.5 MiB"), (17e9, "15.8 GiB"),
        ]:
            self.assertEqual(quantity.size(value), shown)


class PairedTest(unittest.TestCase):
    def shown(self, pairs):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            paired.show(next(iter(scenarios.everything(None, None))), "io_uring", pairs)
        return output.getvalue()

    def test_a_ratio_is_that_of_two_runs_side_by_side(self):
        # Medians of their own would say 1: the machine was twice as slow in the second round.
        pairs = [({"last": 100}, {"last": 110}), ({"last": 220}, {"last": 200}), ({"last": 100}, {"last": 102})]
        self.assertIn("| last | 100 | 110 | 1.020 (0.909 to 1.100, 3 rounds) |", self.shown(pairs))

    def test_figures_have_units_and_those_that_are_not_there_are_left_out(self):
        found = paired.figures(run("io_uring", 0, [70, 80, 300], cpu_s=0.5))
        self.assertEqual(found["publish to the last client, ms"], 80)
        self.assertAlmostEqual(found["server CPU a delivery, us"], 0.5e6 / 300)
        self.assertNotIn("publications a second", found)

    def test_a_scenario_without_a_whole_round_says_so(self):
        self.assertIn("no round in which all clients were there", self.shown([]))


class RowTest(unittest.TestCase):
    def test_a_ratio_is_taken_within_its_round(self):
        runs = [
            run("baseline", 0, [100, 110, 90]), run("io_uring", 0, [80, 70, 300]),
            run("io_uring", 1, [150]), run("baseline", 1, [200]),
            run("io_uring", 2, [100]), run("baseline", 2, [100]),
        ]
        outcome = row("broadcast-100k-io_uring").outcome(runs)
        # Medians of the pushes: 80 over 100, 150 over 200, 100 over 100.
        self.assertEqual((outcome.median, outcome.low, outcome.high, outcome.rounds), (0.8, 0.75, 1.0, 3))
        self.assertEqual(outcome.measured, "0.80 (0.75 to 1.00, 3 rounds)")
        self.assertEqual(outcome.reached, "yes")

    def test_cpu_is_per_delivered_message(self):
        runs = [run("baseline", 0, [1, 1], cpu_s=2.0), run("io_uring", 0, [1], cpu_s=0.5)]
        # 2 s over 200 deliveries against 0.5 s over 100.
        self.assertEqual(row("cpu-100k-io_uring").outcome(runs).median, 0.5)

    def test_a_round_that_missed_somebody_does_not_count(self):
        runs = [run("baseline", 0, [100]), run("io_uring", 0, [1], received=99)]
        self.assertIsNone(row("broadcast-100k-io_uring").outcome(runs))
        runs += [run("baseline", 1, [100], received=99), run("io_uring", 1, [1])]
        self.assertIsNone(row("broadcast-100k-io_uring").outcome(runs))
        runs += [run("baseline", 2, [100]), run("io_uring", 2, [99])]
        outcome = row("broadcast-100k-io_uring").outcome(runs)
        self.assertEqual((outcome.median, outcome.reached, outcome.rounds), (0.99, "no", 1))

    def test_a_rate_must_be_at_least_and_memory_has_a_tolerance(self):
        runs = [run("io_uring", 0, [1])]
        self.assertEqual(row("connect-100k-io_uring").outcome(runs).reached, "yes")
        runs[0]["report"]["setup"]["rate_per_s"] = 79_999
        self.assertEqual(row("connect-100k-io_uring").outcome(runs).reached, "no")
        outcome = row("memory-100k-io_uring").outcome(runs)
        self.assertEqual((outcome.measured, outcome.reached), ("131 B", "within the most allowed"))

    def test_connecting_is_shown_beside_its_floor(self):
        measured = run("io_uring", 0, [1]) | {"connect_floor_per_s": 120_000.0}
        result = {"scenario": "broadcast-100k", "connections": 100, "context": CONTEXT, "runs": [measured]}
        self.assertIn("connects at 0.75 of the floor of 120,000/s", report.page({"broadcast-100k": result}))

    def test_compression_is_held_against_the_plain_run(self):
        runs = [run("plain", 0, [1, 1], cpu_s=2.0), run("compressed", 0, [1], cpu_s=1.2)]
        for found, sent_bytes in zip(runs, [2000, 400]):
            found["sent_bytes"] = sent_bytes
        # 1.2 s over 100 deliveries against 2 s over 200; 4 bytes a delivery against 10.
        self.assertAlmostEqual(row("compressed-100k-cpu").outcome(runs).median, 1.2)
        self.assertEqual(row("compressed-100k-bytes").outcome(runs).median, 0.4)
        self.assertEqual(row("compressed-100k-memory").outcome(runs).median, 1.0)

    def test_tls_is_held_against_the_plain_run(self):
        runs = [run("plain", 0, [1, 1], cpu_s=2.0), run("tls", 0, [2, 2], cpu_s=3.0)]
        for found, user, crowd in zip(runs, [100, 350], [36, 300]):
            found["user_bytes_per_connection"] = user
            found["report"]["crowd"] = {"user_bytes_per_client": crowd}
        self.assertEqual(row("tls-100k-memory").outcome(runs).measured, "250 B")
        self.assertEqual(row("tls-100k-crowd").outcome(runs).measured, "300 B")
        self.assertAlmostEqual(row("tls-100k-last").outcome(runs).median, 2.0)
        self.assertAlmostEqual(row("tls-100k-cpu").outcome(runs).median, 1.5)

    def test_connecting_over_tls_is_held_against_handshakes_in_memory(self):
        measured = run("tls", 0, [1]) | {"handshakes_per_s": 120_000.0}
        measured["report"]["crowd"] = {"user_bytes_per_client": 300}
        self.assertEqual(row("tls-100k-connect").outcome([measured]).median, 0.75)
        result = {"scenario": "tls-100k", "connections": 100, "context": CONTEXT, "runs": [measured]}
        self.assertIn("connects at 0.75 of 120,000/s, the handshakes in memory", report.page({"tls-100k": result}))

    def test_a_storm_counts_from_its_beginning_to_its_end(self):
        calm, storm = run("calm", 0, [1] * 60), run("storm", 0, [1] * 60)
        for index in range(60):
            calm["pushes"][index]["p99_ms"] = 100
            storm["pushes"][index]["p99_ms"] = 130 if 5 <= index < 25 else 900
        storm["storm"] = {"connected": 200, "connections_wanted": 500, "elapsed_s": 19.5}
        self.assertEqual(row("tls-storm-p99").outcome([calm, storm]).measured, "30.00 ms")
        came = row("tls-storm-came").outcome([calm, storm])
        self.assertEqual((came.measured, came.reached), ("40.0%", "no"))
        result = {"scenario": "tls-storm", "connections": 100, "context": CONTEXT, "runs": [calm, storm]}
        self.assertIn("200 clients came within 19.5 s", report.page({"tls-storm": result}))

    def test_a_connection_that_ends_while_it_is_held_is_lost(self):
        held = run("tls", 0, [1, 1])
        messages = {"gaps": 1, "duplicates": 2}
        held["report"] |= {"messages": messages, "churn": {"lost": 40}, "pushes": [{"expected": 100, "received": 95}]}
        self.assertEqual(row("tls-1m-lost").outcome([held]).measured, "48")

    def test_rooms_that_missed_something_have_no_time(self):
        runs = [run("at 50%", 0, [])]
        runs[0]["report"]["fanout"] = {"reach": 1, "overall": {"p99_ms": 12.5}}
        self.assertEqual(row("rooms-100k-50").outcome(runs).reached, "yes")
        runs[0]["report"]["fanout"]["reach"] = 0.999
        self.assertEqual(row("rooms-100k-50").outcome(runs).reached, "no")

    def test_names_are_unique_and_found(self):
        names = [row.name for row in rows.ROWS]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([row.name for row in rows.named("cpu-100k")], ["cpu-100k-io_uring", "cpu-100k-epoll"])
        self.assertEqual([row.name for row in rows.named("idle-1m")], ["idle-1m"])
        self.assertNotIn("broadcast-1m-hash", [row.name for row in rows.named("broadcast-1m")])
        self.assertEqual(rows.named("nonsense"), [])

    def test_every_row_has_its_scenario(self):
        measured = {scenario.name for scenario in scenarios.everything(None, None)} | {"soak"}
        self.assertEqual({row.scenario for row in rows.ROWS}, measured)


class PageTest(unittest.TestCase):
    def test_the_page_has_targets_commands_and_runs(self):
        runs = [run("baseline", 0, [100]), run("io_uring", 0, [80], received=99)]
        results = {
            "broadcast-100k": {"scenario": "broadcast-100k", "connections": 100, "context": CONTEXT, "runs": runs}
        }
        page = report.page(results)
        self.assertIn("- 2 cores (some), 24.0 GiB, Linux 6.18.0, descriptor limit 20,000, commit abc, 2026-01-02\n", page)
        self.assertIn("| at most 0.95 | not measured |  |", page)
        self.assertIn("```sh\nserve baseline\nswarm 'ws://x?y'\nserve io_uring\n", page)
        self.assertIn("| 1 | baseline | 1.2 s | 90,000/s | 131 B | 7.91 KiB, 791 KiB in all | 0.10 s (0.10 to 0.10) | 10000.00 us |", page)
        self.assertIn("does not count: a client was not connected or not reached", page)

    def test_scenarios_measured_elsewhere_say_so(self):
        def result(name, commit):
            return {"scenario": name, "connections": 1, "context": {**CONTEXT, "commit": commit}, "runs": []}

        page = report.page({"idle-1m": result("idle-1m", "abc"), "latency-1m": result("latency-1m", "def")})
        self.assertIn("commit abc, 2026-01-02: idle-1m\n", page)
        self.assertIn("commit def, 2026-01-02: latency-1m\n", page)


    def test_what_was_measured_elsewhere_stays(self):
        def result(name, commit, runs):
            return {"scenario": name, "connections": 100, "context": {**CONTEXT, "commit": commit}, "runs": runs}

        runs = [run("baseline", 0, [100]), run("io_uring", 0, [80])]
        old = report.page({
            "broadcast-100k": result("broadcast-100k", "abc", runs),
            "broadcast-1m": result("broadcast-1m", "abc", runs),
        })
        slower = [run("baseline", 0, [100]), run("io_uring", 0, [90])]
        new = {"broadcast-1m": result("broadcast-1m", "def", slower)}
        page = report.page(new, Earlier.read(old))
        section = old[old.index("## broadcast-100k"):old.index("## broadcast-1m")]
        self.assertIn(section, page)
        self.assertIn("commit abc, 2026-01-02: broadcast-100k\n", page)
        self.assertIn("commit def, 2026-01-02: broadcast-1m\n", page)
        self.assertIn("publish to last client, against the baseline, io_uring | at most 0.95 | 0.80 | yes |", page)
        self.assertIn("| broadcast to 1M, publish to last client, against the baseline | at most 0.9 | 0.90 | yes |", page)
        # Both rows below are called the same.
        self.assertEqual(page.count("| the same in seconds | about 6 s | 0.1 s | yes |"), 1)
        self.assertEqual(report.page({}, Earlier.read(page)), page)


class RowsTest(unittest.TestCase):
    def test_no_two_rows_are_kept_as_one(self):
        self.assertEqual(len({(row.title, row.target) for row in rows.ROWS}), len(rows.ROWS))


class FloorTest(unittest.TestCase):
    def test_only_the_measure_that_shows_the_floor_asks_for_it(self):
        class Bench:
            """Without a floor program, as a measurement of settings has it."""

            def run(self, name, kind, connections, ping_interval, crowd_options, course, **_):
                return {"kind": kind}

            def connect_floor_per_s(self, connections):
                return 120_000.0

        self.assertEqual(scenarios.broadcast(Bench(), "run", "epoll", 1000), {"kind": "epoll"})
        [first] = [one for one in scenarios.everything(None, None) if one.name == "broadcast-100k"]
        self.assertEqual(first.measure(Bench(), "run", "epoll", 1000)["connect_floor_per_s"], 120_000.0)


class SoakTest(unittest.TestCase):
    OPTIONS = argparse.Namespace(connections=1000, minutes=10, churn=1.0)

    def figures(self, rss=lambda place: 50_000_000):
        samples = [
            {
                "at_s": place * 10.0, "server": {"rss_bytes": rss(place)}, "connections": 1000,
                "closes": {"client": 7 + place, "handed_over": place},
            }
            for place in range(61)
        ]
        return {
            "samples": samples,
            "report": {
                "outcome": "finished", "setup": {"connected": 1000},
                "churn": {"churned": 100, "reconnected": 100, "given_up": 0, "lost": 0, "impatient": 0},
                "errors": {}, "closes": {}, "pings": {"answered": 24_000},
                "messages": {"gaps": 0, "duplicates": 0, "overtaken": 0, "late": 0, "unexpected": 0, "replayed": 1},
                "pushes": [{"reach": 1.0, "expected": 999, "received": 999, "churned": 1, "last_ms": 5.0}] * 20,
            },
        }

    def failed(self, figures):
        return [check["name"] for check in soak.judge(figures, self.OPTIONS) if not check["holds"]]

    def test_a_good_hour_passes(self):
        self.assertEqual(self.failed(self.figures()), [])

    def test_each_thing_that_goes_wrong_is_named(self):
        def spoil(change):
            figures = self.figures()
            change(figures)
            return self.failed(figures)

        self.assertEqual(spoil(lambda f: f["report"]["churn"].update(lost=1)), ["connections lost"])
        self.assertEqual(spoil(lambda f: f["report"]["messages"].update(gaps=1)), ["publications missing"])
        self.assertEqual(spoil(lambda f: f["report"]["churn"].update(given_up=1)), ["of these, replaced"])
        self.assertEqual(spoil(lambda f: f["report"]["churn"].update(churned=50, reconnected=50)),
                         ["clients that left on purpose"])
        self.assertEqual(spoil(lambda f: f["report"]["pushes"].append({"reach": 0.999})), ["reach of each push"])
        self.assertEqual(spoil(lambda f: f["samples"][-1]["closes"].update(slow_consumer=2)),
                         ["connections that ended without their client's close frame"])
        self.assertEqual(spoil(lambda f: f["samples"][-1]["closes"].update(reset=2)),
                         ["connections that ended without their client's close frame"])
        self.assertEqual(spoil(lambda f: f["report"]["errors"].update(handshake_timeout=8)),
                         ["errors of any other kind"])
        self.assertEqual(spoil(lambda f: f["report"].update(outcome="interrupted")), ["the end"])
        self.assertEqual(spoil(lambda f: f["report"]["pings"].update(answered=10)), ["pings answered"])

    def test_a_reset_that_the_crowd_owns_up_to_is_not_the_servers(self):
        for impatient, resets, failures in ((2, 2, 0), (2, 1, 0), (2, 3, 1)):
            figures = self.figures()
            figures["report"]["churn"].update(impatient=impatient)
            figures["samples"][-1]["closes"].update(reset=resets)
            self.assertEqual(len(self.failed(figures)), failures)

    def test_growth_is_judged_after_the_warm_up(self):
        self.assertEqual(self.failed(self.figures(lambda place: 40_000_000 if place < 10 else 50_000_000)), [])
        grows = self.figures(lambda place: 50_000_000 + place * 20_000)
        self.assertEqual(self.failed(grows), ["resident memory of the server, last tenth against first"])
        # A single peak is no growth.
        self.assertEqual(self.failed(self.figures(lambda place: 90_000_000 if place == 58 else 50_000_000)), [])

    def test_the_metrics_are_read(self):
        text = (
            '# TYPE myriad_closes counter\nmyriad_closes_total{reason="client"} 12\n'
            'myriad_closes_total{reason="reset"} 0\nmyriad_connections 500\n'
        )
        self.assertEqual(soak.closes(text), {"client": 12, "reset": 0})
        self.assertEqual(soak.metric(text, "myriad_connections"), 500)

    def test_counts_and_shares_are_read_or_refused(self):
        self.assertEqual([soak.count(text) for text in ("250", "500k", "1.5m")], [250, 500_000, 1_500_000])
        self.assertEqual([soak.percent(text) for text in ("1", "0.5%")], [1.0, 0.5])
        for text in ("", "k", "0", "5x"):
            with self.assertRaises(argparse.ArgumentTypeError):
                soak.count(text)


class CommandTest(unittest.TestCase):
    def test_commands_are_shown_as_they_are_typed(self):
        command = [Path("/somewhere/bin/myriad"), "swarm", "ws://h/raw?channel=x", "--json", Path("/out/a.json"), 5]
        self.assertEqual(crowd.displayed(command), "myriad swarm 'ws://h/raw?channel=x' --json report.json 5")
        self.assertEqual(crowd.displayed(["myriad", "swarm", "--server-pid", 4711]), "myriad swarm --server-pid PID")


class ProcessTest(unittest.TestCase):
    def test_a_tree_is_found_whole_and_its_time_counted(self):
        with tempfile.TemporaryDirectory() as directory:
            child = "import sys; sum(range(3_000_000)); print('spun', flush=True); sys.stdin.read()"
            parent = (
                "import subprocess, sys; "
                f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE); child.wait()"
            )
            command = [sys.executable, "-c", parent]
            with processes.Process(command, Path(directory) / "log", subprocess.PIPE) as process:
                self.assertEqual(process.popen.stdout.readline(), "spun\n")
                pids = processes.tree(process.pid)
                self.assertEqual(len(pids), 2)
                self.assertGreater(processes.cpu_seconds(pids), 0.005)
                self.assertGreater(processes.anonymous_bytes(pids), 1_000_000)
                for pid in pids[1:]:
                    os.kill(pid, 15)

    def test_ports_are_free_and_below_the_outgoing_ones(self):
        first, second = processes.free_ports(2)
        self.assertLess(first, second)
        self.assertLess(second, 32_768)

    def test_reserved_ports_are_ranges_and_single_ones(self):
        self.assertEqual(processes._ranges("8000-8002,9000\n"), [range(8000, 8003), range(9000, 9001)])
        self.assertEqual(processes._ranges("\n"), [])


class NamespaceTest(unittest.TestCase):
    def test_the_hash_is_larger_inside_and_loopback_is_up(self):
        def look():
            from socket import create_server, create_connection

            with create_server(("127.0.0.1", 0)) as server, create_connection(server.getsockname(), 5):
                text = Path("/proc/sys/net/ipv4/tcp_ehash_entries").read_text()
            return abs(int(text))

        try:
            buckets = namespace.run_inside(look)
        except RuntimeError:
            self.skipTest("user namespaces are not allowed here")
        self.assertEqual(buckets, namespace.HASH_BUCKETS)


class Context(unittest.TestCase):
    def test_the_kernel_is_named_by_its_version_alone(self):
        self.assertEqual(context.kernel_version("6.18.3-some-host"), "6.18")
        self.assertEqual(context.kernel_version("6.18"), "6.18")


if __name__ == "__main__":
    unittest.main()

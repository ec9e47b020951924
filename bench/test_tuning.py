"""The arithmetic of the tuning page: an effect that is not there must not be recommended. Nothing is measured here."""

import re
import tempfile
import unittest
from pathlib import Path

import context
import effects
import limits
import namespace
import settings
import tuning
import tuning_page

CONTEXT = {
    "cores": 2, "processor": "some", "memory": "24.0 GiB", "kernel": "6.18.0", "commit": "abc", "date": "2026-01-02",
}
METRIC = {metric.name: metric for metric in effects.METRICS}


def run(name, last_ms=400.0, rate=60_000.0, connected=100, changed=None, busy=0.0):
    return {
        "setting": name,
        "busy_before": busy,
        "pushes": [{"last_ms": last_ms, "received": 100}],
        "server_cpu_s": 0.0004,
        "user_bytes_per_connection": 99.0,
        "kernel_bytes_per_connection": 8400.0,
        "commands": ["serve", "swarm"],
        "changed": changed or {},
        "report": {
            "setup": {"connected": connected, "rate_per_s": rate},
            "settings": {"connections": 100},
            "warnings": [],
        },
    }


class LimitsTest(unittest.TestCase):
    def test_whatever_doctor_changes_is_measured(self):
        source = (context.ROOT / "crates/doctor/src/changes.rs").read_text()
        sysctls = set(re.findall(r'Sysctl\("([^"]+)"\)', source))
        others = set(re.findall(r'Self::\w+ => "([^"]+)"', source))
        self.assertGreaterEqual(len(sysctls), 8)
        self.assertGreaterEqual(len(others), 4)
        self.assertEqual(set(limits.CASES), sysctls | others)


class EffectTest(unittest.TestCase):
    def test_a_setting_is_compared_with_the_defaults_beside_it(self):
        runs = [
            run("defaults", 400), run("a", 250), run("b", 600), run("defaults", 600), run("c", 300),
            run("defaults", 200),
        ]
        metric = METRIC["publish to last"]
        self.assertEqual(effects.ratios([runs], "a", metric), [0.5])
        self.assertEqual(effects.ratios([runs], "b", metric), [1.2])
        self.assertEqual(effects.ratios([runs], "c", metric), [0.75])

    def test_runs_that_did_not_reach_everybody_count_for_nothing(self):
        runs = [run("defaults", 400), run("a", 100, connected=99), run("defaults", 400)]
        self.assertEqual(effects.ratios([runs], "a", METRIC["publish to last"]), [])
        self.assertEqual(effects.verdict([runs], "a"), ("not measured", False))
        disturbed = [run("defaults", 400), run("a", 100, busy=0.5), run("defaults", 400)]
        self.assertEqual(effects.ratios([disturbed], "a", METRIC["publish to last"]), [])
        broken = [run("defaults", 100, connected=99), run("a", 300), run("defaults", 600)]
        self.assertEqual(effects.ratios([broken], "a", METRIC["publish to last"]), [0.5])

    def test_an_effect_is_in_every_round_and_beyond_the_noise(self):
        def rounds(ratios, apart=1.0):
            return [[run("defaults", 400), run("a", 400 * r), run("defaults", 400 * apart)] for r in ratios]

        metric = METRIC["publish to last"]
        self.assertEqual(effects.effect(rounds([0.8, 0.82, 0.7]), "a", metric), 1)
        self.assertEqual(effects.effect(rounds([1.3, 1.2]), "a", metric), -1)
        self.assertEqual(effects.effect(rounds([0.8, 1.02, 0.7]), "a", metric), 0, "not in every round")
        self.assertEqual(effects.effect(rounds([0.97, 0.96]), "a", metric), 0, "too small")
        # Defaults themselves are 30% apart.
        self.assertAlmostEqual(effects.noise(rounds([1.0], apart=1.3), metric), 0.3)
        self.assertEqual(effects.effect(rounds([0.8, 0.6], apart=1.3), "a", metric), 0, "not beyond it every time")
        self.assertEqual(effects.effect(rounds([0.65, 0.6], apart=1.3), "a", metric), 0, "not beyond twice of it")
        self.assertEqual(effects.effect(rounds([0.4, 0.3], apart=1.3), "a", metric), 1)
        self.assertIsNone(effects.effect(rounds([0.8]), "b", metric))

    def test_more_connects_a_second_are_better_and_more_milliseconds_worse(self):
        faster = [[run("defaults"), run("a", rate=90_000.0), run("defaults")]] * 3
        self.assertEqual(effects.verdict(faster, "a"), ("better: connects a second", True))
        words, recommended = effects.verdict(faster[:2], "a")
        self.assertEqual((words, recommended), ("better: connects a second", False), "two rounds may be chance")
        slower = [[run("defaults"), run("a", last_ms=800.0), run("defaults")]] * 2
        self.assertEqual(effects.verdict(slower, "a"), ("worse: publish to last", False))
        both = [[run("defaults"), run("a", rate=90_000.0, last_ms=800.0), run("defaults")]] * 2
        words, recommended = effects.verdict(both, "a")
        self.assertIn("better: connects a second; worse: publish to last", words)
        self.assertFalse(recommended)
        nothing = [[run("defaults"), run("a"), run("defaults")]]
        self.assertEqual(effects.verdict(nothing * 2, "a"), ("no effect shown", False))
        self.assertEqual(effects.verdict(nothing, "a"), ("one round: too few to say", False))


class OrderTest(unittest.TestCase):
    def test_every_setting_has_defaults_near_it(self):
        several = settings.SETTINGS[:7]
        order = tuning.with_defaults(several)
        self.assertEqual([s for s in order if s is not settings.DEFAULTS], several)
        self.assertIs(order[0], settings.DEFAULTS)
        self.assertIs(order[-1], settings.DEFAULTS)
        between = 0
        for setting in order:
            between = 0 if setting is settings.DEFAULTS else between + 1
            self.assertLessEqual(between, tuning.STRIDE)

    def test_rounds_begin_differently_and_have_everything(self):
        several = settings.SETTINGS[:7]
        orders = [tuning.turned(several, turn) for turn in range(3)]
        self.assertEqual(len({order[0].name for order in orders}), 3)
        for order in orders:
            self.assertEqual({s.name for s in order}, {s.name for s in several})

    def test_counts_are_as_elsewhere(self):
        self.assertEqual([tuning.count(text) for text in ("250", "50k", "1m", "1.5m")], [250, 50_000, 1_000_000, 1_500_000])

    def test_names_are_unique(self):
        self.assertEqual(len({s.name for s in settings.SETTINGS}), len(settings.SETTINGS))


class MachineTest(unittest.TestCase):
    def test_the_machines_files_are_put_back_whatever_happens(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "max"
            file.write_text("10\n")
            with self.assertRaises(KeyError), tuning.machine_wide({str(file): "20"}, Path(folder)):
                self.assertEqual(file.read_text(), "20")
                script = (Path(folder) / "restore.sh").read_text()
                self.assertIn(f"echo '10' > {file}", script)
                raise KeyError
            self.assertEqual(file.read_text(), "10")
            self.assertFalse((Path(folder) / "restore.sh").exists())

    def test_of_a_choice_the_chosen_value_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "enabled"
            file.write_text("always [madvise] never\n")
            self.assertEqual(tuning.current(file), "madvise")
            file.write_text("4096\t131072  33554432\n")
            self.assertEqual(tuning.current(file), "4096 131072 33554432")


class NamespaceTest(unittest.TestCase):
    def test_a_setting_reaches_only_its_own_namespace(self):
        path = Path("/proc/sys/net/ipv4/tcp_autocorking")
        before = path.read_text()
        setting = settings.Setting("x", "", {"net/ipv4/tcp_autocorking": ["0", "1"]})
        try:
            changed = namespace.run_inside(lambda: tuning.prepare(setting), None)
        except RuntimeError as refused:
            self.skipTest(f"no namespaces here: {refused}")
        self.assertNotEqual(*changed["net/ipv4/tcp_autocorking"])
        self.assertEqual(path.read_text(), before)


class PageTest(unittest.TestCase):
    def test_a_size_measured_elsewhere_keeps_its_section(self):
        old = f"{tuning_page.HEAD}\n## 1,000 connections\n\nas it was\n\n{tuning_page.LIMITS}\nthese, too\n"
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "tuning.md"
            page.write_text(old)
            tuning_page.write(Path(folder), page)
            self.assertEqual(page.read_text().count("## 1,000 connections\n\nas it was\n"), 1)
            self.assertEqual(page.read_text().count(f"{tuning_page.LIMITS}\nthese, too\n"), 1)

    def test_limits_are_told_with_what_doctor_said_and_what_happened(self):
        row = limits.Row("net.core.somaxconn", "clients", 4_000, "128", 129, 130, "4096", 4_000)
        no_count = limits.Row("pids.max", "servers", 1, "4", None, 0, "1000", 1)
        rows = {row.setting: vars(row) | {"context": CONTEXT} for row in (row, no_count)}
        section = tuning_page.limits_section({"rows": rows, "skipped": {"fs.file-max": "the whole machine's"}})
        self.assertIn("| net.core.somaxconn | clients | 128 | 129 | 130 | 4096 | 4,000 of 4,000 |", section)
        self.assertIn("| pids.max | servers | 4 |  | 0 | 1000 | 1 of 1 |", section)
        self.assertIn("Not measured: fs.file-max (the whole machine's).", section)
        self.assertEqual(tuning_page.earlier_limits(f"x\n\n{section}\n\n## another\n"), f"{section}\n\n")
        # It is a section of its own, not of a number of connections.
        self.assertEqual(tuning_page.earlier_sections(section), {})

    def test_rounds_of_which_none_counts_have_no_median(self):
        busy = [[run("defaults") | {"busy_before": 0.9}]]
        self.assertIn("No run with defaults counts", tuning_page._defaults(busy))

    def test_the_page_recommends_what_helped_and_names_what_did_not(self):
        def result(turn):
            runs = [
                run("defaults"), run("hash", 300.0, changed={"tcp_ehash_entries": ["shared", "4194304"]}),
                run("somaxconn", changed={"net/core/somaxconn": ["4096", "65535"]}), run("defaults"),
            ]
            return {
                "connections": 100_000, "context": CONTEXT, "runs": runs,
                "skipped": {"rps": "not allowed here"},
            }

        page = tuning_page.page({100_000: [result(0), result(1), result(2)]})
        self.assertIn("**Recommended:** hash.", page)
        self.assertIn("somaxconn (65535: connects do not wait in a full accept queue)", page)
        self.assertIn("| hash | tcp_ehash_entries shared -> 4194304 |", page)
        self.assertIn("0.75 (0.75 to 0.75)", page)
        self.assertIn("rps (not allowed here)", page)
        self.assertIn("file-max (a setting of the whole machine, with `--machine`)", page)
        self.assertEqual(page.count("2 cores (some)"), 1, "the same place is named once")


if __name__ == "__main__":
    unittest.main()

"""Tests of runs in which an application is asked, and of the application itself."""

import json
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

import application
import processes
import report
import run as bench_run
from crowd import Bench, RunFailed
from processes import Process
from test_bench import CONTEXT, row
from test_bench import run as run_of


def asked(calls, rate_per_s=6_000.0, connected=100):
    found = run_of("application", 0, [])
    del found["pushes"], found["server_cpu_s"]
    found["report"]["setup"] |= {"rate_per_s": rate_per_s, "connected": connected}
    found["application"] = {"calls": calls, "rss_bytes_before": 20 << 20, "rss_bytes_peak": 60 << 20}
    return found


class AskedTest(unittest.TestCase):
    def test_a_rate_counts_if_all_were_asked_about(self):
        self.assertEqual(row("proxy-connect-rate").outcome([asked(100)]).reached, "yes")
        self.assertEqual(row("proxy-connect-rate").outcome([asked(99)]).reached, "no")
        self.assertEqual(row("proxy-connect-rate").outcome([asked(100, 4_999)]).reached, "no")
        self.assertIsNone(row("proxy-connect-rate").outcome([asked(100, connected=99)]))

    def test_memory_is_what_came_on_top(self):
        outcome = row("proxy-connect-memory").outcome([asked(100)])
        self.assertEqual((outcome.measured, outcome.reached), ("40.0 MiB", "yes"))
        grown = asked(100)
        grown["application"]["rss_bytes_peak"] = 160 << 20
        self.assertEqual(row("proxy-connect-memory").outcome([grown]).reached, "no")

    def test_the_page_shows_both(self):
        result = {"scenario": "proxy-connect", "connections": 100, "context": CONTEXT, "runs": [asked(100)]}
        page = report.page({"proxy-connect": result})
        self.assertIn("100 calls, resident 20.0 MiB before and 60.0 MiB at the peak", page)


class ApplicationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        out = Path(cls.folder.name)
        cls.program = bench_run.build("application", out)
        cls.origin = f"127.0.0.1:{processes.free_ports(1)[0]}"
        cls.url = f"http://{cls.origin}"
        cls.process = Process([cls.program, "--listen", cls.origin], out / "log")
        cls.addClassCleanup(cls.process.stop)
        application.wait_until_ready(cls.process, cls.url)

    def post(self, path, body):
        with urllib.request.urlopen(self.url + path, data=body, timeout=10) as answer:
            return json.loads(answer.read())

    def test_each_call_gets_a_user_and_is_counted(self):
        before = application.calls(self.url)
        users = {self.post("/connect", b'{"client":"a"}')["result"]["user"] for _ in range(3)}
        self.assertEqual((len(users), application.calls(self.url)), (3, before + 3))

    def test_what_is_no_question_is_refused_and_not_counted(self):
        before = application.calls(self.url)
        for path, body in (("/other", b'{"client":"a"}'), ("/connect", b"{}")):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.post(path, body)
            self.assertEqual(refused.exception.code, 400)
            refused.exception.close()
        self.assertEqual(application.calls(self.url), before)

    def test_an_application_that_does_not_start_is_named(self):
        command = [self.program, "--listen", "nowhere"]
        with Process(command, Path(self.folder.name) / "other.log") as other:
            other.popen.wait(10)
            with self.assertRaisesRegex(RunFailed, "--listen takes an address"):
                application.wait_until_ready(other, "http://127.0.0.1:1")


class RunTest(unittest.TestCase):
    def test_the_server_is_told_where_the_application_is(self):
        with tempfile.TemporaryDirectory() as folder:
            program = bench_run.build("application", Path(folder))
            bench = Bench("myriad", Path(folder), application=program)
            with mock.patch.object(bench, "run", return_value={"commands": ["serve"]}) as run:
                figures = application.asked_at_connect(bench, "tried", "application", 10)
        config = run.call_args.args[-1]
        self.assertIn("enabled = true", config)
        self.assertRegex(config, r'endpoint = "http://127\.0\.0\.1:\d+/connect"')
        self.assertRegex(figures["commands"][0], r"^application --listen 127\.0\.0\.1:\d+$")


if __name__ == "__main__":
    unittest.main()

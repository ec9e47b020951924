"""deploy/prometheus: promtool accepts it, each alert is tested, and leads to what an operator can do."""

import re
import shutil
import subprocess

import pytest
import yaml

from catalogue import ROOT, anchors
from files import PROMETHEUS, RULE_TESTS, RULES, alerts

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (Debian's package prometheus)")


def promtool(*words, directory=RULES.parent):
    done = subprocess.run(["promtool", *map(str, words)], cwd=directory, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@needs_promtool
def test_promtool_finds_no_fault_in_the_rules():
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES.name)
    assert code == 0, said


@needs_promtool
def test_promtool_finds_no_fault_in_the_example():
    code, said = promtool("check", "config", PROMETHEUS.name)
    assert code == 0, said


@needs_promtool
def test_the_parts_of_the_example_that_are_commented_out_are_right_too(tmp_path):
    lines = PROMETHEUS.read_text().splitlines()
    # A comment that is YAML begins with a key or an item; one in prose has no colon at the end of its first word.
    config = "\n".join(re.sub(r"^( *)# (?=( *)(?:- )?[a-z_]+:(?: |$))", r"\1", line) for line in lines)
    parsed = yaml.safe_load(config)
    job = parsed["scrape_configs"][0]
    assert {"authorization", "scheme", "tls_config"} <= set(job) and parsed["alerting"]
    for name in (job["authorization"]["credentials_file"], job["tls_config"]["ca_file"]):
        file = tmp_path / name.rsplit("/", 1)[1]
        file.write_text("key\n")
        config = config.replace(name, str(file))
    (tmp_path / PROMETHEUS.name).write_text(config)
    shutil.copy(RULES, tmp_path)
    code, said = promtool("check", "config", "--syntax-only", PROMETHEUS.name, directory=tmp_path)
    assert code == 0, said


@needs_promtool
def test_alerts_fire_and_stay_silent_as_their_tests_say():
    code, said = promtool("test", "rules", RULE_TESTS.name)
    assert code == 0, said


def test_each_alert_is_tested_both_ways():
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    outcomes = {(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test.get("alert_rule_test", [])}
    names = [alert["alert"] for alert in alerts()]
    assert len(set(names)) == len(names) > 40
    assert outcomes == {(name, fires) for name in names for fires in (True, False)}


def test_each_alert_says_what_it_is_about():
    for alert in alerts():
        assert set(alert["labels"]) == {"severity"}, alert
        assert alert["labels"]["severity"] in ("critical", "warning"), alert
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}, alert
        about_nobody = "absent(" in alert["expr"]
        assert about_nobody or "$labels." in alert["annotations"]["summary"], alert


def test_each_runbook_is_a_section_that_explains_its_alert():
    for alert in alerts():
        page, anchor = alert["annotations"]["runbook"].split("#")
        text = (ROOT / page).read_text()
        headings = anchors(text)
        assert anchor in headings, alert["annotations"]["runbook"]
        section = re.search(rf"^#+ {re.escape(headings[anchor])}\n(.*?)(?=^#|\Z)", text, re.M | re.S)[1]
        row = f"| `{alert['alert']}` {alert['labels']['severity']} |"
        assert row in section, row


def test_the_page_explains_no_alert_that_is_gone():
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert set(re.findall(r"`(Myriad\w+)`", page)) == {alert["alert"] for alert in alerts()}


def test_links_of_the_page_lead_somewhere():
    page = ROOT / "docs" / "monitoring.md"
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    assert len(links) > 20
    for link in links:
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file.read_text()), link


def test_the_chart_has_the_same_rules():
    # Helm reads no file outside of its chart.
    assert (ROOT / "deploy" / "helm" / "myriad" / "rules.yml").read_text() == RULES.read_text()


def test_the_job_of_the_example_is_one_that_the_rules_look_at():
    job = yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"][0]["job_name"]
    patterns = {pattern for alert in alerts() for pattern in re.findall(r'job=~"([^"]*)"', alert["expr"])}
    assert patterns == {"myriad.*"}
    assert re.fullmatch(patterns.pop(), job)

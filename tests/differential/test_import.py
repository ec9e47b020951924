"""Configurations that Centrifugo itself writes are imported without an option that nobody knows, and Myriad starts with them."""

import json
import subprocess

import pytest

import pair
from server import run

FORMS = ["json", "yaml", "toml"]


@pytest.fixture(scope="session")
def original():
    program = pair.program()
    if program is None:
        pytest.skip("centrifugo is built with Go, which is not installed")
    return program


def imported(tmp_path, *arguments):
    output, report = tmp_path / "myriad.toml", tmp_path / "report.json"
    code, _, said = run("config", "import", *arguments, "--output", str(output), "--report", str(report))
    assert code == 0, said
    code, _, said = run("config", "check", str(output))
    assert code == 0, said
    return json.loads(report.read_text()), output.read_text()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", ["defaultconfig", "genconfig"])
def test_files_that_it_writes(original, tmp_path, command, form):
    source = tmp_path / f"config.{form}"
    subprocess.run([original, command, "-c", str(source)], check=True, capture_output=True)
    report, _ = imported(tmp_path, str(source))
    assert report["unknown"] == []
    # Every option has its default: nothing is missed.
    assert report["missing"] == []
    assert report["decisions"] == 0


def test_variables_that_it_writes(original, tmp_path):
    source = tmp_path / "default.env"
    default = subprocess.run([original, "defaultenv"], check=True, capture_output=True, text=True)
    source.write_text(default.stdout)
    report, _ = imported(tmp_path, "--env-file", str(source))
    assert report["unknown"] == [] and report["missing"] == []


@pytest.mark.parametrize("form", FORMS)
def test_the_configuration_of_the_cases(original, tmp_path, form):
    """With namespaces: Centrifugo adds the defaults of each option to it, and writes it in each form."""
    base = tmp_path / "base.json"
    base.write_text(json.dumps(pair.settings(False)))
    source = tmp_path / f"config.{form}"
    subprocess.run([original, "defaultconfig", "-b", str(base), "-c", str(source)], check=True, capture_output=True)
    report, text = imported(tmp_path, str(source))
    assert report["unknown"] == []
    assert text.count("[[channel.namespaces]]") == len(pair.NAMESPACES)

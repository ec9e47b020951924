"""The command line and the config file."""

import os
import re
import subprocess

import pytest

from server import DidNotStart, Server, binary, run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--max-connections", "0"], ["max-connections = 0", "at least 1"]),
        (["serve", "--max-connections", "many"], ["--max-connections", "50k"]),
        (["serve", "--ping-interval", "25"], ["--ping-interval", "unit is missing", "10s"]),
        (["serve", "--driver", "kqueue"], ["io_uring", "epoll", "auto"]),
        (["serve", "--announce", "time"], ["--announce", "CHANNEL=INTERVAL"]),
        (["serve", "--listen", "somewhere"], ["--listen"]),
        (["serve", "--lissen", "127.0.0.1:1"], ["--lissen"]),
        (["serve", "--config", "/nonexistent.toml"], ["/nonexistent.toml", "No such file"]),
        (["dance"], ["dance"]),
        ([], ["serve"]),
    ],
)
def test_bad_arguments_exit_with_104(arguments, words):
    code, stdout, stderr = run(*arguments)
    assert code == 104 and not stdout
    for word in words:
        assert word in stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--max-connections", "0"],
        ["swarm", "ws://127.0.0.1:1/raw", "--connections", "0"],
        ["swarm", "ws://127.0.0.1:1/raw", "--connections", "1", "--connect-timeout", "1s"],
        ["demo", "--connections", "0"],
        ["dance"],
    ],
)
def test_a_closed_stderr_changes_no_exit_code(arguments, tmp_path):
    expected = run(*arguments)[0]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        deaf = subprocess.run([binary(), *arguments], stderr=writer, stdout=subprocess.DEVNULL, timeout=30, cwd=tmp_path)
    finally:
        os.close(writer)
    assert deaf.returncode == expected and expected in (1, 104)


def test_a_bad_log_level_in_the_environment_is_named():
    code, _, stderr = run("serve", environment={"MYRIAD_LOG": "loud"})
    assert code == 104 and "MYRIAD_LOG" in stderr and "loud" in stderr


def test_help_and_version_are_successes():
    for flag in ("--version", "-V"):
        code, stdout, _ = run(flag)
        assert code == 0 and re.fullmatch(r"myriad 0\.1\.0 \(commit [0-9a-f]{12}\)\n|myriad 0\.1\.0 \(commit unknown\)\n", stdout)
    code, stdout, _ = run("serve", "--help")
    assert code == 0
    for flag in ["--listen", "--max-connections", "--driver", "--dev", "--announce", "--config", "--drain"]:
        assert flag in stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-conections = 5", ["max-conections", "line 1"]),
        ('dev = true\nping-interval = "often"', ["line 2", "ping-interval"]),
        ("dev = ", ["line 1"]),
        ("shards = 0", ["shards = 0"]),
    ],
)
def test_a_bad_config_file_is_explained(tmp_path, text, words):
    path = tmp_path / "myriad.toml"
    path.write_text(text)
    code, _, stderr = run("serve", "--config", str(path))
    assert code == 104
    for word in words:
        assert word in stderr


def test_flags_stand_over_the_config_file(tmp_path):
    path = tmp_path / "myriad.toml"
    path.write_text('max-connections = "5"\napi-key = "from-the-file"\ndriver = "epoll"\nanonymous = true\nlog = "warn"\n')
    server = Server.start("--config", str(path), "--api-key", "from-the-flag", dev=False)
    try:
        good = '{"channel": "c", "data": 1}'
        assert server.request("POST", "/api/publish", good, {"X-API-Key": "from-the-file"}).status == 401
        assert server.request("POST", "/api/publish", good, {"X-API-Key": "from-the-flag"}).status == 200
        # The flag of every server here, over the file's 5.
        assert any("epoll" in line and "up to 2,000 connections" in line for line in server.log), server.log
        server.client().close()
    finally:
        assert server.stop() == 0
    assert not any("INFO" in line for line in server.log)


def test_a_forced_driver_that_does_not_exist_here_says_why():
    try:
        Server.start("--driver", "io_uring").stop()
    except DidNotStart as failed:
        pytest.fail(f"io_uring is unavailable and the server did not say so: {failed}")
    except Exception as unavailable:
        assert "--driver epoll" in str(unavailable)

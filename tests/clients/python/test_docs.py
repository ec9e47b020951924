"""Lines of the documentation, as a reader copies them."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from test_tokens import SECRET, token

from server import PATIENCE, ROOT, until


def blocks(page, language):
    """The fenced blocks of a page in that language."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def curls(page):
    """The lines of `curl` of a page, with their comments."""
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("curl ")]


@contextmanager
def running(server, line, key=""):
    """A line of `curl` with the address of this server, and no progress."""
    command = line.replace("127.0.0.1:8000", "localhost:8000").replace("localhost:8000", f"{server.host}:{server.port}")
    assert command != line, line
    environment = {**os.environ, "KEY": key}
    process = subprocess.Popen(
        ["sh", "-c", command.replace("curl ", "exec curl -sS ", 1)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answer_to(server, line, key=""):
    with running(server, line, key) as process:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, line
        return said


def test_the_first_lines_of_python_get_what_they_publish(serve):
    server = serve()
    lines = blocks("protocol.md", "python")[0]
    code = lines.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    assert code != lines
    reader = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout.readline() == "{'text': 'hello'}\n"
    finally:
        reader.kill()
        reader.communicate()


def test_the_lines_about_streams_are_answered_as_they_say(serve):
    server = serve()
    lines = [line for line in curls("streams.md") if "live=" not in line]
    assert len(lines) == 6
    for line in lines:
        status, *expected = re.split(", ", line.rsplit("# ", 1)[1], maxsplit=2)
        head, _, body = answer_to(server, line).replace("\r\n", "\n").partition("\n\n")
        assert head.startswith(f"HTTP/1.1 {status} "), line
        for part in expected:
            if part.startswith("["):
                assert body == part, line
            else:
                assert f"\n{part.lower()}: " in head.lower(), line


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_the_lines_that_read_live_wait_for_what_comes(serve, live):
    server = serve()
    [line] = [line for line in curls("streams.md") if f"live={live}" in line]
    server.publish("orders", 1)
    with running(server, line) as process:
        waits = {"long-poll": "myriad_parked_polls", "sse": "myriad_event_streams"}[live]
        until("it waits", lambda: server.metric(waits) == 1)
        server.publish("orders", 2)
        assert process.stdout.readline().rstrip() == "HTTP/1.1 200 OK"
        if live == "long-poll":
            assert process.stdout.read().endswith("\n[2]")
        else:
            data = (text for text in process.stdout if text.startswith("data:["))
            assert [next(data), next(data)] == ["data:[1]\n", "data:[2]\n"]


def test_the_line_that_publishes_is_answered_as_the_page_says(serve, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text('[channel.without_namespace]\nhistory_size = 10\nhistory_ttl = "1h"\n')
    server = serve("--config", str(config), dev=False)
    [block] = [block for block in blocks("serve.md", "sh") if "curl " in block]
    line, said = block.splitlines()
    assert [line] == curls("serve.md")
    answer = json.loads(answer_to(server, line, server.key))
    epoch = answer["result"]["epoch"]
    assert answer == json.loads(re.sub('"epoch":"[^"]*"', f'"epoch":"{epoch}"', said))


def test_the_line_without_an_sdk_is_told_what_the_page_says(serve, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text(f'[client.token]\nhmac_secret_key = "{SECRET}"\n[channel.without_namespace]\nallow_subscribe_for_client = true\n')
    server = serve("--config", str(config))
    [line] = curls("protocol.md")
    [said] = [block for block in blocks("protocol.md", "") if '{"disconnect":' in block]
    connect, publication, ping, disconnect = said.splitlines()
    with running(server, line.replace("...", token({"sub": "42", "channels": ["news"]}))) as process:
        told = json.loads(process.stdout.readline())["connect"]
        known = json.loads(connect)["connect"]
        assert {name: told[name] for name in known if name not in ("client", "session", "version")} == {
            name: known[name] for name in known if name not in ("client", "session", "version")
        }
        server.request("POST", "/api/publish", '{"channel": "news", "data": {"text":"hello"}}')
        assert process.stdout.readline().rstrip("\n") == publication
        server.signal()
        assert process.stdout.readline().rstrip("\n") == disconnect
    assert ping == "{}"

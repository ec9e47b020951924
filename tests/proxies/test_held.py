"""Responses that are held, or that go on, through a proxy with the configs of deploy/.

Each event is read before its response ends: a proxy that buffers fails here. Between the proxy and the server is a `Wire`, which knows
whether a request came on a connection that had carried another one.
"""

import json
import time
from urllib.parse import quote

import pytest
from proxy import short_timeout
from server import PATIENCE, until
from websockets.sync.client import connect
from wire import Held, Wire

CONFIG = """
[client]
connection_limit_per_address = {limit}
[channel.without_namespace]
history_size = 100
history_ttl = "1h"
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[http_stream]
enabled = true
[sse]
enabled = true
[uni_sse]
enabled = true
[uni_http_stream]
enabled = true
[uni_websocket]
enabled = true
"""
STREAM = "/v1/stream/s"
JSON = "Content-Type: application/json"
CONNECT = '{"id":1,"connect":{}}'
# How each transport of the Centrifuge protocol over HTTP begins.
EMULATED = {
    "http_stream": ("POST", "/connection/http_stream", CONNECT),
    "sse": ("GET", f"/connection/sse?cf_connect={quote(CONNECT)}", ""),
}
UNIDIRECTIONAL = {
    "uni_http_stream": ("POST", "/connection/uni_http_stream", "{}"),
    "uni_sse": ("GET", "/connection/uni_sse", ""),
}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


class Path:
    """A server, a wire and a proxy, one behind the other."""

    def __init__(self, server, wire, proxy):
        self.server, self.wire, self.proxy = server, wire, proxy
        self.key = [f"X-API-Key: {server.key}", JSON]

    def held(self, address="127.0.0.1"):
        return Held(self.proxy, address)

    def append(self, held, value):
        response, _ = held.ask("POST", STREAM, compact(value), headers=self.key)
        assert response.status == 204

    def publish(self, held, channel, data):
        self.api(held, "publish", channel=channel, data=data)

    def api(self, held, method, **command):
        response, body = held.ask("POST", f"/api/{method}", compact(command), headers=self.key)
        assert (response.status, "error" in json.loads(body)) == (200, False), body

    def creates_stream(self, held):
        response, _ = held.ask("PUT", STREAM, headers=self.key)
        assert response.status == 201
        return response.headers["Stream-Next-Offset"]

    def with_request(self, text):
        """The connections of the proxy that carried a request of that kind."""
        return [lines for lines in self.wire.requests() if any(text in line for line in lines)]

    def parked(self, count):
        until(f"{count} are held", lambda: self.server.metric("myriad_parked_polls") == count)


@pytest.fixture
def path(serve, front, tmp_path):
    wires = []

    def make(*flags, limit=0, replaced=()):
        file = tmp_path / "held.toml"
        file.write_text(CONFIG.format(limit=limit))
        server = serve("--config", str(file), "--trusted-proxies", "127.0.0.1", *flags)
        wires.append(Wire(server))
        return Path(server, wires[-1], front(wires[-1], replaced=replaced))

    yield make
    for wire in wires:
        wire.stop()


def test_a_long_poll_is_answered_at_once_and_its_connection_reused(path):
    path = path()
    with path.held() as reader, path.held() as writer:
        offset = path.creates_stream(writer)
        for number in range(3):
            reader.send("GET", f"{STREAM}?live=long-poll&offset={offset}")
            path.parked(1)
            path.append(writer, {"n": number})
            response = reader.begin()
            assert (response.status, response.read()) == (200, b'[{"n":%d}]' % number)
            offset = response.headers["Stream-Next-Offset"]
    # Which of the two carries which request is the proxy's choice.
    assert len(path.wire.requests()) == 2, "a connection for each client, for all their requests"


def test_a_client_may_write_and_read_a_stream_by_turns(path):
    path = path()
    with path.held() as client:
        offset = path.creates_stream(client)
        for number in range(3):
            path.append(client, number)
            response, body = client.ask("GET", f"{STREAM}?live=long-poll&offset={offset}")
            assert (response.status, body) == (200, f"[{number}]")
            offset = response.headers["Stream-Next-Offset"]
    assert len(path.with_request(STREAM)) == 1
    assert path.server.metric("myriad_hand_backs_total") == 3


def test_a_poll_may_be_held_as_long_as_the_server_likes(path, kind):
    path = path("--poll-timeout", "1s", replaced=[(line, short_timeout(line)) for line in kind.timeouts])
    with path.held() as reader:
        offset = path.creates_stream(reader)
        for _ in range(2):
            response, _ = reader.ask("GET", f"{STREAM}?live=long-poll&offset={offset}")
            assert response.status == 204


def test_the_configured_timeouts_are_longer_than_the_longest_poll_by_default(kind):
    for line in kind.timeouts:
        assert int(line.rstrip(";").split()[-1].removesuffix("s")) > 30, line


def follows_a_stream(path):
    with path.held() as reader, path.held() as writer:
        path.creates_stream(writer)
        reader.send("GET", f"{STREAM}?live=sse&offset=-1")
        response = reader.begin()
        assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
        took = []
        for number in range(3):
            began = time.monotonic()
            path.append(writer, {"n": number})
            assert f'"n":{number}' in reader.line_with('"n"')
            took.append(time.monotonic() - began)
    # The kernel keeps for 200 ms what a proxy gives it as a part of more.
    assert min(took) < 0.15, took
    until("nobody reads", lambda: path.server.metric("myriad_event_streams") == 0)
    assert len(path.with_request("POST")) == 1


def test_events_of_a_stream_come_one_by_one(path):
    follows_a_stream(path())


def test_nginx_obeys_a_response_that_wants_no_buffer(path, kind):
    if kind.name != "nginx":
        pytest.skip("HAProxy has no such buffer")
    follows_a_stream(path(replaced=[("proxy_buffering off;", "proxy_buffering on;")]))


@pytest.mark.parametrize("transport", EMULATED)
def test_commands_over_http(path, transport):
    path = path()
    method, target, body = EMULATED[transport]
    with path.held() as reader, path.held() as commander:
        reader.send(method, target, body)
        assert reader.begin().status == 200
        connected = json.loads(reader.line_with('"connect"').removeprefix("data: "))["connect"]
        for number in range(3):
            command = json.dumps({"id": 2 + number, "subscribe": {"channel": f"c{number}"}})
            request = {"node": connected["node"], "session": connected["session"], "data": command}
            response, _ = commander.ask("POST", "/emulation", json.dumps(request), headers=[JSON])
            assert response.status == 204
            reader.line_with('"subscribe"')
            path.publish(commander, f"c{number}", {"n": number})
            assert f'"n":{number}' in reader.line_with('"pub"')
    assert len(path.with_request("/emulation")) == 1
    assert len(path.with_request("/api/publish")) == 1


@pytest.mark.parametrize("transport", UNIDIRECTIONAL)
def test_pushes_over_http(path, transport):
    path = path()
    method, target, body = UNIDIRECTIONAL[transport]
    with path.held() as reader, path.held() as publisher:
        reader.send(method, target, body)
        assert reader.begin().status == 200
        client = json.loads(reader.line_with('"connect"').removeprefix("data: "))["connect"]["client"]
        path.api(publisher, "subscribe", user="", client=client, channel="room")
        reader.line_with('"subscribe"')
        for number in range(3):
            path.publish(publisher, "room", {"n": number})
            assert f'"n":{number}' in reader.line_with('"pub"')
    assert len(path.with_request("/api/")) == 1
    until("nobody is left", lambda: path.server.metric("myriad_connections") == 0)


def test_a_websocket_of_pushes(path):
    path = path()
    address = f"ws://{path.proxy.address}/connection/uni_websocket"
    with connect(address, open_timeout=PATIENCE) as reader, path.held() as publisher:
        reader.send("{}")
        client = json.loads(reader.recv(timeout=PATIENCE))["connect"]["client"]
        path.api(publisher, "subscribe", user="", client=client, channel="room")
        assert "subscribe" in json.loads(reader.recv(timeout=PATIENCE))
        path.publish(publisher, "room", {"n": 1})
        assert json.loads(reader.recv(timeout=PATIENCE))["pub"]["data"] == {"n": 1}


def test_a_response_that_goes_on_begins_behind_other_requests(path):
    path = path()
    with path.held() as client, path.held() as writer:
        path.creates_stream(client)
        path.append(client, 1)
        client.send("GET", f"{STREAM}?live=sse&offset=-1")
        assert client.begin().status == 200
        assert client.line_with("1")
        path.append(writer, 22)
        assert client.line_with("22")
    [lines] = path.with_request("live=sse")
    assert len(lines) == 3, "it came on the connection of the requests before it"


def test_held_requests_count_for_the_clients_address(path):
    path = path(limit=2)
    with path.held() as writer:
        offset = path.creates_stream(writer)
    polls = f"{STREAM}?live=long-poll&offset={offset}"
    held = [path.held(address) for address in ("127.0.0.2", "127.0.0.2", "127.0.0.3")]
    for client in held:
        client.send("GET", polls)
    path.parked(3)
    with path.held("127.0.0.2") as refused:
        response, body = refused.ask("GET", polls)
        assert response.status == 429, body
    with path.held("127.0.0.3") as other:
        other.send("GET", polls)
        path.parked(4)
    for client in held:
        client.__exit__()

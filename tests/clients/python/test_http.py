"""Requests that are not streams, and input that is not HTTP: statuses, sentences, and freed memory."""

import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import ports
from server import UPGRADE, answer_of, receive_head, until

GOOD = '{"channel": "c", "data": 1}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "empty"),
        ("{", "line 1"),
        ('{"channel": "c",\n "data": }', "line 2"),
        ('{"channel": 7, "data": 1}', "channel"),
        ("channel=c&data=1", "line 1"),
    ],
)
def test_bodies_that_are_no_request_are_explained(serve, body, words):
    answer = serve().request("POST", "/api/publish", body)
    assert answer.status == 400
    error = answer.json()["error"]
    assert words in error["message"] and error["code"] == "malformed"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"data": 1}', "channel"),
        ('{"channel": "c"}', "is missing"),
        ('{"channel": "c", "b64data": "%%"}', "base64"),
        ('{"channel": "", "data": 1}', "1 to 255"),
    ],
)
def test_bad_publications_are_errors_of_the_api(serve, body, words):
    server = serve()
    plain = server.request("POST", "/api/publish", body)
    assert plain.json() == {"error": {"code": 107, "message": "bad request"}}, "libraries expect no other field"
    explained = {"X-Myriad-Debug": "true"}
    answer = server.request("POST", "/api/publish", body, explained)
    assert answer.status == 200
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == (107, "bad request") and words in error["detail"]
    transport = server.request("POST", "/api/publish", body, {"X-Centrifugo-Error-Mode": "transport", **explained})
    assert (transport.status, transport.json()) == (400, error)


def test_bytes_that_are_no_text_are_explained(serve):
    answer = serve().request("POST", "/api/publish", b'{"channel": "\xff", "data": 1}')
    assert answer.status == 400 and "UTF-8" in answer.json()["error"]["message"]


def test_the_key(serve):
    server = serve(dev=False)
    assert server.key, server.log
    assert sum(server.key in line for line in server.log) == 1

    def publish(**headers):
        return server.request("POST", "/api/publish", GOOD, {name.replace("_", "-"): value for name, value in headers.items()})

    assert publish().status == 401
    assert "X-API-Key" in publish().json()["error"]["message"]
    assert publish(X_API_Key=server.key[:-1]).status == 401
    assert publish(X_API_Key=server.key).status == 200
    assert publish(Authorization=f"apikey {server.key}").status == 200


def test_a_configured_key_is_asked_for_and_never_shown(serve):
    server = serve("--api-key", "chosen-by-me", dev=False)
    assert server.request("POST", "/api/publish", GOOD, {"X-API-Key": "chosen-by-me"}).status == 200
    assert not any("chosen-by-me" in line for line in server.log)


def test_paths_and_methods(serve):
    server = serve()
    unknown = server.request("GET", "/nothing")
    assert unknown.status == 404 and "/api/publish" in unknown.body
    wrong = server.request("GET", "/api/publish")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")
    plain = server.request("GET", "/raw?channel=c")
    assert plain.status == 426 and plain.headers["Upgrade"].lower() == "websocket"
    posted = server.request("POST", "/raw?channel=c", GOOD)
    assert posted.status == 405 and "Allow" in posted.headers
    assert server.request("GET", "/healthz").json()["status"] == "ok"


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_a_publication_is_told_so_while_it_is_sent(serve, chunked):
    piece = b"x" * 65_536
    body = (piece for _ in range(64)) if chunked else piece * 64
    answer = serve().request("POST", "/api/publish", body)
    assert answer.status == 413
    assert "1048576" in answer.json()["error"]["message"]


def test_heads_out_of_bounds(serve):
    server = serve()
    line = "GET /raw?channel=c HTTP/1.1\r\nHost: localhost\r\n"
    long = server.raw(line + f"X-Long: {'x' * 33_000}\r\n\r\n")
    assert long.status == 431 and long.body
    many = server.raw(line + "".join(f"X-{number}: 1\r\n" for number in range(130)) + "\r\n")
    assert many.status == 431 and many.body
    assert server.raw("GET /raw?channel=c HTTP/1.1\r\n" + UPGRADE + "\r\n").status == 400, "no Host"
    assert server.raw("nonsense\r\n\r\n").status == 400
    version = server.raw(line + UPGRADE.replace("Version: 13", "Version: 12") + "\r\n")
    assert (version.status, version.headers["Sec-WebSocket-Version"]) == (426, "13")
    assert server.raw(line + UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", "short") + "\r\n").status == 400
    for label in ["head_too_long", "too_many_headers", "host", "websocket_version", "websocket_key"]:
        assert server.metric(f'myriad_upgrades_refused_total{{reason="{label}"}}') == 1, label


def test_a_slow_handshake_is_told_so_and_its_memory_comes_back(serve):
    server = serve("--handshake-timeout", "300ms")
    slow = [server.socket() for _ in range(200)]
    for number, connection in enumerate(slow):
        # Some say nothing at all, some the half of a head.
        if number % 2:
            connection.sendall(b"GET /raw?channel=c HTTP/1.1\r\nHost: he")
    for connection in slow:
        answer = answer_of(connection)
        assert answer.status == 408 and answer.body
        assert connection.recv(1) == b""
        connection.close()
    assert server.metric('myriad_closes_total{reason="handshake_timeout"}') == 200
    # The connection that asks is counted as long as its shard has it.
    until("their records are free", lambda: server.metric("myriad_connections") <= 1)
    assert server.metric("myriad_buffered_bytes") == 0


def test_a_full_server_answers_503_and_when_to_come_back(serve):
    server = serve("--max-connections", "10")
    clients = [server.client() for _ in range(10)]
    for _ in range(20):
        refused = server.raw("GET /raw?channel=c HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE + "\r\n")
        assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0
    assert server.request("GET", "/healthz").status == 200
    assert server.metric('myriad_upgrades_refused_total{reason="full"}') == 20
    for client in clients:
        client.close()


def test_one_port_or_two(serve):
    one = serve()
    assert one.request("GET", "/metrics").status == 200
    port = ports.reserve()
    two = serve("--internal-listen", f"127.0.0.1:{port}")
    assert two.request("GET", "/metrics").status == 404
    public, two.port = two.port, port
    assert two.request("GET", "/metrics").status == 200
    assert two.publish("c", 1) > 0
    two.port = public


def test_metrics_parse_and_count(serve):
    server = serve()
    with server.client() as client:
        server.publish("c", "x")
        client.recv(timeout=30)
        answer = server.request("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in text_string_to_metric_families(answer.body)}
    samples = {(sample.name, tuple(sample.labels.values())): sample.value for family in families.values() for sample in family.samples}
    assert samples["myriad_upgrades_total", ()] == 1
    assert samples["myriad_publications_total", ()] == 1
    assert samples["myriad_deliveries_total", ()] == 1
    assert samples["myriad_closes_total", ("slow_consumer",)] == 0
    assert samples["myriad_api_requests_total", ("/api/publish", "200")] == 1
    assert families["myriad_turn_duration_seconds"].type == "histogram"
    assert samples["process_resident_memory_bytes", ()] > 1 << 20


def test_announcements_carry_the_time(serve):
    server = serve("--announce", "time=50ms", "--announce", "other=1h")
    with server.client("/raw?channel=time") as client:
        first, second = (json.loads(client.recv(timeout=30)) for _ in range(2))
    assert first["unix_ms"] < second["unix_ms"]
    assert first["time"].endswith("Z")


def test_streams_by_http_1_0(serve):
    server = serve()
    server.publish("room", 1)
    with server.socket() as held, server.socket() as events:
        held.sendall(b"GET /v1/stream/room?offset=now&live=long-poll HTTP/1.0\r\n\r\n")
        events.sendall(b"GET /v1/stream/room?offset=-1&live=sse HTTP/1.0\r\n\r\n")
        until("both wait", lambda: server.metric("myriad_parked_polls") == server.metric("myriad_event_streams") == 1)
        server.publish("room", 2)
        answer = answer_of(held)
        assert (answer.status, answer.body, answer.headers["Connection"]) == (200, "[2]", "close")
        assert held.recv(1) == b""
        # Without chunks the end of the connection is the end of the body.
        head = receive_head(events).lower()
        assert head.startswith(b"http/1.1 200 ") and b"transfer-encoding" not in head and b"connection: close" in head
        assert server.request("DELETE", "/v1/stream/room").status == 204
        body = b"".join(iter(lambda: events.recv(65_536), b"")).decode()
        assert re.match(r"retry:\d+\nevent: data\ndata:\[1\]\n\nevent: control\n", body)
        assert re.findall(r"^data:(\[.*\])$", body, re.M) == ["[1]", "[2]"]


def test_a_question_about_a_stream_has_no_body_and_does_not_wait(serve):
    server = serve()
    server.publish("room", 1)
    for query in ["", "?offset=-1", "?offset=now&live=long-poll", "?offset=-1&live=sse"]:
        with server.socket() as plain:
            plain.sendall(f"HEAD /v1/stream/room{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            head = receive_head(plain).decode().lower()
            assert head.startswith("http/1.1 200 ") and "\r\nstream-next-offset: " in head, query
            assert plain.recv(1) == b"", query

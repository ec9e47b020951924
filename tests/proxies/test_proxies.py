"""What clients and publishers see of Myriad through a proxy with the configs of deploy/."""

import base64
import http.client
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from proxy import short_timeout
from server import PATIENCE, UPGRADE, Answer, answer_of, receive_head, run, until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

# Defaults of `myriad serve`, in seconds: silence on a healthy connection is never longer.
PING_INTERVAL, PONG_TIMEOUT = 25, 10


def client(proxy, path="/raw?channel=c", **options):
    return connect(f"ws://{proxy.address}{path}", open_timeout=PATIENCE, **options)


def request(proxy, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def publish(proxy, key, **publication):
    return request(proxy, "POST", "/api/publish", json.dumps(publication), {"X-API-Key": key})


def test_publications_arrive_in_order(serve, front):
    server = serve()
    proxy = front(server)
    with client(proxy) as first, client(proxy) as second:
        for number in range(50):
            assert publish(proxy, server.key, channel="c", data=f"publication {number}").status == 200
        for reader in (first, second):
            for number in range(50):
                assert reader.recv(timeout=PATIENCE) == f"publication {number}"


def test_compression_is_agreed_end_to_end(serve, front):
    server = serve()
    proxy = front(server)
    with client(proxy) as reader:
        assert "permessage-deflate" in reader.response.headers["Sec-WebSocket-Extensions"]
        assert publish(proxy, server.key, channel="c", data="long " * 1000).status == 200
        assert reader.recv(timeout=PATIENCE) == "long " * 1000
    assert server.metric("myriad_compressed_frames_total") == 1


def test_a_large_publication_passes_and_a_larger_one_is_refused(serve, front):
    server = serve()
    proxy = front(server)
    data = bytes(range(256)) * 2800
    with client(proxy, max_size=None) as reader:
        answer = publish(proxy, server.key, channel="c", b64data=base64.b64encode(data).decode())
        assert answer.status == 200, answer
        assert reader.recv(timeout=PATIENCE) == data
    assert publish(proxy, server.key, channel="c", data="x" * (1 << 20)).status == 413


def test_the_servers_answers_come_through(serve, front):
    server = serve()
    proxy = front(server)
    answer = publish(proxy, "wrong key", channel="c", data="x")
    assert (answer.status, "error" in answer.json()) == (401, True)
    with pytest.raises(InvalidStatus) as refused, client(proxy, "/raw"):
        pass
    assert refused.value.response.status_code == 400
    assert b"channel" in refused.value.response.body


def test_a_websocket_opens_after_other_requests(serve, front, kind):
    """The proxy keeps its connections to Myriad, and offers one to a WebSocket on which others have had answers."""
    server = serve()
    proxy = front(server)
    for _ in range(10):
        assert request(proxy, "GET", "/healthz").status == 200
        assert publish(proxy, server.key, channel="other", data="x").status == 200
        with client(proxy) as reader:
            assert publish(proxy, server.key, channel="c", data="hello").status == 200
            assert reader.recv(timeout=PATIENCE) == "hello"
    reused = server.metric("myriad_hand_backs_total")
    # HAProxy reuses connections of others for a client's later requests only (`http-reuse safe`).
    assert reused > 0 or kind.name == "haproxy", f"{kind.name} has not reused a connection for a WebSocket"
    until("nobody is left", lambda: server.metric("myriad_connections") == 0)


def test_a_websocket_opens_on_a_connection_that_made_a_request(serve, front):
    server = serve()
    proxy = front(server)
    with socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert answer_of(plain).status == 200
        plain.sendall(f"GET /raw?channel=c HTTP/1.1\r\nHost: here\r\n{UPGRADE}\r\n".encode())
        assert receive_head(plain).startswith(b"HTTP/1.1 101 ")
        assert server.metric("myriad_hand_backs_total") == 1


def test_tls_ends_at_the_proxy(serve, front, tmp_path):
    server = serve()
    proxy = front(server, tls=True)
    trust = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    with connect(f"wss://{proxy.address}/raw?channel=c", ssl=trust, open_timeout=PATIENCE) as reader:
        assert publish(server, server.key, channel="c", data="secret").status == 200
        assert reader.recv(timeout=PATIENCE) == "secret"


def test_a_crowd_speaks_tls_to_the_proxy(serve, front, tmp_path):
    server = serve()
    proxy = front(server, tls=True)
    report = tmp_path / "report.json"
    code, out, err = run(
        "swarm", f"wss://{proxy.address}/raw?channel=c", "-c", "50", "--ca", str(tmp_path / "cert.pem"),
        "--publish", f"http://{server.host}:{server.port}/api/publish", "--api-key", server.key,
        "--every", "200ms", "--pushes", "3", "--live", "off", "--json", str(report),
        "--threshold", "reach>=100%", "--threshold", "errors==0", "--threshold", "setup:connected==50",
    )  # fmt: skip
    assert code == 0, out + err
    assert json.loads(report.read_text())["setup"]["tls"]["handshakes"] == 50


def test_metrics_stay_inside(serve, front):
    server = serve()
    proxy = front(server)
    assert request(proxy, "GET", "/metrics").status == 404
    assert request(proxy, "GET", "/healthz").status == 200
    assert server.request("GET", "/metrics").status == 200


def test_pings_keep_an_idle_connection_open(serve, front, kind):
    # Time enough for an answer where the machine is slow.
    server = serve("--ping-interval", "2s", "--pong-timeout", "2s")
    proxy = front(server, replaced=[(line, short_timeout(line)) for line in kind.timeouts])
    with client(proxy, ping_interval=None) as reader:
        # For longer than the proxy keeps a connection on which nothing moves.
        until("four pings", lambda: server.metric("myriad_pings_total") >= 4)
        assert publish(proxy, server.key, channel="c", data="still here").status == 200
        assert reader.recv(timeout=PATIENCE) == "still here"


def test_the_configured_timeouts_are_longer_than_silence(kind):
    for line in kind.timeouts:
        seconds = int(line.rstrip(";").split()[-1].removesuffix("s"))
        assert seconds > PING_INTERVAL + PONG_TIMEOUT, line


def test_a_client_that_leaves_leaves_the_server_too(serve, front):
    server = serve()
    proxy = front(server)
    with client(proxy):
        assert server.metric("myriad_connections") >= 1
    until("nobody is left", lambda: server.metric("myriad_connections") == 0)


def test_a_servers_farewell_comes_through(serve, front):
    server = serve()
    proxy = front(server)
    with client(proxy) as reader:
        server.signal()
        with pytest.raises(ConnectionClosed) as closed:
            reader.recv(timeout=PATIENCE)
    assert closed.value.rcvd.code == 1001


def test_a_crowd_is_reached_through_the_proxy(serve, front):
    server = serve()
    proxy = front(server)
    code, out, err = run(
        "swarm", f"ws://{proxy.address}/raw?channel=c", "--connections", "400", "--live", "off",
        "--publish", f"http://{server.host}:{server.port}/api/publish", "--api-key", server.key,
        "--every", "100ms", "--pushes", "3", "--threshold", "reach>=1",
    )  # fmt: skip
    assert code == 0, out + err


def limited(serve, tmp_path, *flags):
    """A server that allows two connections of an address, and trusts the proxy."""
    config = tmp_path / "limits.toml"
    config.write_text("[client]\nconnection_limit_per_address = 2\n")
    return serve("--config", str(config), "--trusted-proxies", "127.0.0.1", *flags)


def refuses_a_third_client_of_an_address(proxy, server):
    def from_address(address, **options):
        return client(proxy, source_address=(address, 0), **options)

    with from_address("127.0.0.2"), from_address("127.0.0.2"):
        with pytest.raises(InvalidStatus) as refused, from_address("127.0.0.2"):
            pass
        assert refused.value.response.status_code == 429
        # A client's own word about its address does not count.
        forged = {"X-Forwarded-For": "127.0.0.9", "Forwarded": "for=127.0.0.9"}
        with pytest.raises(InvalidStatus), from_address("127.0.0.2", additional_headers=forged):
            pass
        with from_address("127.0.0.3"), from_address("127.0.0.3") as other:
            assert publish(proxy, server.key, channel="c", data="hello").status == 200
            assert other.recv(timeout=PATIENCE) == "hello"


def test_addresses_are_limited_by_what_the_proxy_says_of_them(serve, front, tmp_path):
    server = limited(serve, tmp_path)
    refuses_a_third_client_of_an_address(front(server), server)


def test_addresses_are_limited_by_the_proxy_protocol(serve, front, kind, tmp_path):
    if not kind.sends_proxy_protocol:
        pytest.skip(f"{kind.name} does not send the PROXY protocol for HTTP")
    server = limited(serve, tmp_path, "--proxy-protocol", "--client-address-header", "x-real-ip")
    refuses_a_third_client_of_an_address(front(server, proxy_protocol=True), server)


class Full(BaseHTTPRequestHandler):
    """A server that is healthy and has no room: it answers every request with 503."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200 if self.path == "/healthz" else 503)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts += 1
        self.answer(503)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def full():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Full)
    server.posts = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_clients_of_a_full_server_go_to_another(serve, front, full):
    server = serve()
    proxy = front(f"127.0.0.1:{full.server_port}", server)
    for _ in range(6):
        with client(proxy) as reader:
            assert publish(server, server.key, channel="c", data="welcome").status == 200
            assert reader.recv(timeout=PATIENCE) == "welcome"


def test_a_publication_is_never_sent_twice(serve, front, full):
    server = serve()
    proxy = front(f"127.0.0.1:{full.server_port}", server)
    statuses = [publish(proxy, server.key, channel="c", data="once").status for _ in range(6)]
    accepted = server.metric("myriad_publications_total")
    assert set(statuses) <= {200, 503}
    assert (statuses.count(200), statuses.count(503)) == (accepted, full.posts)

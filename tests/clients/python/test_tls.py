"""Clients of Python over TLS: `websockets`, `httpx`, the SDK, `cent` and the client of streams. And certificates that change meanwhile."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import threading
from ssl import TLSVersion

import aiohttp
import cent
import httpx
import pytest
import requests
from cent import dto
from certificates import Authority
from durable_streams import AsyncDurableStream, DurableStream, astream, stream
from test_durable_streams import JSON, LIVE, first, take
from test_sdk import CONFIG, api, protobuf, running  # noqa: F401: a fixture
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server import PATIENCE, until

VERSIONS = [TLSVersion.TLSv1_3, TLSVersion.TLSv1_2]


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def secure(serve, authority):
    """Starts a server whose certificate clients believe."""

    def start(*flags, **settings):
        authority.issue()
        return serve(*authority.flags(), *flags, trust=authority.context(), **settings)

    return start


class Client:
    """A WebSocket over TLS. The package's synchronous client reads in one thread and writes in another: before Python 3.13 it loses its
    request now and then, when TLS 1.3 tickets arrive meanwhile, whoever the server is. So this is the asynchronous one."""

    def __init__(self, loop, socket):
        self.loop = loop
        self.socket = socket

    def pinged(self):
        """Pings, and waits for the pong."""

        async def ping():
            await (await self.socket.ping())

        self.loop(ping())

    def __getattr__(self, name):
        return lambda *arguments: self.loop(getattr(self.socket, name)(*arguments))


@pytest.fixture
def client_of():
    """Opens clients, whose loop runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sockets = []

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, PATIENCE), loop).result()

    def open_client(server, path="/raw?channel=c", context=None):
        options = {"ssl": context or server.trust, "compression": None, "max_size": None, "proxy": None}
        sockets.append(run(connect(server.url("ws", path), **options).__aenter__()))
        return Client(run, sockets[-1])

    yield open_client

    async def end():
        for socket in sockets:
            socket.transport.abort()
        await asyncio.gather(*(socket.wait_closed() for socket in sockets))

    run(end())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_websockets_of_every_version(secure, authority, client_of):
    server = secure("--message-bytes-max", "1MiB", "--outbound-bytes-max", "8MiB")
    clients = []
    for version in VERSIONS:
        context = authority.context(version)
        echo = client_of(server, "/echo", context)
        for length in (0, 1, 125, 126, 16_380, 16_384, 16_385, 65_536, 1 << 20):
            sent = os.urandom(length)
            echo.send(sent)
            assert echo.recv() == sent
        echo.pinged()
        echo.close(4000, "done")
        assert echo.socket.close_code == 4000
        clients.append(client_of(server, context=context))
    for number in range(100):
        server.publish("c", number)
    for client in clients:
        assert [client.recv() for _ in range(100)] == [str(number) for number in range(100)]
    server.signal()
    for client in clients:
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd.code == 1001


def test_httpx(secure, authority):
    server = secure()
    for version in VERSIONS:
        channel = version.name.lower()
        with httpx.Client(base_url=server.url("http"), verify=authority.context(version), timeout=PATIENCE) as client:
            used = set()
            for number in range(10):
                answer = client.post("/api/publish", json={"channel": channel, "data": number})
                assert answer.json()["result"]["offset"] == number + 1
                items = client.get(f"/v1/stream/{channel}?offset=-1")
                assert items.json() == list(range(number + 1))
                for response in (answer, items):
                    used.add(response.extensions["network_stream"].get_extra_info("client_addr"))
            assert len(used) == 1, "one connection for shards and the control plane"
            with client.stream("GET", f"/v1/stream/{channel}?offset=-1&live=sse") as events:
                seen = 0
                for line in events.iter_lines():
                    if not line.startswith("data:["):
                        continue
                    seen += len(json.loads(line.removeprefix("data:")))
                    if seen == 13:
                        break
                    # One more after each that was heard.
                    server.publish(channel, seen)


def test_the_sdk(secure, protobuf, tmp_path):  # noqa: F811
    config = tmp_path / "myriad.toml"
    config.write_text(CONFIG)
    server = secure("--config", str(config))

    async def body(server, user):
        one, other = await user("42"), await user("43")
        room, others = await one.subscribe("room"), await other.subscribe("room")
        for number in range(20):
            await one.publish("room", {"number": number, "text": "k\u00e4se\n"})
        expected = [{"number": number, "text": "k\u00e4se\n"} for number in range(20)]
        assert await room.values(20) == await others.values(20) == expected
        page = await room.sdk.history(limit=2, reverse=True)
        assert [one.decode(publication.data) for publication in page.publications] == expected[:-3:-1]
        assert len((await room.sdk.presence()).clients) == 2
        for number in range(10):
            one.cut()
            await one.events.next("connecting")
            await api(server, "room", number)
            assert await room.value() == number
            assert (await room.events.next("subscribed")).recovered
        assert await others.values(10) == list(range(10))

    running(server, protobuf)(body)


def test_cent(secure, authority, tmp_path):
    server = secure("--api-key", "k", dev=False)
    with requests.Session() as session:
        # Without the machine's own list of authorities, which the environment may name.
        session.trust_env, session.verify = False, str(authority.file)
        client = cent.Client(server.url("http", "/api"), "k", timeout=PATIENCE, session=session)
        client.publish(dto.PublishRequest(channel="c", data={"n": 1}))
        assert client.info(dto.InfoRequest()).nodes[0].num_clients == 0

    async def asking():
        connector = aiohttp.TCPConnector(ssl=authority.context())
        async with aiohttp.ClientSession(connector=connector) as session:
            client = cent.AsyncClient(server.url("http", "/api"), "k", timeout=PATIENCE, session=session)
            await asyncio.gather(*(client.publish(dto.PublishRequest(channel="c", data=n)) for n in range(50)))

    asyncio.run(asking())
    assert server.metric('myriad_tls_handshakes_failed_total{reason="protocol"}') == 0


def test_streams(secure, authority):
    server = secure()
    expected = [{"number": number} for number in range(30)]
    with httpx.Client(verify=authority.context(), timeout=PATIENCE) as client:
        address = server.url("http", "/v1/stream/sync")
        handle = DurableStream.create(address, content_type=JSON, client=client)
        for item in expected:
            handle.append(item)
        for live in LIVE:
            with stream(address, offset="-1", live=live, client=client) as response:
                assert first(response, 30) == expected

    async def asking():
        address = server.url("http", "/v1/stream/async")
        async with httpx.AsyncClient(verify=authority.context(), timeout=PATIENCE) as client:
            handle = await AsyncDurableStream.create(address, content_type=JSON, body=["first"], client=client)
            for live in LIVE:
                async with await astream(address, offset="-1", live=live, client=client) as response:
                    assert (await take(response, 1))[0] == "first"
                    await handle.append(live)
            async with await astream(address, offset="-1", live=False, client=client) as response:
                assert await response.read_json() == ["first", *LIVE]

    asyncio.run(asking())


def shown(server, authority):
    """The certificate that a new client gets."""
    host, port = server.secure.split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as plain:
        with authority.context().wrap_socket(plain, server_hostname="localhost") as client:
            return client.getpeercert(binary_form=True)


class Crowd:
    """Clients that all hear the same."""

    def __init__(self, server, clients):
        self.server = server
        self.clients = clients

    def hears(self, data):
        self.server.publish("c", data)
        for client in self.clients:
            assert client.recv() == data


@pytest.mark.parametrize("by", ["signal", "itself"])
def test_a_certificate_changes_and_nobody_is_closed(secure, authority, client_of, tmp_path, by):
    # A server without a config file takes SIGHUP for the end of its terminal.
    config = tmp_path / "myriad.toml"
    config.write_text("")
    server = secure("--config", str(config))
    before = shown(server, authority)
    crowd = Crowd(server, [client_of(server) for _ in range(200)])
    crowd.hears("before")

    after = authority.issue()
    if by == "signal":
        server.signal(signal.SIGHUP)
    round = 0
    while shown(server, authority) == before:
        round += 1
        crowd.hears(f"while it changes, {round}")
    assert shown(server, authority) == after
    crowd.hears("after")

    # The key of another certificate: a new certificate whose key has not come yet, say.
    authority.issue(file="other")
    (authority.folder / "own.key").write_bytes((authority.folder / "other.key").read_bytes())
    if by == "signal":
        server.signal(signal.SIGHUP)
    until("it is refused", lambda: any("tls-key" in line for line in list(server.log)))
    assert shown(server, authority) == after
    crowd.hears("after a pair that was refused")

    # And the right one helps.
    mended = authority.issue()
    if by == "signal":
        server.signal(signal.SIGHUP)
    until("the mended pair is used", lambda: shown(server, authority) == mended)
    crowd.hears("at the end")
    assert server.metric('myriad_tls_connections{version="1.3"}') == 200


def test_who_does_not_believe_the_certificate_goes(secure, client_of):
    server = secure()
    client = client_of(server)
    host, port = server.secure.split(":")
    for version in VERSIONS:
        doubtful = ssl.create_default_context()
        doubtful.minimum_version = doubtful.maximum_version = version
        with socket.create_connection((host, int(port)), PATIENCE) as plain, pytest.raises(ssl.SSLCertVerificationError):
            doubtful.wrap_socket(plain, server_hostname="localhost")
    until("both are counted", lambda: server.metric('myriad_tls_handshakes_failed_total{reason="alert"}') == 2)
    server.publish("c", "on")
    assert client.recv() == "on"


def test_connections_that_are_cut_anywhere_leave_nothing(secure, authority):
    server = secure()
    host, port = server.secure.split(":")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = authority.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    flight = outgoing.read()
    for length in range(0, len(flight), 7):
        with socket.create_connection((host, int(port)), PATIENCE) as plain:
            plain.sendall(flight[:length])
    until("all have gone", lambda: server.metric("myriad_tls_handshakes_under_way") == 0)
    until("their records are free", lambda: server.metric("myriad_connections") <= 1)
    assert shown(server, authority)

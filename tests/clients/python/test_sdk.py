"""The server through the SDK `centrifuge-python`, in both encodings of the Centrifuge protocol."""

import asyncio
import json
import re
import uuid
from pathlib import Path

import pytest
import websockets
from centrifuge import (
    CentrifugeError,
    Client,
    DeltaType,
    Filter,
    ReplyError,
    StreamPosition,
)

# A test that waits longer has failed.
PATIENCE = 30
RIGHTS = "".join(
    f"allow_{right}_for_client = true\nallow_{right}_for_anonymous = true\n"
    for right in ["subscribe", "publish", "history", "presence"]
)
HISTORY = f'history_size = 10000\nhistory_ttl = "300s"\nforce_recovery = true\npresence = true\njoin_leave = true\n{RIGHTS}'
CONFIG = f"""
[client]
recovery_max_publication_limit = 10000
user_id_http_header = "X-User"
[client.subscribe_to_user_personal_channel]
enabled = true
[channel.without_namespace]
force_push_join_leave = true
{HISTORY}
[[channel.namespaces]]
name = "delta"
allowed_delta_types = ["fossil"]
delta_publish = true
{HISTORY}
[[channel.namespaces]]
name = "tags"
allow_tags_filter = true
{HISTORY}
[[channel.namespaces]]
name = "closed"
"""


class Events:
    """Notes every event of a client or a subscription, to wait for in their order, by name. Has every callback of the SDK."""

    def __init__(self):
        self.queues = {}

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)

        async def note(context):
            self.queue(name.removeprefix("on_")).put_nowait(context)

        return note

    def queue(self, name):
        return self.queues.setdefault(name, asyncio.Queue())

    async def next(self, name):
        return await asyncio.wait_for(self.queue(name).get(), PATIENCE)


class Room:
    """A subscription with its events."""

    def __init__(self, sdk, events, user):
        self.sdk = sdk
        self.events = events
        self.user = user

    async def value(self):
        return self.user.decode((await self.events.next("publication")).pub.data)

    async def values(self, count):
        return [await self.value() for _ in range(count)]


class User:
    """A client of the SDK with its events."""

    def __init__(self, server, protobuf, name=""):
        self.protobuf = protobuf
        self.events = Events()
        self.sdk = Client(
            server.url("ws", "/connection/websocket"),
            events=self.events,
            use_protobuf=protobuf,
            headers={"X-User": name} if name else None,
            min_reconnect_delay=0.001,
            max_reconnect_delay=0.05,
            proxy=None,
            ssl_context=server.trust,
        )

    def encode(self, value):
        return json.dumps(value).encode() if self.protobuf else value

    def decode(self, data):
        return json.loads(data) if self.protobuf else data

    async def connect(self):
        await self.sdk.connect()
        return await self.events.next("connected")

    def subscription(self, channel, **options):
        events = Events()
        sdk = self.sdk.new_subscription(
            channel, events=events, min_resubscribe_delay=0.001, max_resubscribe_delay=0.05, **options
        )
        return Room(sdk, events, self)

    async def subscribe(self, channel, **options):
        room = self.subscription(channel, **options)
        await room.sdk.subscribe()
        room.context = await room.events.next("subscribed")
        return room

    def publish(self, channel, value):
        return self.sdk.publish(channel, self.encode(value))

    def cut(self):
        """Breaks the connection from outside."""
        self.sdk._conn.transport.abort()


@pytest.fixture(params=[False, True], ids=["json", "protobuf"])
def protobuf(request):
    return request.param


@pytest.fixture
def sdk(serve, protobuf, tmp_path):
    """Runs a coroutine with a server and a maker of connected clients, which are disconnected at the end."""
    config = tmp_path / "myriad.toml"
    config.write_text(CONFIG)
    return running(serve("--config", str(config)), protobuf)


def running(server, protobuf):
    """What runs a coroutine with this server and clients of it."""

    async def with_clients(body):
        users = []

        async def user(name=""):
            users.append(User(server, protobuf, name))
            users[-1].connected = await users[-1].connect()
            return users[-1]

        try:
            await body(server, user)
        finally:
            for made in users:
                await made.sdk.disconnect()

    return lambda body: asyncio.run(with_clients(body))


async def api(server, channel, data, **fields):
    """Publishes by the API without holding up the clients of this thread."""
    body = json.dumps({"channel": channel, "data": data, **fields})
    answer = await asyncio.to_thread(server.request, "POST", "/api/publish", body)
    assert answer.status == 200, answer


def test_a_client_connects_subscribes_and_publishes(sdk):
    async def body(server, user):
        one, other = await user("42"), await user()
        assert str(uuid.UUID(one.connected.client)) == one.connected.client
        assert one.connected.version.startswith("myriad")
        room = await one.subscribe("room")
        assert room.context.recoverable and room.context.positioned and not room.context.was_recovering
        await one.publish("room", {"text": "k\u00e4se \U0001f9c0\n"})
        await api(server, "room", [None, 1.5, "x"])
        await other.publish("room", "from elsewhere")
        publications = [(await room.events.next("publication")).pub for _ in range(3)]
        values = [one.decode(publication.data) for publication in publications]
        assert values == [{"text": "k\u00e4se \U0001f9c0\n"}, [None, 1.5, "x"], "from elsewhere"]
        assert [publication.offset for publication in publications] == [1, 2, 3]
        assert publications[0].info.client == one.connected.client
        assert publications[0].info.user == "42"
        assert publications[1].info is None or publications[1].info.client == ""

    sdk(body)


def test_history_pages_and_members(sdk):
    async def body(server, user):
        one, other = await user("42"), await user("43")
        room = await one.subscribe("room")
        await other.subscribe("room")
        for number in range(1, 26):
            await api(server, "room", number)
        top = await room.sdk.history(limit=0)
        assert (top.publications, top.offset) == ([], 25)

        async def page(**options):
            publications = (await room.sdk.history(limit=10, **options)).publications
            return [one.decode(publication.data) for publication in publications]

        assert await page(since=StreamPosition(0, top.epoch)) == list(range(1, 11))
        assert await page(since=StreamPosition(20, top.epoch)) == list(range(21, 26))
        assert await page(reverse=True) == list(range(25, 15, -1))
        with pytest.raises(ReplyError) as refused:
            await page(since=StreamPosition(1, "other"))
        assert refused.value.code == 112

        members = (await room.sdk.presence()).clients
        assert {member.user for member in members.values()} == {"42", "43"}
        assert set(members) == {one.connected.client, other.connected.client}
        stats = await room.sdk.presence_stats()
        assert (stats.num_clients, stats.num_users) == (2, 2)

    sdk(body)


def test_joins_leaves_and_an_unsubscribe(sdk):
    async def body(server, user):
        one, other = await user("42"), await user("43")
        # Its own channel: the server subscribes it, and tells it of its own join.
        assert (await one.events.next("subscribed")).channel == "#42"
        joined = await one.events.next("join")
        assert (joined.channel, joined.info.user) == ("#42", "42")
        room = await one.subscribe("room")
        assert (await room.events.next("join")).info.user == "42"
        theirs = await other.subscribe("room")
        assert (await room.events.next("join")).info.user == "43"
        await theirs.sdk.unsubscribe()
        assert (await theirs.events.next("unsubscribed")).code == 0
        assert (await room.events.next("leave")).info.client == other.connected.client
        await api(server, "room", 1)
        assert await room.value() == 1
        assert theirs.events.queue("publication").empty()

    sdk(body)


def test_errors_have_their_codes(sdk):
    async def body(_server, user):
        one = await user()
        for channel, code in [("closed:room", 103), ("$private", 103), ("unknown:room", 102), ("r" * 256, 107)]:
            refused = one.subscription(channel)
            await refused.sdk.subscribe()
            assert (await refused.events.next("unsubscribed")).code == code, channel
        for call, code in [
            (lambda: one.publish("closed:room", 1), 103),
            (lambda: one.publish("unknown:room", 1), 102),
            (lambda: one.sdk.presence("closed:room"), 108),
            (lambda: one.sdk.history("closed:room", limit=1), 108),
            (lambda: one.sdk.rpc("method", one.encode({})), 108),
        ]:
            with pytest.raises(ReplyError) as refused:
                await call()
            assert refused.value.code == code

    sdk(body)


def test_nothing_is_lost_through_broken_connections(sdk):
    async def body(server, user):
        reader, publisher = await user(), await user()
        room = await reader.subscribe("busy")
        published = 0
        is_busy = True

        async def publish():
            nonlocal published
            while is_busy:
                published += 2
                await asyncio.gather(publisher.publish("busy", published - 1), api(server, "busy", published))

        publishing = asyncio.create_task(publish())
        values = []
        for _ in range(10):
            values += await room.values(3)
            reader.cut()
            again = await room.events.next("subscribed")
            assert again.was_recovering and again.recovered
        is_busy = False
        await publishing
        values += await room.values(published - len(values))
        assert sorted(values) == list(range(1, published + 1))
        whole = await publisher.sdk.history("busy", limit=10000, since=StreamPosition(0, again.stream_position.epoch))
        order = [publisher.decode(publication.data) for publication in whole.publications]
        assert values[: len(order)] == order
        assert room.events.queue("publication").empty()

    sdk(body)


def test_who_has_only_the_first_publication_goes_on_from_there(sdk):
    async def body(server, user):
        one = await user()
        room = await one.subscribe("room")
        assert room.context.stream_position.offset == 0
        await api(server, "room", "first")
        first = (await room.events.next("publication")).pub
        assert (one.decode(first.data), first.offset) == ("first", 1)
        one.cut()
        await room.events.next("subscribing")
        await room.events.next("subscribing")
        await api(server, "room", "second")
        again = await room.events.next("subscribed")
        assert again.was_recovering and again.recovered
        assert again.stream_position.epoch == room.context.stream_position.epoch
        assert await room.value() == "second"

    sdk(body)


def test_bytes_among_what_was_missed_are_left_out_for_json_clients_only(sdk, protobuf):
    async def body(server, user):
        one = await user()
        room = await one.subscribe("room")
        await one.sdk.disconnect()
        assert (await one.events.next("disconnected")).code == 0
        answer = await asyncio.to_thread(
            server.request, "POST", "/api/publish", json.dumps({"channel": "room", "b64data": "/wAB"})
        )
        assert answer.status == 200, answer
        await asyncio.to_thread(server.publish, "room", "next")
        await one.sdk.connect()
        if protobuf:
            assert (await room.events.next("publication")).pub.data == b"\xff\x00\x01"
        assert await room.value() == "next"

    sdk(body)


def test_deltas_and_filters(sdk):
    async def body(server, user):
        one = await user()
        states = [{"version": number, "text": ["k\u00e4se"] * 50} for number in range(20)]
        room = await one.subscribe("delta:room", delta=DeltaType.FOSSIL)
        for state in states[:10]:
            await api(server, "delta:room", state)
        assert await room.values(10) == states[:10]
        one.cut()
        await room.events.next("subscribed")
        for state in states[10:]:
            await one.publish("delta:room", state)
        assert await room.values(10) == states[10:]

        prices = await one.subscribe("tags:prices", tags_filter=Filter.eq("ticker", "BTC"))
        for number, ticker in enumerate(["BTC", "ETH", "BTC"]):
            await api(server, "tags:prices", number, tags={"ticker": ticker})
        assert await prices.values(2) == [0, 2]

    sdk(body)


def test_a_newer_connection_of_the_user_ends_the_older_one(serve, protobuf, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text(
        '[client]\nuser_id_http_header = "X-User"\n'
        "[client.subscribe_to_user_personal_channel]\nenabled = true\nsingle_connection = true\n"
    )

    async def body():
        server = serve("--config", str(config))
        older, newer = User(server, protobuf, "42"), User(server, protobuf, "42")
        await older.connect()
        # Ages are compared in ticks of 50 ms: of two connections in the same one, either may be the newer.
        await asyncio.sleep(0.1)
        await newer.connect()
        assert (await older.events.next("disconnected")).code == 3504
        # It does not come back by itself, and so does not end the newer one in turn.
        assert older.events.queue("connecting").qsize() == 1
        assert newer.events.queue("disconnected").empty()
        await newer.sdk.disconnect()

    asyncio.run(body())


def listed_codes():
    """Close codes, names, and what the page of the protocol says that the SDK does."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| (3\d{3}) \| ([a-z ]+) \| (reconnects|stays away) \|", page, re.MULTILINE)
    assert len(rows) >= 22
    return [(int(code), name, reaction) for code, name, reaction in rows]


def test_the_sdk_does_after_each_close_code_what_the_page_says():
    """Our server does not send all of them yet, so a server of this test ends the connections."""

    async def after(code, name):
        connections = 0

        async def handle(connection):
            nonlocal connections
            connections += 1
            is_first = connections == 1
            command = json.loads(await connection.recv())
            await connection.send(json.dumps({"id": command["id"], "connect": {"client": "c", "version": "v"}}))
            if is_first:
                await connection.close(code, name)
            await connection.wait_closed()

        async with websockets.serve(handle, "127.0.0.1", 0) as server:
            events = Events()
            address = server.sockets[0].getsockname()
            delays = {"min_reconnect_delay": 0.001, "max_reconnect_delay": 0.005}
            client = Client(f"ws://127.0.0.1:{address[1]}", events=events, proxy=None, **delays)
            await client.connect()
            await events.next("connecting")
            away = [asyncio.ensure_future(events.next(name)) for name in ["connecting", "disconnected"]]
            done, pending = await asyncio.wait(away, return_when=asyncio.FIRST_COMPLETED)
            for other in pending:
                other.cancel()
            (ended,) = done
            assert ended.result().code == code
            reconnects = ended is away[0]
            if reconnects:
                await events.next("connected")
                await events.next("connected")
            await client.disconnect()
            return "reconnects" if reconnects else "stays away"

    for code, name, reaction in listed_codes():
        assert asyncio.run(after(code, name)) == reaction, code


def test_what_a_client_does_after_each_end(serve, protobuf):
    async def body():
        server = serve()
        one = User(server, protobuf)
        await one.connect()
        await one.events.next("connecting")
        await one.sdk._conn.send(b"\xff\xff" if protobuf else "hello")
        ended = await one.events.next("disconnected")
        assert (ended.code, ended.reason) == (3501, "bad request")

        other = User(server, protobuf)
        await other.connect()
        await other.events.next("connecting")
        await asyncio.to_thread(server.stop)
        away = await other.events.next("connecting")
        assert (away.code, away.reason) == (3001, "shutdown")
        await other.sdk.disconnect()
        with pytest.raises(CentrifugeError):
            await other.publish("room", 1)

    asyncio.run(body())

"""The server through the SDK `centrifuge-python`, in both encodings of the Centrifuge protocol."""

import asyncio
import json
import uuid

import pytest
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
            f"ws://{server.host}:{server.port}/connection/websocket",
            events=self.events,
            use_protobuf=protobuf,
            headers={"X-User": name} if name else None,
            min_reconnect_delay=0.001,
            max_reconnect_delay=0.05,
            proxy=None,
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
    server = serve("--config", str(config))

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

"""Tokens through the SDK `centrifuge-python`: who a client is, for how long, and what it may subscribe to."""

import asyncio
import base64
import hashlib
import hmac
import json
import time

import pytest
from centrifuge import Client
from test_sdk import RIGHTS, Events, Room

SECRET = "a secret of the tests, long enough to be one"
CONFIG = f"""
[client]
expired_close_delay = "1s"
expired_sub_close_delay = "1s"
[client.token]
hmac_secret_key = "{SECRET}"
[channel.without_namespace]
presence = true
{RIGHTS}
"""


def token(claims, secret=SECRET):
    """A token signed by HMAC with SHA-256 (RFC 7519)."""

    def part(content):
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    text = ".".join(part(json.dumps(value).encode()) for value in [{"alg": "HS256", "typ": "JWT"}, claims])
    return f"{text}.{part(hmac.digest(secret.encode(), text.encode(), hashlib.sha256))}"


class Bearer:
    """A client that shows tokens, one after another as the server asks for them."""

    def __init__(self, server, protobuf, tokens):
        self.protobuf = protobuf
        self.shown = 0
        self.tokens = tokens
        self.events = Events()
        self.sdk = Client(
            f"ws://{server.host}:{server.port}/connection/websocket",
            events=self.events,
            use_protobuf=protobuf,
            get_token=self.next_token,
            min_reconnect_delay=0.001,
            max_reconnect_delay=0.05,
            proxy=None,
        )

    async def next_token(self, *_):
        self.shown += 1
        self.events.queue("token").put_nowait(self.shown)
        return self.tokens[min(self.shown, len(self.tokens)) - 1]

    def decode(self, data):
        return json.loads(data) if self.protobuf else data

    async def connect(self):
        await self.sdk.connect()
        return await self.events.next("connected")

    async def subscribe(self, channel, **options):
        events = Events()
        sdk = self.sdk.new_subscription(channel, events=events, **options)
        room = Room(sdk, events, self)
        await sdk.subscribe()
        room.context = await events.next("subscribed")
        return room


@pytest.fixture(params=[False, True], ids=["json", "protobuf"])
def with_tokens(request, serve, tmp_path):
    """Runs a coroutine with a server and a maker of clients that show tokens."""
    config = tmp_path / "myriad.toml"
    config.write_text(CONFIG)
    server = serve("--config", str(config))

    async def with_clients(body):
        made = []

        def bearer(*tokens):
            made.append(Bearer(server, request.param, tokens))
            return made[-1]

        try:
            await body(server, bearer)
        finally:
            for one in made:
                await one.sdk.disconnect()

    return lambda body: asyncio.run(with_clients(body))


def test_a_token_says_who_a_client_is(with_tokens):
    async def body(server, bearer):
        one = bearer(token({"sub": "42", "info": {"name": "Ann"}}))
        connected = await one.connect()
        room = await one.subscribe("room")
        members = (await room.sdk.presence()).clients
        assert members[connected.client].user == "42"
        assert one.decode(members[connected.client].conn_info) == {"name": "Ann"}

    with_tokens(body)


def test_a_token_that_is_not_valid_keeps_its_client_away(with_tokens):
    async def body(server, bearer):
        for shown in ["x", token({"sub": "42"}, "another secret")]:
            one = bearer(shown)
            await one.sdk.connect()
            assert (await one.events.next("disconnected")).code == 3500

    with_tokens(body)


def test_a_client_with_an_expired_token_gets_another_one(with_tokens):
    async def body(server, bearer):
        one = bearer(token({"sub": "42", "exp": time.time() - 1}), token({"sub": "42", "exp": time.time() + 600}))
        await one.connect()
        assert one.shown == 2

    with_tokens(body)


def test_a_connection_goes_on_as_long_as_it_is_refreshed(with_tokens):
    async def body(server, bearer):
        one = bearer(token({"sub": "42", "exp": time.time() + 1.2}), token({"sub": "42", "exp": time.time() + 600}))
        await one.connect()
        room = await one.subscribe("room")
        while await one.events.next("token") < 2:
            pass
        answer = await asyncio.to_thread(
            server.request, "POST", "/api/publish", json.dumps({"channel": "room", "data": "later"})
        )
        assert answer.status == 200, answer
        assert await room.value() == "later"
        assert one.events.queue("disconnected").empty()

    with_tokens(body)


def test_a_private_channel_needs_a_token_of_its_own(with_tokens):
    async def body(server, bearer):
        one = bearer(token({"sub": "42"}))
        await one.connect()
        events = Events()
        bare = one.sdk.new_subscription("$bare", events=events)
        await bare.subscribe()
        assert (await events.next("unsubscribed")).code == 103

        async def get_token(channel):
            return token({"sub": "42", "channel": channel})

        news = await one.subscribe("$news", get_token=get_token)
        members = await news.sdk.presence_stats()
        assert members.num_users == 1

    with_tokens(body)

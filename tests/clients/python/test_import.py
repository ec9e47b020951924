"""A configuration of Centrifugo, imported: the SDK connects with its tokens, and rights are as they were."""

import asyncio
import json
import stat

import pytest
from centrifuge import Client

from server import run
from test_sdk import Events
from test_tokens import SECRET, Bearer, token

KEY = "a-key-of-the-application"
NAMESPACES = [
    {"name": "open", "allow_subscribe_for_client": True, "history_size": 10, "history_ttl": "60s", "force_recovery": True},
    {"name": "closed"},
]
V5 = {
    "token_hmac_secret_key": SECRET,
    "api_key": KEY,
    "client_channel_limit": 3,
    "user_subscribe_to_personal": True,
    "namespaces": NAMESPACES,
}
V6 = {
    "client": {
        "token": {"hmac_secret_key": SECRET},
        "channel_limit": 3,
        "subscribe_to_user_personal_channel": {"enabled": True},
    },
    "http_api": {"key": KEY},
    "channel": {"namespaces": NAMESPACES},
}


@pytest.fixture(params=[V5, V6], ids=["v5", "v6"])
def imported(request, tmp_path, serve):
    source = tmp_path / "config.json"
    source.write_text(json.dumps(request.param))
    output = tmp_path / "myriad.toml"
    code, _, said = run("config", "import", str(source), "--output", str(output))
    assert code == 0, said
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert SECRET not in said and KEY not in said
    return serve("--config", str(output), dev=False)


def call(server, method, body, key=KEY):
    return server.request("POST", f"/api/{method}", json.dumps(body), {"X-API-Key": key})


async def refusal(user, channel):
    """The code with which a client may not subscribe."""
    events = Events()
    await user.sdk.new_subscription(channel, events=events).subscribe()
    return (await events.next("unsubscribed")).code


@pytest.mark.parametrize("protobuf", [False, True], ids=["json", "protobuf"])
def test_a_client_is_served_as_before(imported, protobuf):
    async def play():
        user = Bearer(imported, protobuf, [token({"sub": "ann"})])
        connected = await user.connect()
        assert connected.client
        room = await user.subscribe("open:room")
        answer = call(imported, "publish", {"channel": "open:room", "data": {"n": 1}})
        assert answer.status == 200 and answer.json()["result"]["offset"] == 1, answer
        assert await room.value() == {"n": 1}
        assert await refusal(user, "closed:room") == 103
        # The personal channel: its user is there, by the API.
        channels = call(imported, "channels", {}).json()["result"]["channels"]
        assert set(channels) == {"#ann", "open:room"}
        await user.subscribe("open:other")
        assert await refusal(user, "open:third") == 106
        await user.sdk.disconnect()

    asyncio.run(play())


def test_strangers_stay_outside(imported):
    async def play():
        forged = Bearer(imported, False, [token({"sub": "ann"}, "another secret")])
        await forged.sdk.connect()
        assert (await forged.events.next("disconnected")).code == 3500
        events = Events()
        nobody = Client(imported.url("ws", "/connection/websocket"), events=events, proxy=None)
        await nobody.connect()
        assert (await events.next("disconnected")).code == 3501

    asyncio.run(play())
    assert call(imported, "info", {}, "another key").status == 401
    assert call(imported, "info", {}).status == 200

"""Channels as streams: PyPI's client of the Durable Streams protocol beside the SDK `centrifuge-python`."""

import asyncio
import json
import re
import time

import pytest
from centrifuge import ReplyError
from durable_streams import (
    AsyncDurableStream,
    DurableStream,
    DurableStreamError,
    RetentionGoneError,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)
from test_sdk import api, protobuf, sdk  # noqa: F401: fixtures
from test_tokens import SECRET, token

from server import PATIENCE, run, until

JSON = "application/json"
LIVE = ["long-poll", "sse", "auto"]


def address(server, channel):
    return f"http://{server.host}:{server.port}/v1/stream/{channel}"


async def take(response, count):
    """The next items of a live reader."""
    items = []
    async with asyncio.timeout(PATIENCE):
        async for item in response.iter_json():
            items.append(item)
            if len(items) == count:
                return items
    raise AssertionError(f"the stream has ended behind {items}")


def first(response, count):
    """The same without asyncio. The client's own time-out bounds it."""
    items = []
    for item in response.iter_json():
        items.append(item)
        if len(items) == count:
            return items
    raise AssertionError(f"the stream has ended behind {items}")


def test_subscribers_and_readers_of_a_stream_see_one_order(sdk):  # noqa: F811
    async def body(server, user):
        one = await user()
        room = await one.subscribe("room")
        async with await AsyncDurableStream.create(address(server, "room"), content_type=JSON, body=["first"]) as handle:
            # Each has its first answer then; a poll of an empty stream would be held.
            readers = [await handle.stream(offset="-1", live=live) for live in LIVE]
            taken = [asyncio.create_task(take(reader, 92)) for reader in readers]
            for batch in range(3):
                numbers = range(10 * batch, 10 * batch + 10)
                await asyncio.gather(
                    # Appends that overlap leave as one array.
                    *(handle.append({"appended": number}) for number in numbers),
                    *(api(server, "room", {"api": number}) for number in numbers),
                    *(one.publish("room", {"socket": number}) for number in numbers),
                )
            # An array is one publication.
            await handle.append(["the", "end"])
            order = await room.values(92)
            assert (order[0], order[-1]) == ("first", ["the", "end"])
            for seen in await asyncio.gather(*taken):
                assert seen == order
            assert [value["socket"] for value in order[1:-1] if "socket" in value] == list(range(30))
            for name in ["appended", "api"]:
                assert sorted(value[name] for value in order[1:-1] if name in value) == list(range(30))
            async with astream(handle.url, live=False) as response:
                assert await response.read_json() == order
            for reader in readers:
                await reader.aclose()

    sdk(body)


def test_without_asyncio(serve):
    server = serve("--poll-timeout", "200ms")
    url = address(server, "room")
    with DurableStream.create(url, content_type=JSON, body=[0]) as handle:
        with pytest.raises(StreamExistsError):
            DurableStream.create(url, content_type="text/plain")
        saved = handle.append({"n": 1}).next_offset
        head = handle.head()
        assert (head.offset, head.content_type) == (saved, JSON)
        for live in LIVE:
            with stream(url, offset=saved, live=live) as response:
                if live != "sse":
                    # Time-outs of polls come between.
                    timeouts = server.metric("myriad_poll_timeouts_total")
                    waiting = iter(response.iter_json())
                    handle.append("first")
                    assert next(waiting) == "first"
                    saved = response.offset
                    handle.append("second")
                    assert next(waiting) == "second"
                    assert server.metric("myriad_poll_timeouts_total") >= timeouts
                else:
                    handle.append("first")
                    handle.append("second")
                    assert first(response, 2) == ["first", "second"]
            # From where the first one was read.
            with stream(url, offset=saved, live=False) as response:
                assert response.read_json()[-1] == "second"
                saved = response.offset
        # A stream's sequence numbers, as this client has no producers.
        handle.append("a", seq="0001")
        with pytest.raises(SeqConflictError):
            handle.append("a", seq="0001")
        server.publish("room", "by the API")
        with stream(url, live=False) as response:
            items = response.read_json()
        assert items == [0, {"n": 1}, *["first", "second"] * 3, "a", "by the API"]
        handle.delete()
        with pytest.raises(StreamNotFoundError):
            handle.head()
        with pytest.raises(StreamNotFoundError):
            stream(url, live="long-poll", offset="-1")


def test_a_poll_ends_before_the_client_gives_up():
    """By default the client waits 30 s for a byte."""
    code, defaults, _ = run("config", "default")
    [seconds] = re.findall(r'^#? *poll-timeout = "(\d+)s"$', defaults, re.M)
    with DurableStream("http://localhost/v1/stream/room") as handle:
        assert code == 0 and int(seconds) + 3 <= handle._timeout


@pytest.mark.parametrize("live", [False, *LIVE])
def test_a_reader_that_missed_something_is_told(serve, tmp_path, live):
    config = tmp_path / "myriad.toml"
    config.write_text('[channel.without_namespace]\nhistory_size = 10\nhistory_ttl = "1h"\n')
    server = serve("--config", str(config))
    url = address(server, "room")
    with DurableStream.create(url, content_type=JSON) as handle:
        saved = handle.append("old").next_offset
        for number in range(30):
            handle.append(number)
        with pytest.raises(RetentionGoneError) as gone:
            stream(url, offset=saved, live=live)
        assert "no longer kept" in gone.value.details
        with stream(url, offset="-1", live=live) as response:
            assert first(response, 10) == list(range(20, 30))


def test_a_server_that_was_started_again_does_not_pass_for_the_one_before(serve):
    server = serve()
    server.publish("room", "before")
    with stream(address(server, "room"), live=False) as response:
        assert response.read_json() == ["before"]
        saved = response.offset
    other = serve()
    other.publish("room", "after")
    for live in [False, *LIVE]:
        with pytest.raises(RetentionGoneError):
            stream(address(other, "room"), offset=saved, live=live)


def test_the_end_of_a_stream(sdk):  # noqa: F811
    async def body(server, user):
        one = await user()
        room = await one.subscribe("room")
        async with await AsyncDurableStream.create(address(server, "room"), content_type=JSON) as handle:
            reader = await handle.stream(offset="-1", live="sse")
            await handle.append("last")
            await asyncio.to_thread(server.request, "POST", "/v1/stream/room", None, {"Stream-Closed": "true"})
            assert await room.value() == "last"
            # The response ends, and the client with it.
            async with asyncio.timeout(PATIENCE):
                assert [item async for item in reader.iter_json()] == ["last"]
            with pytest.raises(SeqConflictError):
                await handle.append("more")
            with pytest.raises(ReplyError) as refused:
                await one.publish("room", "more")
            assert refused.value.code == 108
            async with astream(handle.url, live=False) as response:
                assert await response.read_json() == ["last"]

    sdk(body)


def test_readers_of_a_stream_that_is_deleted(serve):
    server = serve()
    server.publish("room", 1)
    url = address(server, "room")

    async def read(live):
        async with astream(url, offset="-1", live=live) as response:
            return [item async for item in response.iter_json()]

    async def body():
        reading = [asyncio.create_task(read(live)) for live in ["long-poll", "auto", "sse"]]
        held = lambda: server.metric("myriad_parked_polls") == 2 and server.metric("myriad_event_streams") == 1  # noqa: E731
        await asyncio.to_thread(until, "they wait", held)
        await asyncio.to_thread(DurableStream.delete_static, url)
        return await asyncio.wait_for(asyncio.gather(*reading, return_exceptions=True), PATIENCE)

    *polls, events = asyncio.run(body())
    assert all(isinstance(poll, StreamNotFoundError) for poll in polls), polls
    assert events == [1]


def test_text(serve):
    server = serve()
    with DurableStream.create(address(server, "text"), content_type="text/plain") as handle:
        handle.append("k\u00e4se\n")
        handle.append("\n\nund brot")
        with handle.stream(live=False) as response:
            assert response.read_text() == "k\u00e4se\n\n\nund brot"
        with handle.stream(live="sse", offset="-1") as response:
            assert next(response.iter_text()) == "k\u00e4se\n\n\nund brot"


KEY = "a-key-of-the-tests"
REAL = f"""
api-key = "{KEY}"
[client.token]
hmac_secret_key = "{SECRET}"
[[channel.namespaces]]
name = "chat"
history_size = 100
history_ttl = "1h"
allow_subscribe_for_client = true
allow_publish_for_client = true
[[channel.namespaces]]
name = "news"
history_size = 100
history_ttl = "1h"
allow_subscribe_for_client = true
"""


def test_who_may(serve, tmp_path):
    config = tmp_path / "myriad.toml"
    config.write_text(REAL)
    server = serve("--config", str(config), dev=False)
    chat, news = address(server, "chat:room"), address(server, "news:today")

    def bearer(claims, secret=SECRET):
        return {"Authorization": lambda: f"Bearer {token(claims, secret)}"}

    def refused(status, attempt):
        with pytest.raises(DurableStreamError) as error:
            attempt()
        assert error.value.status == status, error.value

    ann = bearer({"sub": "ann"})
    for stranger in [None, bearer({"sub": "ann"}, "another secret"), bearer({"sub": "ann", "exp": time.time() - 60})]:
        refused(401, lambda: DurableStream.create(chat, content_type=JSON, headers=stranger))
        for live in [False, *LIVE]:
            refused(401, lambda: stream(chat, offset="-1", live=live, headers=stranger))
    refused(403, lambda: DurableStream.create(news, content_type=JSON, headers=ann))
    for url, headers in [(chat, ann), (news, {"X-API-Key": KEY})]:
        with DurableStream.create(url, content_type=JSON, headers=headers) as handle:
            handle.append(1)
            handle.append(2)
        for live in LIVE:
            with stream(url, offset="-1", live=live, headers=ann) as response:
                assert first(response, 2) == [1, 2]
        # The token may stand in the query, as browsers' EventSource needs it.
        with stream(url, live=False, params={"token": token({"sub": "ann"})}) as response:
            assert response.read_json() == [1, 2]
    assert json.loads(server.request("GET", "/v1/stream/news:today", headers={"X-API-Key": KEY}).body) == [1, 2]

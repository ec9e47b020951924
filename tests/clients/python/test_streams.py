"""Streams, with the `websockets` package as the client."""

import base64
import json
import os
import threading

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus


def test_publications_arrive_as_they_were_meant(serve):
    server = serve()
    with server.client("/raw?channel=news&channel=more") as client:
        for data in ["text", "\u00e9\U0001f600", {"a": [1, None]}, 7]:
            server.publish("news", data)
        server.request(
            "POST", "/api/publish", json.dumps({"channel": "news", "b64data": base64.b64encode(b"\x00\xff").decode()})
        )
        server.publish("more", "other channel")
        received = [client.recv(timeout=30) for _ in range(6)]
    assert "other channel" in received
    received.remove("other channel")
    assert received[:2] == ["text", "\u00e9\U0001f600"]
    assert json.loads(received[2]) == {"a": [1, None]}
    assert received[3:] == ["7", b"\x00\xff"]


def test_offsets_grow_with_the_order(serve):
    server = serve()
    with server.client() as client:
        offsets = [server.publish("c", number) for number in range(20)]
        assert offsets == sorted(set(offsets))
        assert [client.recv(timeout=30) for _ in range(20)] == [str(number) for number in range(20)]


def test_an_epoch_lasts_as_long_as_its_server(serve):
    server = serve()
    first, offset = server.position("a", "data")
    assert first and isinstance(first, str)
    assert offset == 1
    server.publish("b", "data")
    assert server.position("a", "data") == (first, 2)
    other, offset = serve().position("a", "data")
    assert offset == 1
    assert other != first


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536, 300_000])
def test_echo_of_every_length_whole_and_in_fragments(serve, length):
    server = serve("--message-bytes-max", "1MiB")
    data = os.urandom(length)
    with server.client("/echo", max_size=None) as client:
        client.send(data)
        assert client.recv(timeout=30) == data
        pieces = [data[start : start + 1000] for start in range(0, length, 1000)] or [b""]
        client.send(pieces)
        assert client.recv(timeout=30) == data
        client.send("\u20ac" * (length // 3))
        assert client.recv(timeout=30) == "\u20ac" * (length // 3)


def test_pings_are_answered(serve):
    server = serve()
    with server.client() as client:
        assert client.ping("are you there").wait(30)


def test_client_close_is_answered_with_its_code(serve):
    server = serve()
    client = server.client()
    client.close(4321, "bye")
    assert client.close_code == 4321


def test_too_big_a_message_is_closed_with_1009(serve):
    server = serve("--message-bytes-max", "1KiB")
    with server.client("/echo") as client:
        client.send("x" * 1025)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=30)
    assert closed.value.rcvd.code == 1009
    assert closed.value.rcvd.reason


def test_switched_off_the_offered_compression_is_declined(serve):
    server = serve("--compression", "off")
    with server.client("/echo", compression="deflate") as client:
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        client.send("a" * 10_000)
        assert client.recv(timeout=30) == "a" * 10_000


def test_without_dev_strangers_need_a_word_from_the_operator(serve):
    closed = serve(dev=False)
    with pytest.raises(InvalidStatus) as refused:
        closed.client()
    assert refused.value.response.status_code == 401
    assert b"--anonymous" in refused.value.response.body
    opened = serve("--anonymous", dev=False)
    with opened.client():
        pass
    # /echo is for development only.
    with pytest.raises(InvalidStatus) as refused:
        opened.client("/echo")
    assert refused.value.response.status_code in (400, 404)


def test_many_subscribers_see_one_order_of_many_publishers(serve):
    server = serve()
    clients = [server.client() for _ in range(30)]
    publishers = [
        threading.Thread(target=lambda name=name: [server.publish("c", f"{name}{number}") for number in range(10)])
        for name in "abcd"
    ]
    for publisher in publishers:
        publisher.start()
    orders = {tuple(client.recv(timeout=30) for _ in range(40)) for client in clients}
    for publisher in publishers:
        publisher.join()
    assert len(orders) == 1
    (order,) = orders
    for name in "abcd":
        assert [entry for entry in order if entry[0] == name] == [f"{name}{number}" for number in range(10)]
    for client in clients:
        client.close()

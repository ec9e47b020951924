"""permessage-deflate, with the `websockets` package as the client."""

import json

import pytest
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

RECORDS = json.dumps([{"id": number, "name": f"item {number}", "price": number / 4} for number in range(3000)])


def test_the_client_s_own_offer_is_agreed_to(serve):
    server = serve("--message-bytes-max", "1MiB")
    with server.client("/echo", compression="deflate", max_size=None) as client:
        (extension,) = client.protocol.extensions
        assert extension.remote_no_context_takeover and extension.local_no_context_takeover
        for text in ["", "short", "\u20ac" * 1000, RECORDS]:
            client.send(text)
            assert client.recv(timeout=30) == text
        client.send([RECORDS[:10], RECORDS[10:50_000], RECORDS[50_000:]])
        assert client.recv(timeout=30) == RECORDS


@pytest.mark.parametrize("bits", range(9, 16))
def test_every_window_in_both_directions(serve, bits):
    server = serve("--message-bytes-max", "1MiB")
    offer = ClientPerMessageDeflateFactory(
        server_no_context_takeover=True,
        client_no_context_takeover=True,
        server_max_window_bits=bits,
        client_max_window_bits=bits,
    )
    with server.client("/echo", compression=None, extensions=[offer], max_size=None) as client:
        (extension,) = client.protocol.extensions
        # What inflates with a window of this size was deflated with no larger one.
        assert extension.remote_max_window_bits == bits
        client.send(RECORDS)
        assert client.recv(timeout=30) == RECORDS


def test_publications_reach_compressed_and_plain_clients_alike(serve):
    server = serve()
    with server.client(compression="deflate") as compressed, server.client(compression=None) as plain:
        assert compressed.protocol.extensions and not plain.protocol.extensions
        for data in [RECORDS, "short"]:
            server.publish("c", data)
            assert compressed.recv(timeout=30) == plain.recv(timeout=30) == data

"""Records that do not end. What the server keeps of them counts against its budgets, and shows in its metrics."""

import pytest
from conftest import start
from legacy import LegacyClient
from modern import Client
from peer import Peer
from places import open_websocket, still_works
from server import until
from wire import *  # noqa: F403

BUFFERED = "myriad_buffered_bytes"
STRANGERS = "myriad_unconnected_buffered_bytes"
ENDED = "myriad_unconnected_ended_total"
# Less than the strangers below send.
BUFFERED_MAX, STRANGERS_MAX = 4 << 20, 1 << 20
COUNT = 200
# Each sends so much of a record that does not end.
PART = 12_000


@pytest.fixture
def small(driver, authority):
    budgets = ("--buffered-bytes-max", "4MiB", "--unconnected-bytes-max", "1MiB")
    endpoint = start(driver, authority, *budgets)
    yield endpoint
    endpoint.check_nothing_is_left()
    assert endpoint.server.stop() == 0


def half_a_record(kind):
    return record(kind, bytes(PART), length=TEXT_MAX)


def test_the_parts_of_hellos_are_counted(endpoint):
    peers = [Peer(endpoint.port) for _ in range(20)]
    for peer in peers:
        peer.send(half_a_record(HANDSHAKE))
    until("all of it is counted", lambda: endpoint.figures()[STRANGERS] >= len(peers) * PART)
    assert endpoint.figures()[BUFFERED] >= len(peers) * PART
    for peer in peers:
        peer.reset()


def test_the_parts_of_records_are_counted(endpoint):
    """Of who has not asked for anything yet, and of connected clients, which are no strangers."""
    clients = []
    for kind in (Client, LegacyClient):
        for open_first in (lambda client: None, open_websocket):
            client = kind(endpoint.port).shake_hands()
            open_first(client)
            client.send(half_a_record(DATA))
            clients.append(client)
    until("all of it is counted", lambda: endpoint.figures()[BUFFERED] >= 4 * PART)
    until("half of it is that of strangers", lambda: endpoint.figures()[STRANGERS] >= 2 * PART)
    assert endpoint.figures()[STRANGERS] <= endpoint.figures()[BUFFERED] - 2 * PART
    for client in clients:
        client.reset()


@pytest.mark.parametrize("kind", [None, Client], ids=["in-the-handshake", "behind-it"])
def test_strangers_have_a_share(small, kind):
    """They end each other, and nobody else."""
    with Client(small.port).shake_hands() as honest:
        open_websocket(honest)
        strangers = []
        for _ in range(COUNT):
            stranger = kind(small.port).shake_hands() if kind else Peer(small.port)
            stranger.send(half_a_record(DATA if kind else HANDSHAKE))
            strangers.append(stranger)
            assert small.figures()[STRANGERS] <= STRANGERS_MAX
        # Those that came first have made room for the others.
        until("the first one is ended", lambda: small.figures()[ENDED] > 0)
        assert strangers[0].ending().is_reset
        assert small.figures()[BUFFERED] <= BUFFERED_MAX
        still_works(honest)
        with Client(small.port).shake_hands() as another:
            open_websocket(another)
            still_works(another)
        for stranger in strangers:
            stranger.reset()

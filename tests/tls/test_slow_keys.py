"""A server whose key signs slowly, so that other threads make its signatures, and strangers who want many of them."""

from collections import deque

import pytest
from certificates import Authority
from conftest import start
from legacy import LegacyClient
from modern import Client
from peer import Peer
from places import REQUEST
from server import until
from wire import *  # noqa: F403

SIGNING = "myriad_tls_handshakes_signing"
ANSWER = b"# EOF\n"
# More signatures than two cores make within the patience of a test.
HELLOS = 20_000
# Those of them that are open at a time.
OPEN = 100
ECDHE_RSA_WITH_AES_128_GCM_SHA256 = 0xC02F


@pytest.fixture(scope="session")
def slow_authority(tmp_path_factory):
    return Authority.with_slow_server(tmp_path_factory.mktemp("slow"))


@pytest.fixture
def slow(driver, slow_authority):
    endpoint = start(driver, slow_authority)
    yield endpoint
    endpoint.check_nothing_is_left()
    assert endpoint.server.stop() == 0


def get_in(client):
    with client:
        client.shake_hands()
        client.say_data(REQUEST)
        client.read_until(ANSWER)


def test_who_has_gone_costs_no_signature(slow):
    """A hello and a RST, again and again. The honest client that comes then waits for nobody's signature."""
    with Client(slow.port) as client:
        hello = record(HANDSHAKE, client.hello.message())
    strangers = deque()
    for _ in range(HELLOS):
        stranger = Peer(slow.port)
        stranger.send(hello)
        strangers.append(stranger)
        if len(strangers) > OPEN:
            strangers.popleft().reset()
    get_in(Client(slow.port))
    legacy = LegacyClient(slow.port)
    legacy.hello = legacy.hello.but(suites=(ECDHE_RSA_WITH_AES_128_GCM_SHA256,))
    get_in(legacy)
    for stranger in strangers:
        stranger.reset()
    until("no signature is due", lambda: slow.figures()[SIGNING] == 0)
    assert slow.failures()["slow"] == 0


def test_a_crowd_gets_in(slow):
    """All of them have said hello before the first has its signature."""
    clients = [Client(slow.port) for _ in range(300)]
    for client in clients:
        client.say_hello()
    for client in clients:
        client.hear_hello()
        client.hear_flight()
        client.say_finished()
        client.say_data(REQUEST)
    for client in clients:
        client.read_until(ANSWER)
        client.close()
    assert not +slow.failures()

"""After all of it: nothing is left, and memory does not grow from round to round."""

import test_behind
import test_flight
import test_hello
import test_legacy
from legacy import LegacyClient
from modern import Client
from places import PLACES, REQUEST
from wire import *  # noqa: F403

ROUNDS = 6
# A leak of a connection's state alone would be more: a round has some 400 connections.
GROWTH_MAX = 2 << 20


def play(client, case):
    with client:
        case.play(client)
        client.ending()


def go_away(port, step):
    """Ends with a RST, as far in the handshake as `step` says."""
    client = Client(port)
    for act in (client.say_hello, client.hear_hello, client.hear_flight, client.say_finished)[:step]:
        act()
    client.reset()


def play_round(endpoint):
    for case in [*test_hello.FIELDS, *test_hello.RECORDS, *test_flight.CASES]:
        play(Client(endpoint.port), case)
    for case in test_legacy.HANDSHAKES:
        play(LegacyClient(endpoint.port), case)
    for reach in PLACES.values():
        for case in test_behind.CASES:
            client = Client(endpoint.port).shake_hands()
            reach(client)
            play(client, case)
        for case in test_legacy.BEHIND:
            client = LegacyClient(endpoint.port).shake_hands()
            reach(client)
            play(client, case)
    for step in range(5):
        go_away(endpoint.port, step)


def test_nothing_is_left(endpoint):
    """The first rounds fill caches and pools. From then on as much goes as comes."""
    sizes = []
    for _ in range(ROUNDS):
        play_round(endpoint)
        endpoint.check_nothing_is_left()
        sizes.append(endpoint.memory())
    middle = ROUNDS // 2
    assert sizes[-1] - sizes[middle - 1] < GROWTH_MAX, sizes
    with Client(endpoint.port).shake_hands() as client:
        client.say_data(REQUEST)
        assert client.read_until(b"# EOF\n").startswith(b"HTTP/1.1 200 ")


def test_many_at_once(endpoint):
    """Connections in every state of a handshake, all gone at once: without a word, or with a RST."""
    before = endpoint.failures()
    clients = []
    for number in range(400):
        client = Client(endpoint.port)
        clients.append(client)
        if number % 4:
            client.say_hello()
        if number % 4 > 1:
            client.hear_hello()
            client.hear_flight()
        if number % 4 == 3:
            client.say_finished()
    for number, client in enumerate(clients):
        if number % 2:
            client.reset()
        else:
            client.close()
    endpoint.check_nothing_is_left()
    assert dict(endpoint.failures() - before) == {"gone": 300}

"""Each message of a handshake, cut at every byte: whole in two pieces it is understood, and half of it is refused."""

import pytest
from legacy import LegacyClient
from modern import Client
from places import REQUEST
from wire import *  # noqa: F403

ANSWER = b"# EOF\n"


def in_two_records(client, said, at):
    client.send(record(HANDSHAKE, said[:at]) + record(HANDSHAKE, said[at:]))


def in_two_sends(client, said, at):
    client.send(record(HANDSHAKE, said)[:at])
    client.send(record(HANDSHAKE, said)[at:])


def sealed_in_two_records(client, said, at):
    client.send(client.write.seal(HANDSHAKE, said[:at]) + client.write.seal(HANDSHAKE, said[at:]))


def sealed_in_two_sends(client, said, at):
    sealed = client.write.seal(HANDSHAKE, said)
    client.send(sealed[:at])
    client.send(sealed[at:])


@pytest.mark.parametrize("send", [in_two_records, in_two_sends])
def test_a_hello_in_two_pieces(endpoint, send):
    length = len(Client(endpoint.port).hello.message())
    for at in range(1, length):
        with Client(endpoint.port) as client:
            client.transcript = client.hello.message()
            send(client, client.transcript, at)
            client.hear_hello()
            client.hear_flight()
            client.say_finished()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_hello_in_many_records(endpoint, size):
    with Client(endpoint.port) as client:
        client.transcript = client.hello.message()
        client.send(records(HANDSHAKE, client.transcript, size))
        client.hear_hello()
        client.hear_flight()
        client.say_finished()
        client.say_data(REQUEST)
        client.read_until(ANSWER)


@pytest.mark.parametrize("send", [sealed_in_two_records, sealed_in_two_sends])
def test_a_finished_in_two_pieces(endpoint, send):
    for at in range(1, 36):
        with Client(endpoint.port) as client:
            client.say_hello()
            client.hear_hello()
            client.hear_flight()
            said = client.finished()
            client.transcript += said
            send(client, said, at)
            client.open_application()
            client.say_data(REQUEST)
            client.read_until(ANSWER)


def test_a_hello_whose_body_ends_early(endpoint):
    """Each length fits but those inside. Some beginnings are hellos without extensions."""
    client = Client(endpoint.port)
    body = client.hello.body()
    client.close()
    bare = len(client.hello.but(has_extensions=False).body())
    for at in range(len(body)):
        with Client(endpoint.port) as client:
            client.send(record(HANDSHAKE, message(CLIENT_HELLO, body[:at])))
            ending = client.ending()
            expected = ("protocol_version", "handshake_failure", "missing_extension") if at == bare else ("decode_error",)
            assert ending.alert in expected, (at, ending)
            assert not ending.is_reset, at


def test_a_hello_and_no_more(endpoint):
    """The client goes in the middle of a record."""
    before = endpoint.failures()
    client = Client(endpoint.port)
    said = record(HANDSHAKE, client.hello.message())
    client.close()
    endpoint.quiet()
    count = endpoint.failures() - before
    for at in range(1, len(said)):
        with Client(endpoint.port) as client:
            client.send(said[:at])
            client.end()
            assert client.ending().alert is None, at
    failed = endpoint.failures() - before - count
    assert dict(failed) == {"gone": len(said) - 1}


def test_a_finished_and_no_more(endpoint):
    for at in range(1, 58):
        with Client(endpoint.port) as client:
            client.say_hello()
            client.hear_hello()
            client.hear_flight()
            client.send(client.write.seal(HANDSHAKE, client.finished())[:at])
            client.end()
            assert client.ending().alert is None, at


def test_lengths_that_lie(endpoint):
    """A length one too great or too small in each place of a hello that has one, and in its record."""
    client = Client(endpoint.port)
    said = client.hello.message()
    client.close()
    whole = record(HANDSHAKE, said)
    body = 5 + 4
    session = body + 2 + 32
    suites = session + 1 + 32
    extensions = suites + 2 + 2 + 2
    places = {
        "record": 4,
        "message": 8,
        "session id": session,
        "suites": suites + 1,
        "compressions": extensions - 2,
        "extensions": extensions + 1,
    }
    at = extensions + 2
    while at < len(whole):
        places[f"extension at {at}"] = at + 3
        at += 4 + int.from_bytes(whole[at + 2 : at + 4], "big")
    assert at == len(whole)
    for name, place in places.items():
        for change in (-1, 1):
            lie = bytearray(whole)
            lie[place] += change
            with Client(endpoint.port) as client:
                client.send(bytes(lie))
                # A length that is too great waits for the rest, which never comes.
                client.end()
                ending = client.ending()
                waits = change == 1 and name in ("record", "message")
                expected = (None,) if waits else ("decode_error", "illegal_parameter", "unexpected_message", None)
                assert ending.alert in expected and not ending.data, (name, change, ending)
                assert not ending.is_reset, (name, change)


def reach_exchange(endpoint):
    client = LegacyClient(endpoint.port)
    client.say_hello()
    client.hear_flight()
    return client


def test_messages_of_tls_1_2_in_two_pieces(endpoint):
    with LegacyClient(endpoint.port) as client:
        hello_length, exchange_length = len(client.hello.message()), len(client.key_exchange())
    for at in range(1, hello_length):
        with LegacyClient(endpoint.port) as client:
            client.transcript = client.hello.message()
            in_two_records(client, client.transcript, at)
            client.hear_flight()
            client.say_key_exchange()
            client.say_change()
            client.say_finished()
            client.hear_finished()
    for at in range(1, exchange_length):
        with reach_exchange(endpoint) as client:
            said = client.key_exchange()
            client.transcript += said
            in_two_records(client, said, at)
            client.derive()
            client.say_change()
            client.say_finished()
            client.hear_finished()
    for at in range(1, 16):
        with reach_exchange(endpoint) as client:
            client.say_key_exchange()
            client.say_change()
            said = client.finished()
            client.transcript += said
            sealed_in_two_records(client, said, at)
            client.hear_finished()
            client.say_data(REQUEST)
            client.read_until(ANSWER)


def test_a_key_exchange_that_ends_early(endpoint):
    for at in range(33):
        with reach_exchange(endpoint) as client:
            client.send(record(HANDSHAKE, message(CLIENT_KEY_EXCHANGE, client.key_exchange()[4:][:at])))
            ending = client.ending()
            # rustls sends none about these: see deviations.py.
            assert ending.alert in ("decode_error", "illegal_parameter", None), (at, ending)
            assert not ending.is_reset, at

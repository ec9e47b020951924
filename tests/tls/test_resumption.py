"""Tickets that were changed, data that comes early, and hellos that are asked for again."""

import pytest
from case import Case, check_failure, ids
import keys
from modern import Client
from places import REQUEST
from wire import *  # noqa: F403

ANSWER = b"# EOF\n"


def get_ticket(endpoint, suite=keys.AES_128):
    """A ticket, and the secret of it (RFC 8446, 4.6.1)."""
    with Client(endpoint.port, suite).shake_hands() as client:
        client.say_data(REQUEST)
        client.read_until(ANSWER)
        body = client.tickets[0][4:]
        nonce_length = body[8]
        nonce, rest = body[9 : 9 + nonce_length], body[9 + nonce_length :]
        ticket = rest[2 : 2 + int.from_bytes(rest[:2], "big")]
        secret = keys.expand(client.suite, client.resumption, b"resumption", nonce)
        return ticket, secret


def offer(client, ticket, secret, early=False, change_binder=lambda binder: binder):
    """Says a hello with a ticket and its binder (RFC 8446, 4.2.11.2)."""
    size = len(keys.digest(client.suite))
    identities = vector(2, vector(2, ticket) + bytes(4))
    hello = client.hello.with_extension(EARLY_DATA, b"") if early else client.hello
    whole = hello.with_extension(PRE_SHARED_KEY, identities + vector(2, vector(1, bytes(size)))).message()
    begun = whole[: -(size + 3)]
    binder_key = keys.expand(client.suite, keys.extract(client.suite, None, secret), b"res binder", keys.digest(client.suite))
    finished = keys.expand(client.suite, binder_key, b"finished")
    binder = change_binder(keys.mac(client.suite.hash, finished, keys.digest(client.suite, begun)))
    client.hello = hello.with_extension(PRE_SHARED_KEY, identities + vector(2, vector(1, binder)))
    client.psk = secret
    client.say_hello()


def finish(client):
    client.hear_hello()
    client.hear_flight()
    client.say_finished()
    client.say_data(REQUEST)
    client.read_until(ANSWER)
    return client.is_resumed


def test_a_ticket_spares_the_signature(endpoint):
    ticket, secret = get_ticket(endpoint)
    for _ in range(4):
        with Client(endpoint.port) as client:
            offer(client, ticket, secret)
            assert finish(client)


def test_a_ticket_with_a_wrong_bit_is_no_ticket(endpoint):
    ticket, secret = get_ticket(endpoint)
    for at in range(len(ticket)):
        changed = bytearray(ticket)
        changed[at] ^= 1
        with Client(endpoint.port) as client:
            offer(client, bytes(changed), secret)
            assert not finish(client), at


def test_a_ticket_that_is_cut_is_no_ticket(endpoint):
    ticket, secret = get_ticket(endpoint)
    for length in (1, 16, len(ticket) // 2, len(ticket) - 1):
        with Client(endpoint.port) as client:
            offer(client, ticket[:length], secret)
            assert not finish(client), length


def flip(binder):
    return binder[:-1] + bytes([binder[-1] ^ 1])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a wrong binder", flip),
        ("a binder of zeros", lambda it: bytes(len(it))),
        ("a binder that is too long", lambda it: it + b"\0"),
    ],
)
def test_binders(endpoint, name, change):
    ticket, secret = get_ticket(endpoint)
    case = Case(
        name, ("decrypt_error", "illegal_parameter"), "4.2.11", lambda client: offer(client, ticket, secret, change_binder=change)
    )
    check_failure(endpoint, case, Client(endpoint.port))


def seal_early(client, secret, data):
    """Records under the key of early data, in which a server that takes none sees noise (RFC 8446, 4.2.10)."""
    early = keys.extract(client.suite, None, secret)
    label = keys.expand(client.suite, early, b"c e traffic", keys.digest(client.suite, client.hello.message()))
    half = keys.Half(client.suite, label)
    return b"".join(half.seal(DATA, piece) for piece in data)


@pytest.mark.parametrize("pieces", [1, 3])
def test_early_data_is_skipped(endpoint, pieces):
    """Our tickets allow none. What comes all the same is not carried out, and the handshake goes on (RFC 8446, 4.2.10)."""
    ticket, secret = get_ticket(endpoint)
    with Client(endpoint.port) as client:
        offer(client, ticket, secret, early=True)
        client.send(seal_early(client, secret, pieces * [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]))
        client.hear_hello()
        client.hear_flight()
        client.say_finished()
        # The first answer is to this request, and it is the last.
        client.say_data(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        ending = client.ending()
        assert ending.data.count(b"HTTP/1.1 200 ") == 1 and ending.data.endswith(ANSWER), ending


def test_early_data_without_end_is_refused(endpoint):
    ticket, secret = get_ticket(endpoint)
    with Client(endpoint.port) as client:
        offer(client, ticket, secret, early=True)
        client.send(seal_early(client, secret, 64 * [bytes(TEXT_MAX)]))
        client.hear_hello()
        client.hear_flight()
        ending = client.ending()
        assert ending.alert in ("bad_record_mac", "unexpected_message"), ending


def test_early_data_that_is_only_offered_does_no_harm(endpoint):
    ticket, secret = get_ticket(endpoint)
    with Client(endpoint.port) as client:
        offer(client, ticket, secret, early=True)
        assert finish(client)


def ask_for_retry(client):
    """Offers a group without a key, so that the server asks for one."""
    client.first = client.hello
    client.hello = client.hello.with_extension(KEY_SHARE, key_share())
    client.say_hello()
    client.hear_retry()
    client.hello = client.first


def test_a_second_hello_is_understood(endpoint):
    with Client(endpoint.port) as client:
        ask_for_retry(client)
        client.say_hello()
        finish(client)


def again(name, alert, section, change, reason="protocol"):
    def play(client):
        ask_for_retry(client)
        client.send(record(HANDSHAKE, change(client)))

    return Case(name, alert, section, play, reason)


RETRIES = [
    again(
        "a second hello without a key",
        "illegal_parameter",
        "4.1.2",
        lambda it: it.hello.with_extension(KEY_SHARE, key_share()).message(),
    ),
    again(
        "a second hello with the key of another group",
        "illegal_parameter",
        "4.2.8",
        lambda it: it.hello.with_extension(KEY_SHARE, key_share((P256, b"\x04" + bytes(64)))).message(),
    ),
    again("a second hello with another suite", "illegal_parameter", "4.1.4", lambda it: it.hello.but(suites=(0x1302,)).message()),
    again("a Finished in place of a second hello", "unexpected_message", "4.1.4", lambda it: message(FINISHED, bytes(32))),
    again("a second hello without a body", "decode_error", "4.1.2", lambda it: message(CLIENT_HELLO, b"")),
]


@pytest.mark.parametrize("case", **ids(RETRIES))
def test_retries(endpoint, case):
    check_failure(endpoint, case, Client(endpoint.port))

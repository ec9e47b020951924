"""Records behind the handshake of TLS 1.3, wherever the connection is then."""

import pytest
from case import NO_ALERT, Case, ids
from keys import SUITES
from modern import Client
from places import PLACES, PONG, open_websocket, still_works
from wire import *  # noqa: F403

# Records in a row without data that the server allows.
QUIET_MAX = 32


def sealed(kind, contents, **options):
    return lambda client: client.send(client.write.seal(kind, contents, **options))


def inner(contents):
    return lambda client: client.send(client.write.seal_inner(contents))


def plain(kind, contents, **options):
    return lambda client: client.send(record(kind, contents, **options))


def change_a_bit(client, at=-1):
    said = bytearray(client.write.seal(DATA, PONG))
    said[at] ^= 1
    client.send(bytes(said))


def repeat_a_record(client):
    said = client.write.seal(DATA, PONG[:1])
    client.send(2 * said)


def update(client, body=b"\0"):
    client.send(client.write.seal(HANDSHAKE, message(KEY_UPDATE, body)))
    client.write.update()


def keep_the_old_key(client):
    client.send(client.write.seal(HANDSHAKE, message(KEY_UPDATE, b"\0")))
    client.send(client.write.seal(DATA, PONG))


def flood(client, body):
    for _ in range(QUIET_MAX + 1):
        update(client, body)


def send_empty_records(client):
    client.send(b"".join(client.write.seal(DATA, b"") for _ in range(QUIET_MAX + 1)))


def send_close_notify_and_more(client):
    client.send(client.write.seal(ALERT, alert(1, "close_notify")) + client.write.seal(DATA, PONG) + b"\x7f\0\0")


CASES = [
    *(
        Case(f"a record of type {kind}", "unexpected_message", "5", plain(kind, bytes(32)))
        for kind in (0, 19, 20, 21, 22, 24, 128, 255)
    ),
    Case("a change of keys", "unexpected_message", "5", plain(CHANGE_CIPHER_SPEC, b"\x01")),
    Case("a hello", "unexpected_message", "4.1.2", lambda it: it.send(record(HANDSHAKE, it.hello.message()))),
    Case("an alert without protection", "unexpected_message", "5", plain(ALERT, alert(2, "internal_error"))),
    Case("HTTP without TLS", "unexpected_message", "5", lambda it: it.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    Case("a record without contents", "bad_record_mac", "5.2", plain(DATA, b"")),
    Case("a record of one byte", "bad_record_mac", "5.2", plain(DATA, b"\0")),
    Case("a record shorter than a tag", "bad_record_mac", "5.2", plain(DATA, bytes(15))),
    Case("a record of zeros", "bad_record_mac", "5.2", plain(DATA, bytes(64))),
    Case("a wrong tag", "bad_record_mac", "5.2", change_a_bit),
    Case("a wrong byte", "bad_record_mac", "5.2", lambda it: change_a_bit(it, 5)),
    Case("another version than was sealed", "bad_record_mac", "5.2", lambda it: change_a_bit(it, 2)),
    Case("a record twice", "bad_record_mac", "5.3", repeat_a_record),
    Case("text of 2^14 + 1 bytes", "record_overflow", "5.1", sealed(DATA, bytes(TEXT_MAX + 1))),
    Case("text of 2^14 bytes and a byte of padding", "record_overflow", "5.4", sealed(DATA, bytes(TEXT_MAX), padding=1)),
    Case("a record of 2^14 + 256 bytes", "record_overflow", "5.2", inner(b"\x17" + bytes(RECORD_MAX - 17))),
    Case("a record of 2^14 + 257 bytes", "record_overflow", "5.2", inner(b"\x17" + bytes(RECORD_MAX - 16))),
    Case("a record that says it has 2^14 + 257 bytes", "record_overflow", "5.2", plain(DATA, b"", length=RECORD_MAX + 1)),
    Case("a record that says it has 2^16 - 1 bytes", "record_overflow", "5.2", plain(DATA, b"", length=(1 << 16) - 1)),
    Case("nothing inside", "unexpected_message", "5.4", inner(b"")),
    Case("nothing but padding", "unexpected_message", "5.4", inner(bytes(100))),
    Case("2^14 + 1 bytes of padding", "unexpected_message", "5.4", inner(bytes(TEXT_MAX + 1))),
    *(Case(f"contents of type {kind}", "unexpected_message", "5", sealed(kind, b"\x01")) for kind in (1, 19, 20, 24, 255)),
    Case("a message without contents", "unexpected_message", "5.4", sealed(HANDSHAKE, b"")),
    Case("an alert without contents", "unexpected_message", "5.4", sealed(ALERT, b"")),
    Case("an alert without contents in padding", "unexpected_message", "5.4", sealed(ALERT, b"", padding=9)),
    Case("an alert of one byte", "decode_error", "6", sealed(ALERT, b"\x02")),
    Case("two alerts in a record", ("decode_error", "unexpected_message"), "5.1", sealed(ALERT, 2 * alert(1, "user_canceled"))),
    Case("a fatal alert", NO_ALERT, "6.2", sealed(ALERT, alert(2, "bad_record_mac")), may_reset=True),
    Case("a fatal alert that says it is a warning", NO_ALERT, "6", sealed(ALERT, alert(1, "bad_record_mac")), may_reset=True),
    Case("an unknown alert", NO_ALERT, "6.2", sealed(ALERT, b"\x02\xfa"), may_reset=True),
    *(
        Case(f"message {kind}", "unexpected_message", "4", sealed(HANDSHAKE, message(kind, body)))
        for kind, body in (
            (0, b""),
            (NEW_SESSION_TICKET, bytes(16)),
            (END_OF_EARLY_DATA, b""),
            (CERTIFICATE, b"\0\0\0\0"),
            (CERTIFICATE_VERIFY, b"\x04\x03\0\0"),
            (FINISHED, bytes(32)),
            (MESSAGE_HASH, bytes(32)),
            (255, b""),
        )
    ),
    Case("a hello, protected", "unexpected_message", "4.1.2", lambda it: it.send(it.write.seal(HANDSHAKE, it.hello.message()))),
    Case("a KeyUpdate of value 2", "illegal_parameter", "4.6.3", sealed(HANDSHAKE, message(KEY_UPDATE, b"\x02"))),
    Case("a KeyUpdate of value 255", "illegal_parameter", "4.6.3", sealed(HANDSHAKE, message(KEY_UPDATE, b"\xff"))),
    Case("a KeyUpdate without a value", "decode_error", "6.2", sealed(HANDSHAKE, message(KEY_UPDATE, b""))),
    Case("a KeyUpdate of two bytes", "decode_error", "6.2", sealed(HANDSHAKE, message(KEY_UPDATE, b"\0\0"))),
    Case("two KeyUpdates in a record", "unexpected_message", "5.1", sealed(HANDSHAKE, 2 * message(KEY_UPDATE, b"\0"))),
    Case(
        "half a message behind a KeyUpdate", "unexpected_message", "5.1", sealed(HANDSHAKE, message(KEY_UPDATE, b"\0") + b"\x18")
    ),
    # A message may go in pieces. No implementation cuts these five bytes, and the server keeps nothing for it.
    *(
        Case(f"{at} bytes of a KeyUpdate", "unexpected_message", "5.1", sealed(HANDSHAKE, message(KEY_UPDATE, b"\0")[:at]))
        for at in range(1, 5)
    ),
    Case("the old key behind a KeyUpdate", "bad_record_mac", "4.6.3", keep_the_old_key),
    Case("a flood of KeyUpdates", "unexpected_message", "D.4", lambda it: flood(it, b"\0")),
    Case("a flood of KeyUpdates that want an answer", "unexpected_message", "D.4", lambda it: flood(it, b"\x01")),
    Case("a flood of empty records", "unexpected_message", "D.4", send_empty_records),
    Case(
        "a flood of warnings",
        "unexpected_message",
        "D.4",
        lambda it: it.send(b"".join(it.write.seal(ALERT, alert(1, "user_canceled")) for _ in range(QUIET_MAX + 1))),
    ),
]


@pytest.fixture(params=sorted(PLACES))
def place(request):
    return request.param


@pytest.mark.parametrize("case", **ids(CASES))
def test_what_ends_a_connection(endpoint, place, case):
    before = endpoint.broken()
    with Client(endpoint.port).shake_hands() as client:
        PLACES[place](client)
        case.play(client)
        ending = client.ending()
        if case.alert is NO_ALERT:
            ending.alerts = [each for each in ending.alerts if each != "close_notify"]
        case.check(ending)
    if place != "control":
        assert endpoint.broken() == before + 1


def test_a_close_notify_is_answered(endpoint, place):
    """What follows a close_notify is ignored (RFC 8446, 6.1)."""
    before = endpoint.broken()
    with Client(endpoint.port).shake_hands() as client:
        PLACES[place](client)
        send_close_notify_and_more(client)
        ending = client.ending()
        assert ending.alert == "close_notify", ending
        assert ending.levels == [1], ending
    assert endpoint.broken() == before


def test_an_end_without_a_close_notify_is_answered(endpoint, place):
    with Client(endpoint.port).shake_hands() as client:
        PLACES[place](client)
        client.end()
        assert client.ending().alert == "close_notify"


def test_half_a_record_and_the_end(endpoint, place):
    for at in range(1, 28):
        with Client(endpoint.port).shake_hands() as client:
            PLACES[place](client)
            client.send(client.write.seal(DATA, PONG)[:at])
            client.end()
            assert client.ending().alert == "close_notify", at


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_what_does_not_end_a_connection(endpoint, suite):
    with Client(endpoint.port, suite).shake_hands() as client:
        open_websocket(client)
        # RFC 8446, 5.1: the version says nothing.
        for version in (0, SSL3, TLS10, TLS13, 0xFFFF):
            client.say_data(PONG, version=version)
        client.say_data(PONG, padding=1)
        client.say_data(PONG, padding=TEXT_MAX - len(PONG))
        # Text of all lengths at the edges: pongs, and the last of them cut where the record ends.
        pongs = PONG * (TEXT_MAX // len(PONG) + 1)
        for cut in (1, 2, TEXT_MAX - 1, TEXT_MAX):
            client.say_data(pongs[:cut])
            rest = -cut % len(PONG)
            if rest:
                client.say_data(PONG[-rest:])
        for _ in range(QUIET_MAX):
            client.say_data(b"")
        still_works(client)
        # Asking many times is as good as once, and each answer changes the keys that we read with.
        for wanted in (0, 1, 1, 1, 0):
            update(client, bytes([wanted]))
        still_works(client)
        for _ in range(4 * QUIET_MAX):
            update(client, b"\x01")
            client.say_data(PONG)
        still_works(client)
        client.send(client.write.seal(ALERT, alert(1, "user_canceled")))
        still_works(client)


def test_records_in_any_pieces(endpoint):
    """Each record of a WebSocket's opening and a ping, cut at every byte of it, and one byte at a time."""
    with Client(endpoint.port).shake_hands() as client:
        open_websocket(client)
        length = len(client.write.seal(DATA, PONG))
        client.write.sequence -= 1
        for at in range(1, length):
            said = client.write.seal(DATA, PONG) + client.write.seal(HANDSHAKE, message(KEY_UPDATE, b"\x01"))
            client.write.update()
            client.send(said[:at])
            client.send(said[at:])
            still_works(client)
        for byte in client.write.seal(DATA, PONG):
            client.send(bytes([byte]))
        still_works(client)

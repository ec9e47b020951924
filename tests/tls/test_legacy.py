"""TLS 1.2: handshakes that break a rule, and records behind them. Sections are of RFC 5246 unless they say another."""

import pytest
from case import NO_ALERT, Case, check_failure, ids
from deviations import LEGACY, LEGACY_HANDSHAKES
from legacy import LegacyClient
from places import PLACES, PONG, open_websocket, still_works
from wire import *  # noqa: F403

NOTHING_IN_COMMON = "nothing_in_common"
FALLBACK_SCSV = 0x5600


def hello(name, alert, section, change, reason="protocol"):
    return Case(name, alert, section, lambda client: client.say(change(client.hello).message()), reason)


def behind_hello(name, alert, section, play, reason="protocol", **options):
    """Behind ServerHelloDone. The client's next message would be its ClientKeyExchange."""

    def reach(client):
        client.say_hello()
        client.hear_flight()
        play(client)

    return Case(name, alert, section, reach, reason, **options)


def behind_exchange(name, alert, section, play, reason="protocol"):
    """The next would be change_cipher_spec."""

    def reach(client):
        client.say_key_exchange()
        play(client)

    return behind_hello(name, alert, section, reach, reason)


def behind_change(name, alert, section, play, reason="protocol"):
    """The next would be Finished. The server's alerts have no protection yet."""

    def reach(client):
        client.say_change()
        play(client)

    return behind_exchange(name, alert, section, reach, reason)


def plain(kind, contents, **options):
    return lambda client: client.send(record(kind, contents, **options))


def sealed(kind, contents):
    return lambda client: client.send(client.write.seal(kind, contents))


def say(kind, body):
    return lambda client: client.say(message(kind, body))


def change_early(client):
    """With keys of an empty secret, as in CVE-2014-0224."""
    client.send(record(CHANGE_CIPHER_SPEC, b"\x01"))


def say_wrong_finished(client):
    said = client.finished()
    client.say(said[:-1] + bytes([said[-1] ^ 1]))


def change_a_bit(client, contents=PONG):
    said = bytearray(client.write.seal(DATA, contents))
    said[-1] ^= 1
    client.send(bytes(said))


HANDSHAKES = [
    hello("SSL 3.0", "protocol_version", "E.1", lambda it: it.but(version=SSL3), NOTHING_IN_COMMON),
    hello("TLS 1.0", "protocol_version", "E.1", lambda it: it.but(version=TLS10), NOTHING_IN_COMMON),
    hello("TLS 1.1", "protocol_version", "E.1", lambda it: it.but(version=TLS11), NOTHING_IN_COMMON),
    hello("DEFLATE only", "illegal_parameter", "7.4.1.2", lambda it: it.but(compressions=b"\x01"), NOTHING_IN_COMMON),
    hello(
        "RSA without a key exchange",
        "handshake_failure",
        "7.4.1.3",
        lambda it: it.but(suites=(0x009C, 0x002F)),
        NOTHING_IN_COMMON,
    ),
    hello(
        "CBC, RC4, 3DES, export and NULL",
        "handshake_failure",
        "7.4.1.3",
        lambda it: it.but(suites=(0xC023, 0xC009, 0xC007, 0xC008, 0x0008, 0x0002)),
        NOTHING_IN_COMMON,
    ),
    hello("no suites", ("decode_error", "illegal_parameter", "handshake_failure"), "7.4.1.2", lambda it: it.but(suites=())),
    hello("no groups", "handshake_failure", "RFC 8422, 5.1", lambda it: it.without(SUPPORTED_GROUPS), NOTHING_IN_COMMON),
    hello(
        "compressed points only",
        ("illegal_parameter", "handshake_failure"),
        "RFC 8422, 5.1.2",
        lambda it: it.with_extension(POINT_FORMATS, vector(1, b"\x01")),
        NOTHING_IN_COMMON,
    ),
    hello(
        "no protocol in common",
        "no_application_protocol",
        "RFC 7301, 3.2",
        lambda it: it.with_extension(ALPN, vector(2, vector(1, b"h2"))),
        NOTHING_IN_COMMON,
    ),
    behind_hello("a hello again", "unexpected_message", "7.4.1.2", lambda it: it.say(it.hello.message())),
    behind_hello("a change of keys too early", "unexpected_message", "7.1", change_early),
    behind_hello("a Finished too early", "unexpected_message", "7.4.9", say(FINISHED, bytes(12))),
    behind_hello("data too early", "unexpected_message", "7.4.9", plain(DATA, b"GET / HTTP/1.1\r\n\r\n")),
    behind_hello("certificates that nobody asked for", "unexpected_message", "7.4.6", say(CERTIFICATE, vector(3, b""))),
    behind_hello("an empty key exchange", "decode_error", "RFC 8422, 5.7", say(CLIENT_KEY_EXCHANGE, b"")),
    behind_hello(
        "a key exchange of no bytes", ("decode_error", "illegal_parameter"), "RFC 8422, 5.7", say(CLIENT_KEY_EXCHANGE, b"\0")
    ),
    behind_hello(
        "a key of 31 bytes", "illegal_parameter", "RFC 8422, 5.11", say(CLIENT_KEY_EXCHANGE, vector(1, bytes([9] * 31)))
    ),
    behind_hello(
        "a key of zeros",
        ("illegal_parameter", "handshake_failure"),
        "RFC 8422, 5.11",
        say(CLIENT_KEY_EXCHANGE, vector(1, bytes(32))),
    ),
    behind_hello("a byte behind the key", "decode_error", "7.2.2", say(CLIENT_KEY_EXCHANGE, vector(1, bytes([9] * 32)) + b"\0")),
    behind_hello(
        "a warning, and close_notify",
        NO_ALERT,
        "7.2.1",
        lambda it: it.send(record(ALERT, alert(1, "user_canceled")) + record(ALERT, alert(1, "close_notify"))),
        "gone",
    ),
    behind_hello("a fatal alert", NO_ALERT, "7.2.2", plain(ALERT, alert(2, "bad_certificate")), "alert"),
    behind_hello(
        "a flood of warnings", "unexpected_message", "7.2", lambda it: it.send(64 * record(ALERT, alert(1, "user_canceled")))
    ),
    behind_exchange("a key exchange twice", "unexpected_message", "7.4.7", lambda it: it.say(it.key_exchange())),
    behind_exchange("a Finished without protection", "unexpected_message", "7.4.9", say(FINISHED, bytes(12))),
    behind_exchange(
        "a change of keys of value 2",
        ("decode_error", "illegal_parameter", "unexpected_message"),
        "7.1",
        plain(CHANGE_CIPHER_SPEC, b"\x02"),
    ),
    behind_exchange(
        "a change of keys of two bytes", ("decode_error", "unexpected_message"), "7.1", plain(CHANGE_CIPHER_SPEC, b"\x01\x01")
    ),
    behind_exchange(
        "half a message and a change of keys",
        "unexpected_message",
        "7.1",
        lambda it: it.send(record(HANDSHAKE, b"\x14\0") + record(CHANGE_CIPHER_SPEC, b"\x01")),
    ),
    behind_change("a wrong Finished", "decrypt_error", "7.4.9", say_wrong_finished),
    behind_change(
        "a Finished of 11 bytes",
        ("decrypt_error", "decode_error"),
        "7.4.9",
        lambda it: it.say(message(FINISHED, it.finished()[4:-1])),
    ),
    behind_change(
        "a Finished of 13 bytes",
        ("decrypt_error", "decode_error"),
        "7.4.9",
        lambda it: it.say(it.finished()[:3] + b"\x0d" + it.finished()[4:] + b"\0"),
    ),
    behind_change(
        "a Finished without protection",
        ("unexpected_message", "bad_record_mac", "decode_error"),
        "7.4.9",
        plain(HANDSHAKE, message(FINISHED, bytes(12))),
    ),
    behind_change("data before the Finished", "unexpected_message", "7.4.9", sealed(DATA, b"GET / HTTP/1.1\r\n\r\n")),
    behind_change("a wrong tag", "bad_record_mac", "7.2.2", change_a_bit),
    behind_change(
        "a change of keys again",
        ("unexpected_message", "bad_record_mac", "decode_error"),
        "7.1",
        plain(CHANGE_CIPHER_SPEC, b"\x01"),
    ),
]


@pytest.mark.parametrize("case", **ids(HANDSHAKES))
def test_handshakes(endpoint, case):
    check_failure(endpoint, case, LegacyClient(endpoint.port), LEGACY_HANDSHAKES)


def renegotiate_for_ever(client):
    for _ in range(8):
        client.send(client.write.seal(HANDSHAKE, client.hello.message()))


BEHIND = [
    *(Case(f"a record of type {kind}", "unexpected_message", "6.2.1", plain(kind, bytes(40))) for kind in (0, 19, 24, 128, 255)),
    *(
        Case(f"a record of type {kind} that nobody sealed", "bad_record_mac", "6.2.3", plain(kind, bytes(40)))
        for kind in (20, 21, 22, 23)
    ),
    Case("HTTP without TLS", "unexpected_message", "6.2.1", lambda it: it.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    Case("a record without contents", ("bad_record_mac", "decode_error"), "6.2.3", plain(DATA, b"")),
    Case("a record shorter than a tag", "bad_record_mac", "6.2.3", plain(DATA, bytes(23))),
    Case("a wrong tag", "bad_record_mac", "6.2.3.3", change_a_bit),
    Case("a record twice", "bad_record_mac", "6.2.3.3", lambda it: it.send(2 * it.write.seal(DATA, PONG[:1]))),
    Case("text of 2^14 + 1 bytes", "record_overflow", "6.2.1", sealed(DATA, bytes(TEXT_MAX + 1))),
    Case("a record of 2^14 + 2049 bytes", "record_overflow", "6.2.3", plain(DATA, b"", length=TEXT_MAX + 2049)),
    Case("a record of 2^16 - 1 bytes", "record_overflow", "6.2.3", plain(DATA, b"", length=(1 << 16) - 1)),
    Case("an alert of one byte", "decode_error", "7.2", sealed(ALERT, b"\x02")),
    Case("an alert of three bytes", "decode_error", "7.2", sealed(ALERT, b"\x01\x5a\0")),
    Case("a fatal alert", NO_ALERT, "7.2.2", sealed(ALERT, alert(2, "bad_record_mac")), may_reset=True),
    Case(
        "a flood of warnings",
        "unexpected_message",
        "7.2",
        lambda it: [it.send(it.write.seal(ALERT, alert(1, "user_canceled"))) for _ in range(64)],
    ),
    Case(
        "a flood of empty records",
        "unexpected_message",
        "6.2.1",
        lambda it: [it.send(it.write.seal(DATA, b"")) for _ in range(128)],
    ),
    Case("a change of keys", "unexpected_message", "7.1", sealed(CHANGE_CIPHER_SPEC, b"\x01")),
    Case("a Finished again", "unexpected_message", "7.4", sealed(HANDSHAKE, message(FINISHED, bytes(12)))),
    Case("a message without contents", ("unexpected_message", "decode_error"), "6.2.1", sealed(HANDSHAKE, b"")),
    Case("half a message", "unexpected_message", "7.4", sealed(HANDSHAKE, b"\x01\0")),
    Case("contents of type 24", "unexpected_message", "6.2.1", sealed(HEARTBEAT, b"\x01\x40\0")),
]


@pytest.fixture(params=sorted(PLACES))
def place(request):
    return request.param


@pytest.mark.parametrize("case", **ids(BEHIND))
def test_what_ends_a_connection(endpoint, place, case):
    with LegacyClient(endpoint.port).shake_hands() as client:
        PLACES[place](client)
        case.play(client)
        case.check(client.ending(), LEGACY)


def test_renegotiation_is_refused(endpoint):
    """Once with a warning (RFC 5246, 7.2.2), and whoever goes on is refused."""
    with LegacyClient(endpoint.port).shake_hands() as client:
        open_websocket(client)
        client.send(client.write.seal(HANDSHAKE, client.hello.message()))
        assert client.read_record() == (ALERT, alert(1, "no_renegotiation"))
        still_works(client)
        renegotiate_for_ever(client)
        ending = client.ending()
        assert set(ending.alerts[:-1]) <= {"no_renegotiation"}, ending
        assert not ending.is_reset, ending


def test_a_close_notify_is_answered(endpoint, place):
    with LegacyClient(endpoint.port).shake_hands() as client:
        PLACES[place](client)
        client.send(client.write.seal(ALERT, alert(1, "close_notify")) + client.write.seal(DATA, PONG))
        ending = client.ending()
        assert (ending.alert, ending.levels) == ("close_notify", [1]), ending


def test_what_does_not_end_a_connection(endpoint):
    with LegacyClient(endpoint.port).shake_hands() as client:
        open_websocket(client)
        pongs = PONG * (TEXT_MAX // len(PONG) + 1)
        for cut in (1, 2, TEXT_MAX - 1, TEXT_MAX):
            client.say_data(pongs[:cut])
            rest = -cut % len(PONG)
            if rest:
                client.say_data(PONG[-rest:])
        client.say_data(b"")
        client.send(client.write.seal(ALERT, alert(1, "user_canceled")))
        still_works(client)
        for byte in client.write.seal(DATA, PONG):
            client.send(bytes([byte]))
        still_works(client)

"""ClientHellos that break a rule, and records that are none."""

import pytest
from case import NO_ALERT, Case, check_failure, ids
from deviations import HELLOS
from modern import Client
from wire import *  # noqa: F403


def hello(name, alert, section, change, reason="protocol", hears=False):
    """A case whose ClientHello is another one: `change` gives a Hello or the bytes of a message. `hears`: the server finds the fault behind
    its ServerHello, so its alert is protected."""

    def play(client):
        changed = change(client.hello)
        client.transcript = changed if isinstance(changed, bytes) else changed.message()
        client.send(records(HANDSHAKE, client.transcript, TEXT_MAX))
        if hears:
            client.hear_hello()

    return Case(name, alert, section, play, reason)


def sent(name, alert, section, make, reason="protocol"):
    """A case whose first bytes are any."""
    return Case(name, alert, section, lambda client: client.send(make(client.hello)), reason)


def share(hello):
    return hello.get(KEY_SHARE)[-32:]


def body_but(hello, at, count, inside):
    body = hello.body()
    return message(CLIENT_HELLO, body[:at] + inside + body[at + count :])


NOTHING_IN_COMMON = "nothing_in_common"
OFF_CURVE = b"\x04" + bytes(63) + b"\x01"

FIELDS = [
    hello("no body", "decode_error", "4.1.2", lambda it: message(CLIENT_HELLO, b"")),
    hello("a byte behind the extensions", "decode_error", "4.1.2", lambda it: message(CLIENT_HELLO, it.body() + b"\0")),
    hello("a session id of 33 bytes", ("decode_error", "illegal_parameter"), "4.1.2", lambda it: it.but(session_id=bytes(33))),
    hello("no cipher suites", ("decode_error", "illegal_parameter", "handshake_failure"), "4.1.2", lambda it: it.but(suites=())),
    hello("half a cipher suite", "decode_error", "4.1.2", lambda it: body_but(it, 67, 4, b"\0\3\x13\x01\0")),
    hello("no compressions", ("decode_error", "illegal_parameter"), "4.1.2", lambda it: it.but(compressions=b"")),
    hello("DEFLATE only", "illegal_parameter", "4.1.2", lambda it: it.but(compressions=b"\x01"), NOTHING_IN_COMMON),
    hello(
        "no extensions",
        ("protocol_version", "handshake_failure", "missing_extension"),
        "9.2",
        lambda it: it.but(has_extensions=False),
        NOTHING_IN_COMMON,
    ),
    hello(
        "an extension twice",
        ("illegal_parameter", "decode_error"),
        "4.2",
        lambda it: it.but(extensions=(*it.extensions, (SIGNATURE_ALGORITHMS, it.get(SIGNATURE_ALGORITHMS)))),
    ),
    hello("no key shares", "missing_extension", "9.2", lambda it: it.without(KEY_SHARE), NOTHING_IN_COMMON),
    hello("no groups", "missing_extension", "9.2", lambda it: it.without(SUPPORTED_GROUPS), NOTHING_IN_COMMON),
    hello("no signature algorithms", "missing_extension", "9.2", lambda it: it.without(SIGNATURE_ALGORITHMS), NOTHING_IN_COMMON),
    hello("no suite in common", "handshake_failure", "4.1.1", lambda it: it.but(suites=(0x1304, 0x00FF)), NOTHING_IN_COMMON),
    hello(
        "no group in common",
        "handshake_failure",
        "4.1.1",
        lambda it: it.with_extension(SUPPORTED_GROUPS, numbers(2, 0x0100)).with_extension(KEY_SHARE, key_share()),
        NOTHING_IN_COMMON,
    ),
    hello(
        "no signature in common",
        "handshake_failure",
        "4.4.2.2",
        lambda it: it.with_extension(SIGNATURE_ALGORITHMS, numbers(2, 0x0201)),
        NOTHING_IN_COMMON,
        hears=True,
    ),
    hello(
        "TLS 1.1 and no newer",
        "protocol_version",
        "4.2.1",
        lambda it: it.with_extension(SUPPORTED_VERSIONS, numbers(1, TLS11)),
        NOTHING_IN_COMMON,
    ),
    hello("no versions", ("decode_error", "protocol_version"), "4.2.1", lambda it: it.with_extension(SUPPORTED_VERSIONS, b"\0")),
    hello("half a version", "decode_error", "4.2.1", lambda it: it.with_extension(SUPPORTED_VERSIONS, b"\x01\x03")),
    hello(
        "a key share of 31 bytes",
        "illegal_parameter",
        "4.2.8.2",
        lambda it: it.with_extension(KEY_SHARE, key_share((X25519, share(it)[:-1]))),
    ),
    hello(
        "a key share of zeros",
        "illegal_parameter",
        "7.4.2",
        lambda it: it.with_extension(KEY_SHARE, key_share((X25519, bytes(32)))),
    ),
    hello(
        "a point that is not on its curve",
        "illegal_parameter",
        "4.2.8.2",
        lambda it: it.with_extension(SUPPORTED_GROUPS, numbers(2, P256)).with_extension(KEY_SHARE, key_share((P256, OFF_CURVE))),
    ),
    hello(
        "two key shares of one group",
        "illegal_parameter",
        "4.2.8",
        lambda it: it.with_extension(KEY_SHARE, key_share((X25519, share(it)), (X25519, share(it)))),
    ),
    hello(
        "an empty key share",
        ("decode_error", "illegal_parameter"),
        "4.2.8",
        lambda it: it.with_extension(KEY_SHARE, key_share((X25519, b""))),
    ),
    hello(
        "the wrong protocol",
        "no_application_protocol",
        "RFC 7301, 3.2",
        lambda it: it.with_extension(ALPN, vector(2, vector(1, b"h2"))),
        NOTHING_IN_COMMON,
        hears=True,
    ),
    hello("no protocols", "decode_error", "RFC 7301, 3.1", lambda it: it.with_extension(ALPN, vector(2, b""))),
    hello(
        "a protocol without a name",
        ("decode_error", "illegal_parameter"),
        "RFC 7301, 3.1",
        lambda it: it.with_extension(ALPN, vector(2, vector(1, b""))),
    ),
    hello(
        "no server names",
        ("decode_error", "illegal_parameter"),
        "RFC 6066, 3",
        lambda it: it.with_extension(SERVER_NAME, vector(2, b"")),
    ),
    hello(
        "two server names",
        ("illegal_parameter", "decode_error"),
        "RFC 6066, 3",
        lambda it: it.with_extension(SERVER_NAME, vector(2, 2 * (b"\0" + vector(2, b"a")))),
    ),
    hello(
        "a server name that is none",
        ("illegal_parameter", "decode_error", "unrecognized_name"),
        "RFC 6066, 3",
        lambda it: it.with_extension(SERVER_NAME, vector(2, b"\0" + vector(2, b"a b\0"))),
    ),
    hello(
        "keys of a session without modes",
        "missing_extension",
        "4.2.9",
        lambda it: it.without(PSK_MODES).with_extension(
            PRE_SHARED_KEY, vector(2, vector(2, bytes(9)) + bytes(4)) + vector(2, vector(1, bytes(32)))
        ),
    ),
    hello(
        "keys of a session in front of another extension",
        "illegal_parameter",
        "4.2.11",
        lambda it: it.with_extension(
            PRE_SHARED_KEY, vector(2, vector(2, bytes(9)) + bytes(4)) + vector(2, vector(1, bytes(32)))
        ).with_extension(ALPN, vector(2, vector(1, b"http/1.1"))),
    ),
    hello(
        "two keys of sessions and one binder",
        ("illegal_parameter", "decode_error"),
        "4.2.11",
        lambda it: it.with_extension(
            PRE_SHARED_KEY, vector(2, 2 * (vector(2, bytes(9)) + bytes(4))) + vector(2, vector(1, bytes(32)))
        ),
    ),
    hello(
        "a message of 2^16 bytes",
        ("decode_error", "illegal_parameter"),
        "4.1.2",
        lambda it: message(CLIENT_HELLO, it.body() + bytes(1 << 16)),
    ),
    hello(
        "a message that says it has 2^24 - 1 bytes",
        ("decode_error", "illegal_parameter"),
        "4",
        lambda it: message(CLIENT_HELLO, it.body(), length=(1 << 24) - 1),
    ),
]


@pytest.mark.parametrize("case", **ids(FIELDS))
def test_fields(endpoint, case):
    check_failure(endpoint, case, Client(endpoint.port), HELLOS)


PADDING = 21


def padded(hello, size):
    """The message with an extension that makes it that long (RFC 7685)."""
    rest = size - len(hello.with_extension(PADDING, b"").message())
    return hello.with_extension(PADDING, bytes(rest)).message()


def sslv2_hello():
    """A hello of SSL 2.0 that offers TLS 1.0 (RFC 5246, E.2)."""
    body = b"\x01\x03\x01" + number(2, 3) + number(2, 0) + number(2, 16) + b"\x00\x00\x2f" + bytes(16)
    return number(2, 0x8000 | len(body)) + body


RECORDS = [
    sent("SSL 2.0", "unexpected_message", "RFC 6176", lambda it: sslv2_hello(), "not_tls"),
    sent("garbage", "unexpected_message", "5", lambda it: b"\x7f garbage", "not_tls"),
    sent("a heartbeat", "unexpected_message", "5", lambda it: record(HEARTBEAT, b"\x01\x40\0"), "not_tls"),
    sent("a record of type 0", "unexpected_message", "5", lambda it: record(0, it.message()), "not_tls"),
    sent("a record of type 255", "unexpected_message", "5", lambda it: record(255, it.message()), "not_tls"),
    sent("data first", "unexpected_message", "5", lambda it: record(DATA, it.message())),
    sent(
        "a change of keys first",
        "unexpected_message",
        "5",
        lambda it: record(CHANGE_CIPHER_SPEC, b"\x01") + record(HANDSHAKE, it.message()),
    ),
    sent(
        "a record without contents",
        ("unexpected_message", "decode_error"),
        "5.1",
        lambda it: record(HANDSHAKE, b"") + record(HANDSHAKE, it.message()),
    ),
    sent("a record of 2^14 + 1 bytes", "record_overflow", "5.1", lambda it: record(HANDSHAKE, padded(it, TEXT_MAX + 1))),
    sent("a record of 2^14 + 256 bytes", "record_overflow", "5.1", lambda it: record(HANDSHAKE, padded(it, RECORD_MAX))),
    sent("a record of 2^14 + 257 bytes", "record_overflow", "5.1", lambda it: record(HANDSHAKE, padded(it, RECORD_MAX + 1))),
    sent("a record of 2^16 - 1 bytes", "record_overflow", "5.1", lambda it: record(HANDSHAKE, b"", length=(1 << 16) - 1)),
    sent("a hello twice in a record", "unexpected_message", "4.1.2", lambda it: record(HANDSHAKE, 2 * it.message())),
    sent(
        "half a hello between other records",
        ("unexpected_message", "decode_error"),
        "5.1",
        lambda it: (
            record(HANDSHAKE, it.message()[:40]) + record(ALERT, alert(1, "user_canceled")) + record(HANDSHAKE, it.message()[40:])
        ),
    ),
    sent(
        "an alert that is a warning",
        NO_ALERT,
        "6",
        lambda it: record(ALERT, alert(1, "user_canceled")) + record(ALERT, alert(1, "close_notify")),
        "gone",
    ),
    sent("close_notify", NO_ALERT, "6.1", lambda it: record(ALERT, alert(1, "close_notify")), "gone"),
    sent(
        "close_notify, and a hello",
        NO_ALERT,
        "6.1",
        lambda it: record(ALERT, alert(1, "close_notify")) + record(HANDSHAKE, it.message()),
        "gone",
    ),
    sent("a fatal alert", NO_ALERT, "6.2", lambda it: record(ALERT, alert(2, "internal_error")), "alert"),
    sent("an unknown alert", NO_ALERT, "6.2", lambda it: record(ALERT, b"\x02\xfa"), "alert"),
    sent("an alert without contents", ("unexpected_message", "decode_error"), "5.1", lambda it: record(ALERT, b"")),
    sent("an alert of one byte", "decode_error", "6", lambda it: record(ALERT, b"\x02")),
    sent("an alert of three bytes", "decode_error", "6", lambda it: record(ALERT, b"\x02\x28\0")),
    *(
        sent(
            f"message {kind} first",
            "unexpected_message",
            "4",
            lambda it, kind=kind, body=body: record(HANDSHAKE, message(kind, body)),
        )
        for kind, body in (
            (END_OF_EARLY_DATA, b""),
            (ENCRYPTED_EXTENSIONS, vector(2, b"")),
            (SERVER_HELLO_DONE, b""),
            (CERTIFICATE_VERIFY, number(2, 0x0403) + vector(2, bytes(64))),
            (CLIENT_KEY_EXCHANGE, vector(1, bytes(32))),
            (FINISHED, bytes(32)),
            (KEY_UPDATE, b"\0"),
            (255, b""),
        )
    ),
    # What only servers send is not even read.
    *(
        sent(
            f"message {kind} first",
            ("unexpected_message", "decode_error"),
            "4",
            lambda it, kind=kind: record(HANDSHAKE, message(kind, bytes(32))),
        )
        for kind in (SERVER_HELLO, NEW_SESSION_TICKET, CERTIFICATE, CERTIFICATE_REQUEST, MESSAGE_HASH)
    ),
]


@pytest.mark.parametrize("case", **ids(RECORDS))
def test_records(endpoint, case):
    check_failure(endpoint, case, Client(endpoint.port))

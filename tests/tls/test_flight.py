"""What a client of TLS 1.3 sends in place of its Finished, or around it."""

import pytest
from case import NO_ALERT, Case, check_failure, ids
from deviations import HANDSHAKES
from keys import Half
from modern import Client
from wire import *  # noqa: F403


def behind_hello(name, alert, section, play, reason="protocol"):
    """A case behind the server's flight. The client's next message would be its Finished."""

    def reach(client):
        client.say_hello()
        client.hear_hello()
        client.hear_flight()
        play(client)

    return Case(name, alert, section, reach, reason)


def sealed(kind, contents):
    """Sends one record that is protected with the handshake's key."""
    return lambda client: client.send(client.write.seal(kind, contents))


def plain(kind, contents):
    return lambda client: client.send(record(kind, contents))


def inner(contents):
    return lambda client: client.send(client.write.seal_inner(contents))


def say_wrong_finished(client):
    said = client.finished()
    client.say(said[:-1] + bytes([said[-1] ^ 1]))


def say_finished_with(behind):
    return lambda client: client.say(client.finished() + behind)


def say_data_before_finished(client):
    client.send(Half(client.suite, client.later_write).seal(DATA, b"GET / HTTP/1.1\r\n\r\n"))


def say_finished_twice(client):
    said = client.write.seal(HANDSHAKE, client.finished()) + client.write.seal(HANDSHAKE, client.finished())
    client.send(said)
    # The first one was right: what follows it is under the next keys.


def change_a_bit(client):
    said = bytearray(client.write.seal(HANDSHAKE, client.finished()))
    said[-1] ^= 1
    client.send(bytes(said))


def skip_a_record(client):
    client.write.sequence += 1
    client.send(client.write.seal(HANDSHAKE, client.finished()))


def change_keys_for_ever(client):
    client.send(1_000 * record(CHANGE_CIPHER_SPEC, b"\x01"))


CASES = [
    behind_hello("a wrong Finished", "decrypt_error", "4.4.4", say_wrong_finished),
    behind_hello(
        "a Finished that is too short",
        ("decrypt_error", "decode_error"),
        "4.4.4",
        lambda it: it.say(message(FINISHED, it.finished()[4:-1])),
    ),
    behind_hello(
        "a Finished that is too long",
        ("decrypt_error", "decode_error"),
        "4.4.4",
        lambda it: it.say(message(FINISHED, it.finished()[4:] + b"\0")),
    ),
    behind_hello("an empty Finished", ("decrypt_error", "decode_error"), "4.4.4", lambda it: it.say(message(FINISHED, b""))),
    behind_hello(
        "a KeyUpdate in the record of the Finished", "unexpected_message", "5.1", say_finished_with(message(KEY_UPDATE, b"\x01"))
    ),
    behind_hello("half a message in the record of the Finished", "unexpected_message", "5.1", say_finished_with(b"\x18\0\0")),
    behind_hello("data before the Finished", "bad_record_mac", "5.2", say_data_before_finished),
    behind_hello("data under the handshake's key", "unexpected_message", "5", sealed(DATA, b"GET / HTTP/1.1\r\n\r\n")),
    behind_hello("a wrong tag", "bad_record_mac", "5.2", change_a_bit),
    behind_hello("a record that is missing", "bad_record_mac", "5.2", skip_a_record),
    behind_hello("a record without a tag", ("bad_record_mac", "decode_error"), "5.2", plain(DATA, b"")),
    behind_hello("a record shorter than a tag", ("bad_record_mac", "decode_error"), "5.2", plain(DATA, bytes(15))),
    behind_hello("nothing inside", "unexpected_message", "5.4", inner(b"")),
    behind_hello("nothing but padding", "unexpected_message", "5.4", inner(bytes(100))),
    behind_hello("an alert without contents", "unexpected_message", "5.4", sealed(ALERT, b"")),
    behind_hello("a type that TLS does not have", "unexpected_message", "5", sealed(HEARTBEAT, b"\x01")),
    behind_hello("a change of keys that is protected", "unexpected_message", "5", sealed(CHANGE_CIPHER_SPEC, b"\x01")),
    behind_hello("a change of keys of another value", "unexpected_message", "5", plain(CHANGE_CIPHER_SPEC, b"\x02")),
    behind_hello("a change of keys of two bytes", "unexpected_message", "5", plain(CHANGE_CIPHER_SPEC, b"\x01\x01")),
    behind_hello("a change of keys without contents", "unexpected_message", "5", plain(CHANGE_CIPHER_SPEC, b"")),
    behind_hello("a thousand changes of keys", "unexpected_message", "D.4", change_keys_for_ever),
    behind_hello(
        "a hello again", ("unexpected_message", "bad_record_mac"), "5.2", lambda it: plain(HANDSHAKE, it.hello.message())(it)
    ),
    behind_hello("a hello again, protected", "unexpected_message", "4.1.2", lambda it: it.say(it.hello.message())),
    behind_hello("text of 2^14 + 1 bytes", "record_overflow", "5.1", sealed(HANDSHAKE, bytes(TEXT_MAX + 1))),
    behind_hello("a record of 2^14 + 256 bytes", "record_overflow", "5.2", inner(bytes(RECORD_MAX - 17) + b"\x16")),
    behind_hello("a record of 2^14 + 257 bytes", "record_overflow", "5.2", inner(bytes(RECORD_MAX - 16) + b"\x16")),
    behind_hello("close_notify", NO_ALERT, "6.1", sealed(ALERT, alert(1, "close_notify")), "gone"),
    behind_hello("close_notify without protection", NO_ALERT, "6.1", plain(ALERT, alert(1, "close_notify")), "gone"),
    behind_hello("a fatal alert", NO_ALERT, "6.2", sealed(ALERT, alert(2, "unknown_ca")), "alert"),
    behind_hello("a fatal alert without protection", NO_ALERT, "6.2", plain(ALERT, alert(2, "unknown_ca")), "alert"),
    behind_hello("an alert of one byte", "decode_error", "6", sealed(ALERT, b"\x02")),
    behind_hello("an alert of three bytes", "decode_error", "6", sealed(ALERT, b"\x02\x28\0")),
    behind_hello(
        "certificates that nobody asked for", "unexpected_message", "4.4.2", lambda it: it.say(it.certificate([b"\x30\0"]))
    ),
    behind_hello(
        "a signature that nobody asked for",
        "unexpected_message",
        "4.4.3",
        lambda it: it.say(it.certificate_verify(lambda _: bytes(64))),
    ),
    *(
        behind_hello(f"message {kind}", "unexpected_message", "4", sealed(HANDSHAKE, message(kind, body)))
        for kind, body in ((END_OF_EARLY_DATA, b""), (KEY_UPDATE, b"\0"), (ENCRYPTED_EXTENSIONS, b"\0\0"), (255, b""))
    ),
]


@pytest.mark.parametrize("case", **ids(CASES))
def test_flight(endpoint, case):
    check_failure(endpoint, case, Client(endpoint.port), HANDSHAKES)


def test_an_empty_message_is_no_progress(endpoint):
    """rustls overhears a few of them (RFC 8446, 5.4, wants unexpected_message). The handshake neither goes on nor outlasts its client."""
    before = endpoint.failures()
    with Client(endpoint.port) as client:
        client.say_hello()
        client.hear_hello()
        client.hear_flight()
        client.send(client.write.seal(HANDSHAKE, b""))
        client.end()
        assert client.ending().alert is None
    assert dict(endpoint.failures() - before) == {"gone": 1}

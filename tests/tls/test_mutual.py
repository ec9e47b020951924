"""Certificates of clients, in a handshake that wants one."""

import pytest
from case import Case, check_failure
from certificates import Authority
from legacy import LegacyClient
from modern import Client
from places import REQUEST
from server import until
from wire import *  # noqa: F403

ANSWER = b"# EOF\n"


@pytest.fixture(scope="session")
def identity(authority):
    return authority.client()


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "an authority that nobody knows").client()


def reach(client):
    client.say_hello()
    client.hear_hello()
    client.hear_flight()
    assert client.asks_certificate


def behind_certificate(client, identity):
    reach(client)
    client.say(client.certificate(identity.chain))


def wrong_signature(client, identity):
    behind_certificate(client, identity)
    client.say(client.certificate_verify(lambda signed: identity.sign(signed + b"?")))


def signature_of_another(client, identity, stranger):
    behind_certificate(client, identity)
    client.say(client.certificate_verify(stranger.sign))


def other_algorithm(client, identity):
    behind_certificate(client, identity)
    said = client.certificate_verify(identity.sign)
    client.say(said[:4] + number(2, 0x0201) + said[6:])


def test_a_client_with_a_certificate_gets_in(mutual, identity):
    for kind in (Client, LegacyClient):
        with kind(mutual.port).shake_hands(identity) as client:
            client.say_data(REQUEST)
            client.read_until(ANSWER)


NO_CERTIFICATE = "client_certificate"
CASES = [
    (
        "no certificate",
        "certificate_required",
        "4.4.2.4",
        lambda it, ours, other: (reach(it), it.say(it.certificate([]))),
        NO_CERTIFICATE,
    ),
    (
        "a Finished in place of certificates",
        "unexpected_message",
        "4.4.2",
        lambda it, ours, other: (reach(it), it.say(it.finished())),
        "protocol",
    ),
    (
        "a signature in place of certificates",
        "unexpected_message",
        "4.4.3",
        lambda it, ours, other: (reach(it), it.say(it.certificate_verify(ours.sign))),
        "protocol",
    ),
    (
        "a certificate of a stranger",
        "unknown_ca",
        "4.4.2.4",
        lambda it, ours, other: behind_certificate(it, other),
        NO_CERTIFICATE,
    ),
    (
        "a certificate that is none",
        ("bad_certificate", "decode_error"),
        "4.4.2.4",
        lambda it, ours, other: (reach(it), it.say(it.certificate([b"\x30\x03\x02\x01\x01"]))),
        NO_CERTIFICATE,
    ),
    (
        "a certificate twice",
        "unexpected_message",
        "4.4.3",
        lambda it, ours, other: (behind_certificate(it, ours), it.say(it.certificate(ours.chain))),
        "protocol",
    ),
    (
        "no signature",
        "unexpected_message",
        "4.4.3",
        lambda it, ours, other: (behind_certificate(it, ours), it.say(it.finished())),
        "protocol",
    ),
    ("a wrong signature", "decrypt_error", "4.4.3", lambda it, ours, other: wrong_signature(it, ours), NO_CERTIFICATE),
    (
        "a signature of another key",
        "decrypt_error",
        "4.4.3",
        lambda it, ours, other: signature_of_another(it, ours, other),
        NO_CERTIFICATE,
    ),
    (
        "a signature by SHA-1",
        ("illegal_parameter", "handshake_failure"),
        "4.4.3",
        lambda it, ours, other: other_algorithm(it, ours),
        "protocol",
    ),
]


@pytest.mark.parametrize("given", CASES, ids=lambda given: given[0].replace(" ", "-"))
def test_certificates(mutual, identity, stranger, given):
    name, alert, section, play, reason = given
    case = Case(name, alert, section, lambda client: play(client, identity, stranger), reason)
    check_failure(mutual, case, Client(mutual.port))


@pytest.fixture(scope="session")
def namesake(tmp_path_factory, authority):
    """Of another CA that has the name of ours: the signature of the certificate is wrong."""
    return Authority(tmp_path_factory.mktemp("namesake"), authority.name).client()


def test_a_certificate_of_a_ca_with_the_name_of_ours(mutual, namesake):
    case = Case("a namesake", "bad_certificate", "6.2", lambda client: behind_certificate(client, namesake), NO_CERTIFICATE)
    check_failure(mutual, case, Client(mutual.port))


def legacy_certificate(chain):
    def play(client):
        client.say_hello()
        client.hear_flight()
        assert client.asks_certificate
        client.say(client.certificate(chain))

    return play


def test_certificates_of_tls_1_2(mutual, stranger, namesake):
    """TLS 1.2 has no alert for a certificate that is missing (RFC 5246, 7.2.2)."""
    for name, alert, section, chain in (
        ("no certificate", "handshake_failure", "RFC 5246, 7.4.6", []),
        ("a certificate of a stranger", "unknown_ca", "RFC 5246, 7.2.2", stranger.chain),
        ("a namesake", "bad_certificate", "RFC 5246, 7.2.2", namesake.chain),
    ):
        case = Case(name, alert, section, legacy_certificate(chain), NO_CERTIFICATE)
        check_failure(mutual, case, LegacyClient(mutual.port))


def send_in_pieces(client, said, at):
    client.transcript += said
    client.send(client.write.seal(HANDSHAKE, said[:at]) + client.write.seal(HANDSHAKE, said[at:]))


def test_messages_in_two_pieces(mutual, identity):
    """The certificate and its signature, cut at every byte."""
    with Client(mutual.port) as client:
        length = len(client.certificate(identity.chain))
    for at in range(1, length):
        with Client(mutual.port) as client:
            reach(client)
            send_in_pieces(client, client.certificate(identity.chain), at)
            said = client.certificate_verify(identity.sign)
            send_in_pieces(client, said, 1 + at % (len(said) - 1))
            client.say_finished()
            client.say_data(REQUEST)
            client.read_until(ANSWER)


def test_messages_that_end_early(mutual, identity):
    """Their own length fits, and those inside do not."""
    with Client(mutual.port) as client:
        length = len(client.certificate(identity.chain)) - 4
    for at in range(length):
        with Client(mutual.port) as client:
            reach(client)
            client.say(message(CERTIFICATE, client.certificate(identity.chain)[4:][:at]))
            assert client.ending().alert == "decode_error", at
    for at in range(64):
        with Client(mutual.port) as client:
            behind_certificate(client, identity)
            client.say(message(CERTIFICATE_VERIFY, client.certificate_verify(identity.sign)[4:][:at]))
            assert client.ending().alert == "decode_error", at


def test_chains_that_are_too_long(mutual, identity):
    with Client(mutual.port) as client:
        reach(client)
        said = client.certificate(identity.chain * 500)
        assert len(said) > 1 << 17
        for at in range(0, len(said), TEXT_MAX):
            client.send(client.write.seal(HANDSHAKE, said[at : at + TEXT_MAX]))
        ending = client.ending()
        # rustls queues no alert about a message that is too long.
        assert ending.alert in ("decode_error", "bad_certificate", "illegal_parameter", None), ending


def test_the_log_says_whose_certificate_is_refused_and_why(own_mutual, stranger):
    with Client(own_mutual.port) as client:
        behind_certificate(client, stranger)
        assert client.ending().alert == "unknown_ca"

    def line():
        return next((line for line in own_mutual.server.log if "TLS refused: client_certificate" in line), "")

    until("the log says so", line)
    for words in ("no CA of tls-client-ca has signed it", '"CN=a client"', '"CN=an authority that nobody knows"', "(from 127.0.0.1)"):
        assert words in line(), line()

"""Clients that speak something else, slowly, or nothing."""

import time

import pytest
from case import NO_ALERT
from legacy import LegacyClient
from modern import Client
from peer import Peer
from places import PONG, REQUEST, open_websocket, still_works
from server import until
from wire import *  # noqa: F403

ANSWER = b"# EOF\n"


def everything(peer):
    """All bytes until the end."""
    received = b""
    while piece := peer.socket.recv(65_536):
        received += piece
    return received


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "CONNECT"])
def test_http_is_told_so(endpoint, method):
    before = endpoint.failures()
    with Peer(endpoint.port) as peer:
        peer.send(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = everything(peer)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"speaks TLS" in answer, answer
    assert dict(endpoint.failures() - before) == {"not_tls": 1}


@pytest.mark.parametrize(
    "first",
    [
        b"\r\n\r\nGET",
        b"get / http/1.1\r\n\r\n",
        b"\0",
        b"\xff" * 100,
        b"SSH-2.0-x\r\n",
        b"\x80\x80\x01\x03\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_other_protocols_are_refused(endpoint, first):
    before = endpoint.failures()
    with Peer(endpoint.port) as peer:
        peer.send(first)
        everything(peer)
    assert dict(endpoint.failures() - before) == {"not_tls": 1}


def test_nobody_waits_for_the_silent(impatient):
    """The time for a request counts from the beginning, whatever comes meanwhile."""

    def after_nothing(client):
        pass

    def after_half_a_hello(client):
        client.send(record(HANDSHAKE, client.hello.message())[:50])

    def after_the_hello(client):
        client.say_hello()
        client.hear_hello()
        client.hear_flight()

    for play in (after_nothing, after_half_a_hello, after_the_hello):
        with Client(impatient.port) as client:
            play(client)
            assert client.ending().alert is NO_ALERT, play.__name__
    # Behind the handshake the client can be told.
    for kind in (Client, LegacyClient):
        with kind(impatient.port).shake_hands() as client:
            ending = client.ending()
            assert ending.data.startswith(b"HTTP/1.1 408 "), ending
            assert ending.alert == "close_notify", ending


def lines_about_tls(endpoint):
    return [line for line in list(endpoint.server.log) if "TLS refused" in line]


def test_the_log_says_who_goes_away_in_a_handshake(own):
    """Some clients say by that alone that they do not trust the certificate. Who says nothing at all is no client."""
    with Peer(own.port):
        pass
    own.quiet()
    until("it is counted", lambda: own.failures()["gone"] == 1)
    assert lines_about_tls(own) == []
    with Client(own.port) as client:
        client.say_hello()
        client.hear_hello()
        client.hear_flight()
    until("the log says so", lambda: lines_about_tls(own))
    (line,) = lines_about_tls(own)
    for words in ("TLS refused: gone: ", "after the server had answered it", "(from 127.0.0.1)"):
        assert words in line, line


def test_the_log_says_what_a_client_and_the_server_do_not_have_in_common(own):
    """In words of our own, with what to do."""
    with LegacyClient(own.port) as client:
        client.hello = client.hello.but(version=TLS11)
        client.say_hello()
        assert client.ending().alert == "protocol_version"
    until("the log says so", lambda: lines_about_tls(own))
    (line,) = lines_about_tls(own)
    assert "nothing_in_common: the client speaks TLS 1.1 or older" in line, line


def test_a_byte_now_and_then_buys_no_time(impatient):
    with Client(impatient.port) as client:
        client.socket.settimeout(0)
        for byte in record(HANDSHAKE, client.hello.message()):
            client.send(bytes([byte]))
            time.sleep(0.02)
            try:
                if client.socket.recv(1) == b"":
                    return
            except BlockingIOError:
                pass
            except ConnectionResetError:
                return
    raise AssertionError("a client that sends a byte each 20 ms finished its hello after 4 s, in spite of a deadline of 300 ms")


def test_one_byte_at_a_time_is_understood(endpoint):
    with Client(endpoint.port) as client:
        client.transcript = client.hello.message()
        for byte in record(HANDSHAKE, client.transcript):
            client.send(bytes([byte]))
        client.hear_hello()
        client.hear_flight()
        client.say_finished()
        client.say_data(REQUEST)
        client.read_until(ANSWER)


def test_who_does_not_read_is_not_answered_without_end(endpoint):
    """KeyUpdates that want an answer, with data between them, of a client that reads nothing. Answers may not pile up in memory."""
    with Client(endpoint.port, receive_buffer=4096).shake_hands() as client:
        open_websocket(client)
        before = endpoint.memory()
        asked = 0
        # Some 27 bytes of an answer each: far more than sockets hold.
        for _ in range(50):
            sent = b""
            for _ in range(2_000):
                sent += client.write.seal(HANDSHAKE, message(KEY_UPDATE, b"\x01"))
                client.write.update()
                sent += client.write.seal(DATA, PONG)
                asked += 1
            client.send(sent)
        grown = endpoint.memory() - before
        assert grown < 1 << 20, f"{asked} questions grew the memory by {grown} bytes"
        still_works(client)

"""The hostile requests of tests/hostile through a proxy: what it forwards is what Myriad reads, or Myriad refuses it."""

import http.client
import io
import socket

import pytest
from cases import read_all, read_request
from recorder import Recorder
from server import PATIENCE

# Behind each case, so that a proxy that waits for more of it has something to swallow.
CANARY = b"GET /canary HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def recorder():
    running = Recorder()
    yield running
    running.stop()


def exchange(port, sent):
    """All that comes back until the end."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
        try:
            plain.sendall(sent)
            while piece := plain.recv(65_536):
                received += piece
        except ConnectionError:
            # A proxy that has refused a head does not wait until all of it has come.
            pass
    return received


class Received:
    """What came back, as a socket for http.client."""

    def __init__(self, received):
        self.file = io.BufferedReader(io.BytesIO(received))

    def makefile(self, *_):
        # HTTPResponse closes what it reads from.
        self.file.close = lambda: None
        return self.file


def statuses(received):
    """The statuses of all answers."""
    found, source = [], Received(received)
    while source.file.peek(1):
        response = http.client.HTTPResponse(source)
        response.begin()
        response.read()
        found.append(response.status)
    return found


def sent_of(case):
    """What is sent of a case: with the canary behind, unless that would be the rest of its last request."""
    return case.sent if case.last == "partial" else case.sent + CANARY


def front_of(front, kind, recorder):
    """The proxy with the config of deploy/, but for patience: it gives up soon on requests that do not come to their end."""
    return front(f"127.0.0.1:{recorder.port}", replaced=kind.impatient)


def test_what_a_proxy_forwards_is_what_we_read(front, kind, recorder):
    proxy = front_of(front, kind, recorder)
    forwarded, stricter = 0, []
    for case in read_all():
        recorder.take()
        exchange(proxy.port, sent_of(case))
        seen = [read_request(request) for request in recorder.take()]
        ours = case.requests
        if case.last == "open":
            ours.append(read_request(CANARY))
        for number, request in enumerate(seen):
            if number < len(ours):
                known = ours[number]
                assert (request.method, request.body) == (known.method, known.body), case.name
                # A proxy may take the host off, and other spellings with it.
                targets = {one.target.removeprefix("http://a") for one in (request, known)}
                assert len(targets) == 1, f"{case.name}: {targets}"
            else:
                assert case.last == "refused", f"{case.name}: {request}, and we wait for more"
        forwarded += len(seen)
        if case.last == "refused" and len(seen) > len(ours):
            stricter.append(case.name)
    print(f"{kind.name}: {forwarded} requests forwarded; we refuse and it does not: {', '.join(stricter)}")
    assert forwarded > 50


def test_what_a_proxy_writes_is_one_request_for_us(serve, front, kind, recorder):
    server = serve()
    proxy = front_of(front, kind, recorder)
    for case in read_all():
        recorder.take()
        exchange(proxy.port, sent_of(case))
        for written in recorder.take():
            # Another request behind it, which must be answered as one, unless the first one ends the connection.
            answers = statuses(exchange(server.port, written + CANARY))
            head = written.partition(b"\r\n\r\n")[0].lower()
            closes = b"connection: close" in head or b" http/1.0\r\n" in head and b"keep-alive" not in head
            refused = answers[0] in (400, 417, 431, 501, 505)
            # A fault behind the head, in a trailer, may be found when the request has been answered: that ends the connection.
            is_faulty = case.last == "refused" and len(answers) == 1
            expected = 1 if closes or refused or is_faulty else 2
            assert len(answers) == expected, f"{case.name}: {written}: {answers}"

"""A process that is stopped for longer than a request may take: what arrived meanwhile is served."""

import json
import signal
import time

import pytest

from server import answer_of

BODY = json.dumps({"channel": "c", "data": 1})
# Longer than a head or a body may take (10 s each), and no longer.
PAUSE_S = 11


@pytest.mark.parametrize("clients", [40])
def test_requests_that_arrive_during_a_pause_are_served(serve, clients):
    server = serve()
    head = f"POST /api/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request = (head + BODY).encode()
    # Half of a body, and half of a head.
    cuts = [len(request) - 5, len(head) // 2]
    waiting = []
    for number in range(clients):
        connection = server.socket()
        # The first request takes the connection to the control plane.
        connection.sendall(request)
        assert answer_of(connection).status == 200
        cut = cuts[number % len(cuts)]
        connection.sendall(request[:cut])
        waiting.append((connection, request[cut:]))
    server.process.send_signal(signal.SIGSTOP)
    for connection, rest in waiting:
        connection.sendall(rest)
    # Not to wait for anything: this is how long the server misses.
    time.sleep(PAUSE_S)
    server.process.send_signal(signal.SIGCONT)
    for connection, _ in waiting:
        answer = answer_of(connection)
        assert answer.status == 200, answer
        connection.close()

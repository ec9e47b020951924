#!/usr/bin/env python3
"""One client of the Centrifuge protocol, in JSON, that asks again as soon as it has its answer, and times each answer.

    bench/ask.py fill 127.0.0.1:8000 room         publishes 100 times by POST /api/publish; prints the last position
    bench/ask.py history 127.0.0.1:8000 room      reads these 100 publications, 2,000 times
    bench/ask.py members 127.0.0.1:8000 room      reads the first page of the member list, 200 times
    bench/ask.py stats 127.0.0.1:8000 room        reads how many members there are, 200 times

It prints its figures as JSON, or says what was wrong with an answer and ends with 1. It speaks the protocol itself, over one
blocking socket, because a library would be part of every time. A clock runs from before the command is handed to the kernel
until the last byte of the answer has been read. The answer is parsed after that.
"""

import argparse
import base64
import contextlib
import gc
import http.client
import json
import math
import os
import socket
import statistics
import struct
import sys
import time
import urllib.request

PATIENCE_S = 10
# Bytes of text in a publication, as in a line of chat.
TEXT_BYTES = 64
PAGE_MEMBERS = 1_000
# The first answer is parsed and checked, and then one of so many.
CHECKED_EVERY = 100
# A frame with a whole text message in it.
TEXT_FRAME = 0x81
# Of a wrong answer, as much is shown.
SHOWN_BYTES = 200
# Room for an answer, and for what comes with it.
BUFFER_BYTES = 4 << 20


class WrongAnswer(Exception):
    """The server did not answer, or answered something else than it should."""


@contextlib.contextmanager
def reading(answer):
    """For code that reads this answer: what it does not find there is the server's mistake, and not one of this program."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise WrongAnswer(f"an answer cannot be read ({error!r}): {answer[:SHOWN_BYTES]!r}") from error


class Client:
    """A connected client. The server sends it nothing but answers to its own commands, and pings."""

    def __init__(self, origin):
        host, _, port = origin.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        # A timeout of Python's own would cost a poll() before each recv().
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE_S, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.commands = 0
        try:
            self._upgrade(origin)
            self.time_answer("connect", {})
        except BaseException:
            self.close()
            raise

    def close(self):
        self.socket.close()

    def time_answer(self, method, request):
        """The answer to a command as it came, and how long it took in milliseconds."""
        self.commands += 1
        frame = masked(json.dumps({"id": self.commands, method: request}).encode())
        started = time.perf_counter()
        self.socket.sendall(frame)
        answer = self._next_message()
        elapsed_ms = (time.perf_counter() - started) * 1000
        # Cheap enough for every answer. An error has its own name in the place of the method's.
        if not answer.startswith(b'{"id":%d,"%s":' % (self.commands, method.encode())):
            raise WrongAnswer(f"the answer to {method} is {answer[:SHOWN_BYTES]!r}")
        return answer, elapsed_ms

    def _upgrade(self, origin):
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /connection/websocket HTTP/1.1\r\nHost: {origin}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while (end := self.buffer.find(b"\r\n\r\n", 0, self.filled)) < 0:
            self._receive()
        head = bytes(self.view[:end])
        self._drop(end + 4)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise WrongAnswer(f"the upgrade is answered with {head[:SHOWN_BYTES]!r}")

    def _next_message(self):
        while (message := self._next_frame()) == b"{}":
            # A ping, and its pong.
            self.socket.sendall(masked(b"{}"))
        return message

    def _next_frame(self):
        self._fill(2)
        first, length, start = self.buffer[0], self.buffer[1], 2
        if first != TEXT_FRAME or length > 127:
            raise WrongAnswer(f"the server sent a frame that begins with {bytes(self.view[:2]).hex()}")
        if length > 125:
            start += 2 if length == 126 else 8
            self._fill(start)
            length = int.from_bytes(self.view[2:start], "big")
        if start + length > BUFFER_BYTES:
            raise WrongAnswer(f"the server sent a frame of {length:,} bytes")
        self._fill(start + length)
        message = bytes(self.view[start:start + length])
        self._drop(start + length)
        return message

    def _fill(self, count):
        while self.filled < count:
            self._receive()

    def _receive(self):
        try:
            count = self.socket.recv_into(self.view[self.filled:])
        except BlockingIOError:
            raise WrongAnswer(f"the server sent nothing for {PATIENCE_S} s") from None
        if count == 0:
            raise WrongAnswer("the server ended the connection")
        self.filled += count

    def _drop(self, count):
        rest = self.filled - count
        self.buffer[:rest] = self.buffer[count:self.filled]
        self.filled = rest


def masked(text):
    """A text frame of a client, RFC 6455, section 5."""
    key = os.urandom(4)
    length = len(text)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + length.to_bytes(2, "big")
    pad = (key * (length // 4 + 1))[:length]
    body = int.from_bytes(text, "big") ^ int.from_bytes(pad, "big")
    return bytes([TEXT_FRAME]) + size + key + body.to_bytes(length, "big")


def fill(origin, channel, count):
    """Publishes so often, each time the next number, and returns the position of the last publication."""
    first = None
    for number in range(count):
        body = json.dumps({"channel": channel, "data": {"number": number, "text": "x" * TEXT_BYTES}}).encode()
        request = urllib.request.Request(f"http://{origin}/api/publish", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
        with reading(text):
            position = json.loads(text)["result"]
            found = position["epoch"], position["offset"] - number
        first = first or found
        if found != first:
            raise WrongAnswer(f"publication {number} has the position {position}, and the first one {first[0]}:{first[1]}")
    epoch, offset = first
    return {"epoch": epoch, "offset": offset + count - 1}


def check_history(result, count):
    found = [(publication["offset"], publication["data"]["number"]) for publication in result.get("publications", [])]
    begin = result["offset"] - count + 1
    if found != [(begin + number, number) for number in range(count)]:
        raise WrongAnswer(f"history has not the last {count} publications in their order, but {found}")


def check_members(result, count):
    """A page of `count` members at most: it is full and names the next one, or has all."""
    members, in_page = len(result.get("presence", {})), min(count, PAGE_MEMBERS)
    if members != in_page or ("cursor" in result) != (count > PAGE_MEMBERS):
        raise WrongAnswer(f"the first page of {count} members has {members}, and {'a' if 'cursor' in result else 'no'} cursor")


def check_stats(result, count):
    if result.get("num_clients") != count:
        raise WrongAnswer(f"there are {count} members, and the answer is {result}")


# By what is asked: the method, its request beside the channel, how to check the result, and how often it is asked.
QUESTIONS = {
    "history": ("history", lambda count: {"limit": count}, check_history, 2_000),
    "members": ("presence", lambda count: {"limit": PAGE_MEMBERS}, check_members, 200),
    "stats": ("presence_stats", lambda count: {}, check_stats, 200),
}


def measure(client, question, channel, count, requests, warm_up):
    """Asks one time after the other. Returns the figures of all but the first `warm_up` requests."""
    method, request, check, _ = QUESTIONS[question]
    words = {"channel": channel, **request(count)}
    times, sizes, checked = [], [], 0
    # A pause of this program is no time of the server.
    gc.disable()
    for number in range(warm_up + requests):
        answer, elapsed_ms = client.time_answer(method, words)
        if number % CHECKED_EVERY == 0:
            with reading(answer):
                check(json.loads(answer)[method], count)
            checked += 1
        if number >= warm_up:
            times.append(elapsed_ms)
            sizes.append(len(answer))
    gc.enable()
    return {
        "question": question, "count": count, "requests": requests, "warm_up": warm_up, "checked": checked,
        "answer_bytes": round(statistics.mean(sizes)), "round_trip_ms": quantiles(times),
    }


def quantiles(times):
    """The time that at least such a share of all does not exceed."""
    ordered = sorted(times)
    figures = {
        name: ordered[math.ceil(share * len(ordered)) - 1]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    return {"mean": statistics.mean(ordered), **figures, "max": ordered[-1]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=["fill", *QUESTIONS])
    parser.add_argument("origin", help="the server's address and port")
    parser.add_argument("channel")
    parser.add_argument("--count", type=int, default=100, help="publications to make or to read, or members that there are")
    parser.add_argument("--requests", type=int, help="how often to ask")
    parser.add_argument("--warm-up", type=int, help="how often to ask before that; by default a tenth")
    return parser.parse_args()


def main():
    options = arguments()
    try:
        if options.question == "fill":
            figures = fill(options.origin, options.channel, options.count)
        else:
            requests = options.requests or QUESTIONS[options.question][-1]
            warm_up = requests // 10 if options.warm_up is None else options.warm_up
            with contextlib.closing(Client(options.origin)) as client:
                figures = measure(client, options.question, options.channel, options.count, requests, warm_up)
    except (WrongAnswer, OSError, http.client.HTTPException) as failure:
        sys.exit(f"{options.question} {options.channel}: {failure}")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

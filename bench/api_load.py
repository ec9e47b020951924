#!/usr/bin/env python3
"""Publishes by the HTTP API as fast as the answers come, over a few connections that are kept alive.

    bench/api_load.py single 127.0.0.1:8000       one publication in a request
    bench/api_load.py batch 127.0.0.1:8000        a hundred commands in a request to /api/batch

Each connection has one request under way. Every answer must have status 200 and no error in it. It prints its figures as JSON, or
says what was wrong with an answer and ends with 1.
"""

import argparse
import asyncio
import json
import sys
import time

CONNECTIONS = {"single": 32, "batch": 8}
BATCH_COMMANDS = 100
CHANNELS = 100
# Bytes of text in a publication, as in a line of chat.
TEXT_BYTES = 64
PATIENCE_S = 10
# Of a wrong answer, as much is shown.
SHOWN_BYTES = 300


class WrongAnswer(Exception):
    """The server did not answer, or answered something else than it should."""


def request(path, body, origin):
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {origin}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def requests(kind, origin):
    """Requests that a connection makes in turn, each to other channels."""
    data = {"text": "x" * TEXT_BYTES}
    publications = [{"channel": f"api-{number}", "data": data} for number in range(CHANNELS)]
    if kind == "single":
        return [request("/api/publish", publication, origin) for publication in publications]
    commands = [{"publish": publications[number % CHANNELS]} for number in range(BATCH_COMMANDS)]
    return [request("/api/batch", {"commands": commands}, origin)]


class Publisher(asyncio.Protocol):
    """One connection: a request, its answer, the next request."""

    def __init__(self, load):
        self.load, self.received, self.turn = load, b"", 0

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.transport.write(self.load.requests[self.turn % len(self.load.requests)])
        self.turn += 1

    def data_received(self, chunk):
        self.received += chunk
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or -1)
        if length < 0 or not head.startswith(b"HTTP/1.1 200 ") or b'"error"' in rest:
            return self.load.fail(WrongAnswer(f"the answer is {self.received[:SHOWN_BYTES]!r}"))
        if len(rest) < length:
            return
        self.received = rest[length:]
        self.load.answers += 1
        self.send()

    def connection_lost(self, error):
        self.load.fail(WrongAnswer("the server closed a connection"))


class Load:
    """All connections together."""

    def __init__(self, kind, origin):
        self.requests, self.answers = requests(kind, origin), 0
        self.failed = asyncio.get_running_loop().create_future()

    def fail(self, error):
        if not self.failed.done():
            self.failed.set_exception(error)

    async def answers_within(self, seconds):
        before, began = self.answers, time.monotonic()
        done, _ = await asyncio.wait([self.failed], timeout=seconds)
        for failed in done:
            failed.result()
        return self.answers - before, time.monotonic() - began


async def measure(kind, origin, seconds):
    load = Load(kind, origin)
    host, _, port = origin.rpartition(":")
    loop = asyncio.get_running_loop()
    for _ in range(CONNECTIONS[kind]):
        await loop.create_connection(lambda: Publisher(load), host, int(port))
    # The first second is not measured: connections open, channels begin.
    await load.answers_within(1)
    answers, elapsed_s = await load.answers_within(seconds)
    load.failed.cancel()
    if not answers:
        raise WrongAnswer(f"no answer within {seconds} s")
    publications = answers * (BATCH_COMMANDS if kind == "batch" else 1)
    return {"answers": answers, "publications": publications, "publications_per_s": publications / elapsed_s}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(CONNECTIONS))
    parser.add_argument("origin")
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    try:
        print(json.dumps(asyncio.run(measure(arguments.kind, arguments.origin, arguments.seconds))))
    except (OSError, WrongAnswer) as error:
        sys.exit(f"{arguments.kind}: {error}")


if __name__ == "__main__":
    main()

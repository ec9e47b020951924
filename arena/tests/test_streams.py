"""The checker of clients that are held over HTTP passes a server that keeps the contract, and names what breaks it."""

import asyncio
import json
import sys
import unittest
from pathlib import Path
from unittest import mock

ARENA = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ARENA), str(ARENA / "tests")]

import check  # noqa: E402
import contestants  # noqa: E402
import streams  # noqa: E402
from check import Surface  # noqa: E402
from reference import Kept  # noqa: E402

CONNECTIONS = 5


class Holder(Kept):
    """Holds polls and streams of events, in memory; `fault` is one way to break the contract."""

    def __init__(self, fault=""):
        self.fault = fault
        self.messages, self.waiting, self.created = [], [], False

    async def request(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split("\r\n", 1)[0].split()
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        if method == "PUT":
            self.created = True
        elif method == "POST":
            self.messages.append(body)
            waiting, self.waiting = self.waiting, []
            for told in waiting:
                told.set_result(None)
        elif path == "/stats":
            body = json.dumps({"connections": len(self.waiting)}).encode()
        elif path.startswith("/poll"):
            return await self.poll(reader, writer, int(path.partition("since=")[2] or len(self.messages)))
        else:
            return await self.events(reader, writer)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        return True

    async def wait(self, reader):
        """Until something is published, or the client has gone."""
        told = asyncio.get_running_loop().create_future()
        gone = asyncio.create_task(reader.read(1))
        self.waiting.append(told)
        await asyncio.wait([told, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        if not told.done():
            self.waiting.remove(told)
            raise ConnectionError

    async def poll(self, reader, writer, since):
        if self.fault == "forgets" or len(self.messages) <= since:
            since = len(self.messages)
            await self.wait(reader)
        first = 0 if self.fault == "repeats" else since
        body = b"".join(self.messages[first:])
        status = 500 if self.fault == "fails" else 200
        next_one = len(self.messages)
        head = f"HTTP/1.1 {status} X\r\nX-Next: {next_one}\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n"
        writer.write(head.encode() + body + b"\r\n0\r\n\r\n")
        return True

    async def events(self, reader, writer):
        kind = "text/plain" if self.fault == "no events" else "text/event-stream"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
        seen = len(self.messages)
        while True:
            if seen == len(self.messages):
                await self.wait(reader)
            for message in self.messages[seen:]:
                writer.write(b"data: " + (b"<other>" if self.fault == "alters" else message) + b"\n\n")
            seen = len(self.messages)


def outcome(name, fault=""):
    """What the checker says of a server: None, or the breach."""

    async def run():
        holder = Holder(fault)
        server = await asyncio.start_server(holder.handle, "127.0.0.1", 0)
        path = {"long-poll": "/poll", "sse": "/events"}[name]
        surface = Surface(path, "/held", "plain", "/stats", create="/made", position="X-Next=since")
        crowd = check.Crowd([server.sockets[0].getsockname()[1]], surface=surface)
        try:
            await check.check(crowd, CONNECTIONS, [(name, streams.CHECKS[name])], lambda *_: None)
        except check.Broken as broken:
            return str(broken)
        finally:
            server.close()
        return None if holder.created else "nothing was created"

    return asyncio.run(run())


class PositionTest(unittest.TestCase):
    def test_a_poll_goes_on_where_its_answer_ended(self):
        surface = Surface("/s?offset=now&live=long-poll")
        answer = {"stream-next-offset": "7", "stream-cursor": "9"}
        path, headers = streams.next_of(surface, answer, surface.socket)
        self.assertEqual((path, headers), ("/s?live=long-poll&offset=7&cursor=9", ""))
        path, headers = streams.next_of(surface, {"last-modified": "x", "etag": "3"}, "/poll")
        self.assertEqual((path, headers), ("/poll", "If-Modified-Since: x\r\nIf-None-Match: 3\r\n"))
        named = Surface("/", position="X-Next=since")
        self.assertEqual(streams.next_of(named, {"x-next": "4"}, "/"), ("/?since=4", ""))


class ManifestTest(unittest.TestCase):
    def test_each_transport_has_a_surface(self):
        holding = [one for one in contestants.load() if one.held]
        self.assertGreaterEqual(len(holding), 4)
        for one in holding:
            self.assertTrue(one.transports(), one.name)
            for transport in one.transports():
                surface = Surface.of(one, "push", transport)
                self.assertEqual(surface.socket, one.held[transport]["path"])


class HeldTest(unittest.TestCase):
    def test_kept(self):
        self.assertIsNone(outcome("long-poll"))
        self.assertIsNone(outcome("sse"))

    def test_a_poll_that_fails(self):
        self.assertIn("a poll was answered with 500", outcome("long-poll", "fails"))

    def test_a_message_again(self):
        self.assertIn("<message 1> reached a poll as", outcome("long-poll", "repeats"))

    def test_a_message_that_nobody_waited_for(self):
        with mock.patch.object(streams, "PATIENCE_S", 0.5):
            self.assertIn("a poll was not answered: TimeoutError", outcome("long-poll", "forgets"))

    def test_an_altered_event(self):
        self.assertIn("4 messages in a row arrived as", outcome("sse", "alters"))

    def test_a_stream_of_another_kind(self):
        self.assertIn("was answered with 200 text/plain", outcome("sse", "no events"))


if __name__ == "__main__":
    unittest.main()

"""The contract of clients that are held over HTTP: long polls, and server-sent events."""

import asyncio
import re

from check import CONNECTING_MAX, PATIENCE_S, Broken, expect_connections
from held import close_all, open_all

TEXT = "Content-Type: text/plain\r\n"


async def head_of(reader):
    """Status and headers, whose names are in lower case."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.split(":", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, value in headers.items()}


async def body_of(reader, status, headers):
    if status == 204:
        return b""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readline()
    return body


def next_of(surface, headers, path):
    """The path and the headers of a poll's next request, by what its answer said."""
    header, _, parameter = surface.position.partition("=")
    values = {parameter: headers.get(header.lower())}
    if not header:
        values = {"offset": headers.get("stream-next-offset"), "cursor": headers.get("stream-cursor")}
    values = {name: value for name, value in values.items() if value}
    if not values:
        fields = {"If-Modified-Since": headers.get("last-modified"), "If-None-Match": headers.get("etag")}
        return path, "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    place, _, query = path.partition("?")
    kept = [word for word in query.split("&") if word and word.split("=")[0] not in values]
    return f"{place}?{'&'.join(kept + [f'{name}={value}' for name, value in values.items()])}", ""


class Poller:
    """A connection with polls, one after the other."""

    def __init__(self, surface, reader, writer):
        self.surface = surface
        self.reader, self.writer = reader, writer
        self.path, self.headers = surface.socket, ""

    def ask(self):
        self.writer.write(f"GET {self.path} HTTP/1.1\r\nHost: arena\r\n{self.headers}\r\n".encode())

    async def answer(self):
        status, headers = await head_of(self.reader)
        body = await body_of(self.reader, status, headers)
        if status != 200:
            raise Broken(f"a poll was answered with {status}: {body[:80]!r}")
        self.path, self.headers = next_of(self.surface, headers, self.path)
        return body.decode()


async def call(crowd, port, method, path, body=""):
    """One request of its own; its answer must be a success."""
    reader, writer = await asyncio.open_connection(crowd.host, port)
    length = len(body.encode())
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: arena\r\n{TEXT}Content-Length: {length}\r\n\r\n{body}".encode())
    status, headers = await head_of(reader)
    said = await body_of(reader, status, headers)
    writer.close()
    if status not in (200, 201, 202, 204):
        raise Broken(f"{method} {path} on port {port} was answered with {status}: {said[:80]!r}")


async def publish(crowd, message):
    for port in crowd.ports:
        await call(crowd, port, "POST", crowd.surface.broadcast, message)


async def within(what, tasks):
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*tasks)
    except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
        raise Broken(f"{what}: {error!r}") from error


async def check_polls(crowd, connections):
    """Each is held and counted, answered by a publication, and asks for the next; what came between is not lost."""
    count = len(connections)
    polls = [Poller(crowd.surface, *connection) for connection in connections]
    for poll in polls:
        poll.ask()
    await expect_connections(crowd, count)
    for number in range(4):
        message = f"<message {number}>"
        await publish(crowd, message)
        if number == 3:
            # Nobody asked meanwhile.
            for poll in polls:
                poll.ask()
        for body in await within("a poll was not answered", (poll.answer() for poll in polls)):
            if re.findall("<message .>", body) != [message]:
                raise Broken(f"{message} reached a poll as {body[:80]!r}")
        if number < 2:
            for poll in polls:
                poll.ask()
            await expect_connections(crowd, count)
        elif number == 2:
            await expect_connections(crowd, 0)
    return f"{count} polls, 4 messages each"


async def check_events(crowd, connections):
    """Each stream is counted and has all messages in their order."""
    count = len(connections)
    turnstile = asyncio.Semaphore(CONNECTING_MAX)

    async def begin(reader, writer):
        async with turnstile:
            path = crowd.surface.socket
            writer.write(f"GET {path} HTTP/1.1\r\nHost: arena\r\nAccept: text/event-stream\r\n\r\n".encode())
            status, headers = await head_of(reader)
        if status != 200 or not headers.get("content-type", "").startswith("text/event-stream"):
            raise Broken(f"GET {path} was answered with {status} {headers.get('content-type')}")

    await within("a stream was not answered", (begin(*connection) for connection in connections))
    await expect_connections(crowd, count)
    messages = [f"<message {number}>" for number in range(4)]
    for message in messages:
        await publish(crowd, message)

    async def listen(reader):
        return [(await reader.readuntil(b">")).decode().rpartition("<")[2] for _ in messages]

    for heard in await within("a stream did not have all messages", (listen(reader) for reader, _ in connections)):
        if [f"<{words}" for words in heard] != messages:
            raise Broken(f"{len(messages)} messages in a row arrived as {heard}")
    return f"{count} streams, {len(messages)} messages each"


def on_connections(conversation):
    """Creates the stream, opens the connections, and closes them; then nobody is counted."""

    async def check(crowd, count):
        if crowd.surface.create:
            for port in crowd.ports:
                await call(crowd, port, "PUT", crowd.surface.create)
        connections = await open_all(crowd, count)
        try:
            said = await conversation(crowd, connections)
        finally:
            await close_all(connections)
        await expect_connections(crowd, 0)
        return said

    return check


CHECKS = {"long-poll": on_connections(check_polls), "sse": on_connections(check_events)}

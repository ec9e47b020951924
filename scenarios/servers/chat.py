"""A chat server over plain TCP, with a protocol of its own and faults in known numbers.

    chat.py FRAMING [--port PORT] [--drop EVERY] [--no-welcome NAME]

FRAMING is `lines`, `nul`, `size:N`, or `length:BYTES:ORDER:COUNTS:AT`, where COUNTS is `rest`, `itself` or `all`, and `varint` stands
for BYTES. It prints its port, and serves until its standard input ends:

    login:NAME      welcome:NAME
    join:ROOM       joined:ROOM, and `ping:7` right behind it, to which `pong:7` is to come
    say:...         the same message to all of the sender's room
    ask:...         answer:...
    beat            alive
    burst:BYTES     a message of so many bytes
    bye             the end of the connection
    count           how often each of these came, as JSON, with what was dropped
"""

import asyncio
import json
import sys
from collections import Counter

COUNTS = Counter()
ROOMS = {}


class Framing:
    def __init__(self, text):
        kind, *more = text.split(":")
        self.kind = kind
        if kind == "size":
            self.size = int(more[0])
        elif kind == "length":
            width, self.order, self.counts, at = more
            self.width = width if width == "varint" else int(width)
            self.at = int(at)
        else:
            self.delimiter = {"lines": b"\n", "nul": b"\0"}[kind]

    async def read(self, reader):
        if self.kind == "size":
            return (await reader.readexactly(self.size)).rstrip(b"\0")
        if self.kind != "length":
            message = await reader.readuntil(self.delimiter)
            return message[: -len(self.delimiter)]
        header = await reader.readexactly(self.at)
        value, width = 0, 0
        if self.width == "varint":
            while True:
                byte = (await reader.readexactly(1))[0]
                value |= (byte & 0x7F) << (7 * width)
                width += 1
                if byte < 0x80:
                    break
        else:
            width = self.width
            value = int.from_bytes(await reader.readexactly(width), self.order)
        counted = {"rest": 0, "itself": width, "all": width + self.at}[self.counts]
        return header + await reader.readexactly(value - counted)

    def write(self, message):
        if self.kind == "size":
            return message.ljust(self.size, b"\0")
        if self.kind != "length":
            return message + self.delimiter
        header, rest = message[: self.at], message[self.at :]
        if self.width == "varint":
            assert self.counts == "rest"
            value, length = len(rest), b""
            while value >= 0x80:
                length += bytes([value & 0x7F | 0x80])
                value >>= 7
            length += bytes([value])
        else:
            counted = {"rest": 0, "itself": self.width, "all": self.width + self.at}
            value = len(rest) + counted[self.counts]
            length = value.to_bytes(self.width, self.order)
        return header + length + rest


class Server:
    def __init__(self, framing, drop_every, unwelcome):
        self.framing, self.drop_every, self.unwelcome = framing, drop_every, unwelcome

    async def serve(self, reader, writer):
        room = None
        try:
            while True:
                message = await self.framing.read(reader)
                kind, _, text = message.partition(b":")
                COUNTS[kind.decode("latin-1")] += 1
                if kind == b"join":
                    room = ROOMS.setdefault(text, [])
                    room.append(writer)
                    self.send(writer, b"joined:" + text, b"ping:7")
                elif kind == b"say":
                    self.relay(room, message)
                elif kind == b"bye":
                    break
                else:
                    self.answer(writer, kind, text)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        if room is not None and writer in room:
            room.remove(writer)
        writer.close()

    def answer(self, writer, kind, text):
        if kind == b"login":
            if text.decode() != self.unwelcome:
                self.send(writer, b"welcome:" + text)
        elif kind == b"ask":
            self.send(writer, b"answer:" + text)
        elif kind == b"beat":
            self.send(writer, b"alive")
        elif kind == b"burst":
            self.send(writer, b"." * int(text))
        elif kind == b"count":
            self.send(writer, json.dumps(COUNTS).encode())

    def relay(self, room, message):
        is_dropped = self.drop_every and COUNTS["say"] % self.drop_every == 0
        if is_dropped:
            COUNTS["dropped"] += 1
        for member in room[1:] if is_dropped else room:
            self.send(member, message)

    def send(self, writer, *messages):
        if not writer.is_closing():
            writer.write(b"".join(map(self.framing.write, messages)))


async def main(arguments):
    framing, *options = arguments
    options = dict(zip(options[::2], options[1::2]))
    drop_every = int(options.get("--drop", 0))
    server = Server(Framing(framing), drop_every, options.get("--no-welcome"))
    port = int(options.get("--port", 0))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port, backlog=4096)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

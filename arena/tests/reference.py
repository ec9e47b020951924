"""A contestant of a hundred lines that keeps the contract, and breaks it on demand: what the checker is tested with.

Slow and simple; no entrant of the arena. `python reference.py` obeys the contract's environment variables.
"""

import asyncio
import json
import os
import ssl
import sys

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Opcode
from websockets.server import ServerProtocol

BYTES_MAX = 131_072


class Kept:
    """Answers requests on each connection with `request`, for as long as that says that another may follow."""

    async def handle(self, reader, writer):
        try:
            while await self.request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


class Reference(Kept):
    """`fault` is one way to break the contract; the empty string is none."""

    def __init__(self, echo=False, fault=""):
        self.echo = echo
        self.fault = fault
        self.open = {}
        self.reset = 0
        self.ticks = 0

    async def request(self, reader, writer):
        """Answers one request; whether another may follow."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split()
        fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        if path == "/" and fields.get("upgrade") == "websocket":
            await self.converse(head, reader, writer)
            return False
        length = int(fields.get("content-length", 0))
        if length > BYTES_MAX and self.fault != "takes any body":
            status, body = 413, b""
        else:
            status, body = self.answer(f"{method} {path}", await reader.readexactly(length))
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        return status != 413 and self.fault != "hangs up"

    def answer(self, route, body):
        if route == "GET /stats":
            forgotten = self.reset if self.fault == "forgets no reset" else 0
            return 200, self.connections(len(self.open) + forgotten)
        if route == "POST /broadcast":
            return 200, self.connections(self.broadcast(body))
        if route == "POST /request":
            return 200, body.upper() if self.fault == "alters requests" else body
        return (200 if self.fault == "finds everything" else 404), b""

    def connections(self, count):
        return json.dumps({"connections": str(count) if self.fault == "counts in words" else count}).encode()

    def broadcast(self, body):
        targets = list(self.open.items())
        handed = len(targets)
        if self.fault == "leaves one out":
            targets = targets[1:]
        if self.fault == "alters broadcasts":
            body = body[:-1] + b"!"
        for protocol, writer in targets:
            send = protocol.send_binary if self.fault == "sends binary" else protocol.send_text
            for _ in range(2 if self.fault == "says it twice" else 1):
                send(body)
            flush(protocol, writer)
        return handed - 1 if self.fault == "reports fewer" else handed

    async def converse(self, head, reader, writer):
        deflate = [ServerPerMessageDeflateFactory()] if self.fault == "compresses" else None
        limit = None if self.fault == "takes any message" else BYTES_MAX
        protocol = ServerProtocol(extensions=deflate, max_size=limit)
        protocol.receive_data(head)
        [request] = protocol.events_received()
        protocol.send_response(protocol.accept(request))
        flush(protocol, writer)
        self.open[protocol] = writer
        try:
            while not protocol.close_expected() and (data := await reader.read(65536)):
                protocol.receive_data(data)
                for frame in protocol.events_received():
                    self.take(protocol, frame)
                flush(protocol, writer)
        finally:
            del self.open[protocol]
            self.reset += not protocol.close_expected()

    def take(self, protocol, frame):
        data = frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
        if not data or not (self.echo or self.fault == "talks back") or self.fault == "swallows echoes":
            return
        if self.fault == "echoes in another kind" and frame.opcode is Opcode.BINARY:
            protocol.send_text(frame.data.hex().encode())
        elif frame.opcode is Opcode.CONT:
            protocol.send_continuation(frame.data, fin=frame.fin)
        else:
            send = protocol.send_text if frame.opcode is Opcode.TEXT else protocol.send_binary
            send(frame.data, fin=frame.fin)

    async def tick(self, every_ms):
        while True:
            await asyncio.sleep(every_ms / 1000)
            self.ticks += 2 if self.fault == "skips ticks" else 1
            self.broadcast(b"tick %d" % self.ticks)

    async def serve(self, port=0, push_every_ms=0, context=None):
        server = await asyncio.start_server(self.handle, "127.0.0.1", port, limit=2 * BYTES_MAX, ssl=context)
        if push_every_ms:
            self.ticking = asyncio.create_task(self.tick(push_every_ms))
        return server


def flush(protocol, writer):
    if not writer.is_closing():
        writer.writelines(data for data in protocol.data_to_send() if data)


def secure(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def main():
    reference = Reference(os.environ["MODE"] == "echo")
    certificate = os.environ.get("TLS_CERTIFICATE")
    context = secure(certificate, os.environ["TLS_KEY"]) if certificate else None
    async with await reference.serve(int(os.environ["PORT"]), int(os.environ["PUSH_EVERY_MS"]), context) as server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""A client of the Centrifuge protocol (JSON) that recovers, and notes in the ledger all it sees."""

import asyncio
import json

import websockets

# A connection without a ping for so long is given up, as SDKs do.
SILENCE_SECONDS = 12
CONNECT_SECONDS = 5


class Subscriber:
    """Subscribed to some channels at one of several nodes. It comes back to another node when it loses its connection."""

    def __init__(self, name, nodes, channels, ledger, start):
        self.name, self.nodes, self.at = name, nodes, start
        self.subscriptions = {channel: ledger.subscription(name, channel) for channel in channels}
        self.ledger = ledger
        self.subscribed = set()
        self.connects = 0
        self.socket = None

    def leave(self):
        """Goes to another node."""
        if self.socket:
            asyncio.get_running_loop().create_task(self.socket.close())

    async def run(self):
        while True:
            try:
                await self.connection(self.nodes[self.at % len(self.nodes)])
            except (OSError, asyncio.TimeoutError, websockets.WebSocketException):
                pass
            self.subscribed.clear()
            self.at += 1
            await asyncio.sleep(0.1)

    async def connection(self, node):
        url = node.websocket()
        async with websockets.connect(url, open_timeout=CONNECT_SECONDS, ping_interval=None, max_queue=None) as socket:
            self.connects += 1
            self.socket = socket
            await self.send(socket, {"id": 1, "connect": {}})
            self.commands = {}
            while True:
                frame = await asyncio.wait_for(socket.recv(), SILENCE_SECONDS)
                for line in frame.splitlines():
                    await self.handle(socket, json.loads(line))

    async def send(self, socket, command):
        await socket.send(json.dumps(command))

    async def handle(self, socket, reply):
        if not reply:
            await socket.send("{}")
        elif "connect" in reply:
            for channel in self.subscriptions:
                await self.subscribe(socket, channel)
        elif reply.get("id", 0) > 1:
            await self.handle_subscribed(socket, reply)
        elif "push" in reply:
            await self.handle_push(socket, reply["push"])

    async def subscribe(self, socket, channel):
        known = self.subscriptions[channel]
        number = len(self.commands) + 2
        self.commands[number] = channel
        request = {"channel": channel}
        if known.epoch:
            request |= {"recover": True, "epoch": known.epoch, "offset": known.offset}
        await self.send(socket, {"id": number, "subscribe": request})

    async def handle_subscribed(self, socket, reply):
        channel = self.commands[reply["id"]]
        known = self.subscriptions[channel]
        if "error" in reply:
            # Temporary ones are asked again; the position stays.
            await asyncio.sleep(0.2)
            return await self.subscribe(socket, channel)
        result = reply["subscribe"]
        epoch, offset = result.get("epoch", ""), result.get("offset", 0)
        if not known.epoch:
            self.ledger.note_begin(known, epoch, offset, "first")
        elif not result.get("recovered"):
            self.ledger.note_begin(known, epoch, offset, "recovered: false")
        else:
            for publication in result.get("publications", []):
                self.receive(known, publication)
            known.offset = max(known.offset, offset)
        self.subscribed.add(channel)

    async def handle_push(self, socket, push):
        known = self.subscriptions[push["channel"]]
        if "pub" in push:
            self.receive(known, push["pub"])
        elif "unsubscribe" in push:
            self.subscribed.discard(known.channel)
            await self.subscribe(socket, known.channel)

    def receive(self, known, publication):
        self.ledger.note_received(known, publication["data"]["n"], publication.get("offset", 0))

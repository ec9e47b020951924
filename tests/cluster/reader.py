"""A reader of streams (long polls) that changes nodes with each few requests, and notes in the ledger all it reads."""

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request

# A long poll that finds nothing is answered after this time at the latest.
SECONDS = 40
REQUESTS_OF_A_NODE = 3
# Answers that say: ask again, here or elsewhere.
TEMPORARY = (429, 503)


class Reader:
    """Reads one channel from its end on."""

    def __init__(self, name, nodes, channel, ledger, random):
        self.nodes, self.channel, self.random = nodes, channel, random
        self.reading = ledger.reading(name, channel)
        self.ledger = ledger
        self.offset = "now"

    async def run(self):
        while True:
            node = self.random.choice(self.nodes)
            for _ in range(REQUESTS_OF_A_NODE):
                try:
                    status, headers, body = await asyncio.to_thread(self.ask, node)
                except OSError:
                    break
                if not await self.handle(status, headers, body):
                    break

    def ask(self, node):
        channel = urllib.parse.quote(self.channel)
        # The first request asks where the stream ends, and is answered at once.
        live = "" if self.offset == "now" else "&live=long-poll"
        url = f"http://{node.place.host}:{node.port}/v1/stream/{channel}?offset={self.offset}{live}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    async def handle(self, status, headers, body):
        """What a client of the protocol does. False if it goes to another node."""
        self.ledger.counts[f"reads: {status}"] += 1
        if status in (200, 204):
            if self.offset == "now":
                self.reading.begin()
            for publication in json.loads(body or b"[]"):
                self.ledger.note_read(self.reading, publication["n"])
            self.offset = headers["Stream-Next-Offset"]
            return True
        if status == 410:
            # It is told of a loss, and begins where it can.
            self.reading.begin()
            self.offset = "now"
        elif status not in TEMPORARY and not (status == 404 and self.offset == "now"):
            self.ledger.faults.append(f"{self.reading.name}, channel {self.channel}: status {status} at {self.offset}: {body[:200]}")
        await asyncio.sleep(float(headers.get("Retry-After") or 0.2))
        return False

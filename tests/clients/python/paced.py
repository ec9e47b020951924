"""A contestant of the arena that paces its broadcasts, with an independent client in it that sees what they do.

All connections but one get a broadcast at once. The witness, PyPI's `websockets` over a real socket, gets it
`DELAY_S` later, and only when the witness has it the last connection of the crowd does: whatever the crowd says
its slowest client waited, it cannot be less than what the witness saw. Each broadcast leaves a line in `$WITNESS`, and so
does each request.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "arena" / "tests"))

from reference import Reference, flush  # noqa: E402
from websockets.asyncio.client import connect  # noqa: E402

DELAY_S = 0.3
# It takes so long for a request, and does nothing else meanwhile.
REQUEST_S = 0.01


class Paced(Reference):
    """The witness is its first connection, and counted nowhere."""

    def __init__(self):
        super().__init__()
        self.witness = None
        self.under_way = set()

    def answer(self, route, body):
        if route == "GET /stats":
            # Not ready before the witness is there; nobody else may be the first connection.
            return (200, self.connections(len(self.open) - 1)) if self.witness else (404, b"")
        if route == "POST /request":
            time.sleep(REQUEST_S)
            note({"request": len(body), "held": len(self.open) - 1})
        return super().answer(route, body)

    def broadcast(self, body):
        asked = time.monotonic()
        witness, *crowd = self.open.items()
        for target in crowd[:-1]:
            send(target, body)
        task = asyncio.create_task(self.late(witness, crowd, body, asked))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return len(crowd)

    async def late(self, witness, crowd, body, asked):
        await asyncio.sleep(DELAY_S)
        send(witness, body)
        assert (await self.witness.recv()).encode() == body
        note({"waited_ms": (time.monotonic() - asked) * 1000, "handed": len(crowd)})
        send(crowd[-1], body)


def note(seen):
    with open(os.environ["WITNESS"], "a") as file:
        file.write(json.dumps(seen) + "\n")


def send(target, body):
    protocol, writer = target
    protocol.send_text(body)
    flush(protocol, writer)


async def main():
    paced, port = Paced(), int(os.environ["PORT"])
    async with await paced.serve(port) as server:
        paced.witness = await connect(f"ws://127.0.0.1:{port}/", compression=None, ping_interval=None, proxy=None)
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

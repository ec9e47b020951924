"""A WebSocket server that `myriad swarm` can measure: one port for clients, one for the publish hook.

    python3 examples/publish_hook.py 8010 8011 &
    myriad swarm ws://127.0.0.1:8010/ -c 1k --publish http://127.0.0.1:8011/ --publish-body plain --pushes 3

It needs the package `websockets`. Port 0 takes any free port; the server says which ones it has.
"""

import asyncio
import re
import sys

import websockets

clients = set()


async def hook(reader, writer):
    """Sends the body of each POST to every client."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)[1])
        body = (await reader.readexactly(length)).decode()
        websockets.broadcast(clients, body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()


async def serve_hook(reader, writer):
    """Serves one connection of the hook until its client ends it."""
    try:
        await hook(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def client(connection):
    """Keeps a client until it leaves."""
    clients.add(connection)
    try:
        await connection.wait_closed()
    finally:
        clients.discard(connection)


async def main(clients_port, hook_port):
    """Listens on both ports."""
    hooks = await asyncio.start_server(serve_hook, "127.0.0.1", hook_port)
    async with websockets.serve(client, "127.0.0.1", clients_port, compression=None) as server:
        ports = [listening.sockets[0].getsockname()[1] for listening in (server, hooks)]
        print("listening for clients on {} and for pushes on {}".format(*ports), flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))

"""The contract of the kinds without WebSockets: connections that are held (tcp), and requests that are (longpoll)."""

import asyncio
import time

from check import CONNECTING_MAX, PATIENCE_S, Broken, expect_connections

REQUEST = b"GET / HTTP/1.1\r\nHost: arena\r\n\r\n"


async def open_all(crowd, count):
    """Plain connections, spread over the ports."""
    turnstile = asyncio.Semaphore(CONNECTING_MAX)

    async def one(index):
        async with turnstile:
            return await asyncio.open_connection(crowd.host, crowd.ports[index % len(crowd.ports)])

    return await asyncio.gather(*(one(index) for index in range(count)))


async def close_all(connections):
    for _, writer in connections:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in connections), return_exceptions=True)


async def check_hold(crowd, count):
    """They are counted, they may say anything, they stay, and they are no longer counted once they are gone."""
    connections = await open_all(crowd, count)
    await expect_connections(crowd, count)
    for _, writer in connections:
        writer.write(b"anything at all\r\n\r\n" * 100)
    await asyncio.gather(*(writer.drain() for _, writer in connections))
    await expect_connections(crowd, count)
    if ended := sum(reader.at_eof() for reader, _ in connections):
        raise Broken(f"{ended} of {count} connections were closed by the server")
    half = count // 2
    await close_all(connections[:half])
    await expect_connections(crowd, count - half)
    await close_all(connections[half:])
    await expect_connections(crowd, 0)
    return f"{count} → {count - half} → 0"


async def answer_of(reader):
    """One response: its status and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = int(head.split()[1])
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    return status, await reader.readexactly(int(headers.get("content-length", 0)))


async def check_counted(crowd, count):
    """Those that are held are counted, and one that goes away while held is not."""
    connections = await open_all(crowd, count)
    for _, writer in connections:
        writer.write(REQUEST)
    await expect_connections(crowd, count)
    await close_all(connections)
    await expect_connections(crowd, 0)
    return f"{count} held → 0"


def held_between(min_ms, max_ms):
    """Requests are held for no less than `min_ms`, differently long, answered, and taken again."""

    async def hold(reader, writer):
        writer.write(REQUEST)
        asked = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S + max_ms / 1000):
                status, body = await answer_of(reader)
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            raise Broken(f"a held request was never answered: {error!r}") from error
        held_ms = (time.monotonic() - asked) * 1000
        if status != 204 or body:
            raise Broken(f"a held request was answered with {status} and {len(body)} bytes, not with 204")
        if held_ms < min_ms:
            raise Broken(f"a request was held for {held_ms:.0f} ms, less than {min_ms}")
        return held_ms

    async def check_held(crowd, count):
        connections = await open_all(crowd, count)
        for _ in range(2):
            requests = [asyncio.create_task(hold(*connection)) for connection in connections]
            held_ms = await asyncio.gather(*requests)
            if max(held_ms) - min(held_ms) < (max_ms - min_ms) / 4:
                raise Broken(f"{count} requests were all held for {min(held_ms):.0f} to {max(held_ms):.0f} ms")
        await close_all(connections)
        await expect_connections(crowd, 0)
        return f"{min(held_ms):.0f} to {max(held_ms):.0f} ms, twice on each connection"

    return check_held

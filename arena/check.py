#!/usr/bin/env python3
"""Holds a running contestant to the contract (contract.md), with a client independent of Myriad.

    check.py --ports 26000,26001 [--connections 500] [--mode push|echo] [--push-every-ms N] [--features push,timer,...]
             [--ca certificate.pem]

The contestant must have been started with that mode and timer. With --ca it must speak TLS and show that certificate.
Prints one line per check, and how long each broadcast took to reach the first and the last connection, by this
client's own clock; exits with 1 at the first check that fails.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import ssl
import sys
import time
from dataclasses import dataclass, field

import websockets
from websockets.asyncio.client import connect

# A contestant that has not answered by then never will. Generous: a slow machine must not fail a check.
PATIENCE_S = 60
# After the closing handshake it is the server that closes TCP (RFC 6455 section 7.1.1); where it does not, the client
# does so after this.
FAREWELL_S = 2
MESSAGE_BYTES_MAX = 131_072
# Handshakes under way at once: below any backlog.
CONNECTING_MAX = 100
FEATURES = ("push", "timer", "echo", "request")
TLS_VERSION = "TLSv1.3"
# What a framework may be unable to keep whatever its configuration: checks left out, and the answer to an offer.
DEVIATIONS = ("compression", "silence", "limits")


class Broken(Exception):
    """The contestant broke the contract; says how."""


@dataclass
class Arrivals:
    """When one broadcast reached the connections, in seconds from the moment its first request was sent."""

    seconds: list

    def line(self):
        ordered = sorted(self.seconds)
        p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
        figures = [ordered[0], p50, p99, ordered[-1]]
        names = ["first", "p50", "p99", "last"]
        return ", ".join(f"{name} {figure * 1000:.1f} ms" for name, figure in zip(names, figures))


@dataclass(frozen=True)
class Surface:
    """Where a contestant is asked what; the contract's own paths unless the manifest has others."""

    socket: str = "/"
    broadcast: str = "/broadcast"
    body: str = "plain"
    stats: str = "/stats"
    # Finds the number of connections; without it the answer is JSON.
    pattern: str = ""
    # Of clients that are held over HTTP: a stream that is created first; the header and the parameter of a position.
    create: str = ""
    position: str = ""

    @classmethod
    def of(cls, contestant, mode, held=""):
        if held:
            stats = contestant.held[held].get("stats", contestant.stats)
            return cls(
                contestant.held[held]["path"],
                contestant.held["broadcast"]["path"],
                contestant.held["broadcast"]["body"],
                stats["path"],
                stats.get("pattern", ""),
                contestant.held.get("create", ""),
                contestant.held.get("position", ""),
            )
        return cls(
            contestant.socket_paths[mode],
            contestant.broadcast["path"],
            contestant.broadcast["body"],
            contestant.stats["path"],
            contestant.stats.get("pattern", ""),
        )

    def connections(self, port, status, body):
        what = f"GET {self.stats} on port {port}"
        if not self.pattern:
            return number_of_connections(what, status, body)
        if status != 200:
            raise Broken(f"{what} was answered with {status}")
        if found := re.search(self.pattern, body.decode(errors="replace")):
            return int(found.group(1))
        raise Broken(f"{what} was answered without the number that {self.pattern!r} finds")

    def request(self, payload):
        """The body of a broadcast."""
        if self.body == "plain":
            return payload.encode()
        return json.dumps({"channel": "arena", "data": payload}).encode()

    def handed(self, port, status, body):
        """To how many connections it says the broadcast goes; none where its API does not say."""
        what = f"POST {self.broadcast} on port {port}"
        if self.body == "plain":
            return number_of_connections(what, status, body)
        if status not in (200, 201, 202):
            raise Broken(f"{what} was answered with {status}: {body[:80]!r}")
        return None


def http_connection(host, port, timeout_s, context=None):
    """With TLS where there is a context for it."""
    if context:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


@dataclass
class Crowd:
    """The ports of a contestant and the connections to them."""

    ports: list
    host: str = "127.0.0.1"
    # What the contestant is known not to keep, and is not held to.
    deviations: tuple = ()
    surface: Surface = Surface()
    # Whom clients with TLS trust; none without TLS.
    context: ssl.SSLContext | None = None
    sockets: list = field(default_factory=list)

    def request(self, port, method, path, body=None):
        connection = http_connection(self.host, port, PATIENCE_S, self.context)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    async def ask(self, port, method, path, body=None):
        return await asyncio.to_thread(self.request, port, method, path, body)

    async def connections(self):
        """The sum of what all processes say of themselves."""
        total = 0
        for port in self.ports:
            total += self.surface.connections(port, *await self.ask(port, "GET", self.surface.stats))
        return total

    async def open_one(self, port, **options):
        options = {"compression": None, "ping_interval": None, "max_size": None, "max_queue": None} | options
        try:
            return await connect(
                f"{'wss' if self.context else 'ws'}://{self.host}:{port}{self.surface.socket}",
                ssl=self.context,
                open_timeout=PATIENCE_S,
                close_timeout=FAREWELL_S,
                proxy=None,
                **options,
            )
        except (OSError, websockets.WebSocketException) as error:
            raise Broken(f"no WebSocket on port {port}: {error}") from error

    async def open(self, count):
        turnstile = asyncio.Semaphore(CONNECTING_MAX)

        async def one(index):
            async with turnstile:
                return await self.open_one(self.ports[index % len(self.ports)])

        self.sockets += await asyncio.gather(*(one(index) for index in range(count)))

    async def close(self):
        await asyncio.gather(*(socket.close() for socket in self.sockets), return_exceptions=True)

    async def publish(self, port, payload):
        """One process's part of a broadcast; to how many connections it says it goes."""
        path, body = self.surface.broadcast, self.surface.request(payload)
        return self.surface.handed(port, *await self.ask(port, "POST", path, body))

    async def broadcast(self, payload):
        """Posts to every process, and expects the payload as the next message of every connection."""
        arrivals = [asyncio.create_task(next_message(socket)) for socket in self.sockets]
        await asyncio.sleep(0)
        started = time.monotonic()
        try:
            handed = [await self.publish(port, payload) for port in self.ports]
            if None not in handed and sum(handed) != len(self.sockets):
                raise Broken(f"POST /broadcast was answered with {sum(handed)} connections, {len(self.sockets)} are open")
            received = await asyncio.gather(*arrivals)
        finally:
            for task in arrivals:
                task.cancel()
        for message, _ in received:
            if message != payload:
                raise Broken(f"a broadcast of {describe(payload)} arrived as {describe(message)}")
        return Arrivals([at - started for _, at in received])


def number_of_connections(what, status, body):
    if status not in (200, 201, 202):
        raise Broken(f"{what} was answered with {status}")
    try:
        number = json.loads(body)["connections"]
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"{what} was answered with {body[:80]!r}, not with a JSON object of connections") from error
    if not isinstance(number, int):
        raise Broken(f"{what} was answered with {number!r} connections, which is no number")
    return number


def describe(message):
    """Short enough for one line."""
    kind = "text" if isinstance(message, str) else "binary"
    return f"{kind} {message[:40]!r} ({len(message)} long)"


async def next_message(socket):
    """The next message and when it came."""
    try:
        # Not `wait_for`: before Python 3.12 that loses a cancellation that comes together with the message.
        async with asyncio.timeout(PATIENCE_S):
            message = await socket.recv()
    except TimeoutError:
        raise Broken(f"a connection got nothing within {PATIENCE_S} s") from None
    except websockets.ConnectionClosed as error:
        raise Broken(f"a connection was closed by the server: {error}") from error
    return message, time.monotonic()


async def expect_connections(crowd, wanted):
    """Ends are seen when they are seen, so the count may take a while, but it must get there."""
    deadline = time.monotonic() + PATIENCE_S
    while (seen := await crowd.connections()) != wanted:
        if time.monotonic() > deadline:
            raise Broken(f"GET {crowd.surface.stats} says {seen} connections {PATIENCE_S} s after there were {wanted}")
        await asyncio.sleep(0.02)


async def check_upgrade(crowd, count):
    """All of them open; a client that offers compression is answered without it; other paths are not found."""
    await crowd.open(count)
    await expect_connections(crowd, count)
    offering = await crowd.open_one(crowd.ports[0], compression="deflate")
    accepted = offering.response.headers.get("Sec-WebSocket-Extensions")
    await offering.close()
    if accepted and "compression" not in crowd.deviations:
        raise Broken(f"compression was negotiated: {accepted}")
    status, _ = await crowd.ask(crowd.ports[0], "GET", "/nowhere")
    if status != 404:
        raise Broken(f"GET /nowhere was answered with {status}, not 404")
    await expect_connections(crowd, count)
    return f"{count} connections on {len(crowd.ports)} ports"


async def check_tls(crowd, _):
    """A client that speaks TLS 1.3 has it, and one without TLS gets no answer."""
    if other := {version for socket in crowd.sockets if (version := version_of(socket)) != TLS_VERSION}:
        raise Broken(f"connections speak {', '.join(sorted(map(str, other)))}, not {TLS_VERSION}")
    stranger = Crowd(crowd.ports, crowd.host, surface=crowd.surface)
    # Most servers end such a connection. Some answer that they want TLS.
    with contextlib.suppress(OSError, http.client.HTTPException):
        status, _ = await stranger.ask(crowd.ports[0], "GET", crowd.surface.stats)
        if status == 200:
            raise Broken(f"GET {crowd.surface.stats} without TLS was answered")
    return f"{len(crowd.sockets)} connections with {TLS_VERSION}"


def version_of(socket):
    return socket.transport.get_extra_info("ssl_object").version()


async def check_ping(crowd, _):
    for socket in crowd.sockets[:: max(1, len(crowd.sockets) // 20)]:
        pong = await socket.ping(b"are you there")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await pong
        except (TimeoutError, websockets.ConnectionClosed) as error:
            raise Broken(f"a ping was not answered: {error!r}") from error
    return "answered"


async def check_push(crowd, _):
    """Every length encoding, multi-byte text, and the same message many times over in order."""
    payloads = ["x", "a" * 125, "b" * 126, "żółw 万 🐢" * 20, "c" * 100_000]
    for payload in payloads:
        arrivals = await crowd.broadcast(payload)
    for number in range(20):
        arrivals = await crowd.broadcast(f"message {number}")
    return arrivals.line()


async def check_burst(crowd, _):
    """Broadcasts posted without waiting for their arrival come whole and in order."""
    sent = [f"burst {number}" for number in range(50)]
    for payload in sent:
        for port in crowd.ports:
            await crowd.publish(port, payload)

    async def drain(socket):
        return [(await next_message(socket))[0] for _ in sent]

    for received in await asyncio.gather(*(drain(socket) for socket in crowd.sockets)):
        if received != sent:
            raise Broken(f"{len(sent)} broadcasts in a row arrived as {received[:5]} …")
    return f"{len(sent)} in order"


async def check_silence(crowd, _):
    """In push mode a client may say what it likes: nothing comes back, and the connection stays."""
    for socket in crowd.sockets:
        await socket.send("does anybody listen?")
        await socket.send(b"\x00\xff")
    await crowd.broadcast("after the silence")
    return "messages of clients are thrown away"


async def check_disconnects(crowd, _):
    """The count before, and after both kinds of end; a broadcast still reaches exactly the rest."""
    before = len(crowd.sockets)
    await expect_connections(crowd, before)
    third = before // 3
    polite, abrupt, crowd.sockets = crowd.sockets[:third], crowd.sockets[third : 2 * third], crowd.sockets[2 * third :]
    await asyncio.gather(*(socket.close() for socket in polite))
    await expect_connections(crowd, before - len(polite))
    for socket in abrupt:
        socket.transport.abort()
    await expect_connections(crowd, len(crowd.sockets))
    await crowd.broadcast("who is left?")
    return f"{before} → {before - len(polite)} → {len(crowd.sockets)}"


async def check_limits(crowd, _):
    """A message or body over the limit hurts nobody but its sender."""
    glutton = await crowd.open_one(crowd.ports[0])
    try:
        await glutton.send("m" * (MESSAGE_BYTES_MAX * 2))
        # A timer's ticks, or an echo of what came before, may still arrive first.
        async with asyncio.timeout(PATIENCE_S):
            while len(await glutton.recv()) <= MESSAGE_BYTES_MAX:
                pass
        raise Broken(f"a message of {MESSAGE_BYTES_MAX * 2} bytes was taken")
    except websockets.ConnectionClosed:
        pass
    except TimeoutError:
        raise Broken(f"a message of {MESSAGE_BYTES_MAX * 2} bytes did not end its connection") from None
    try:
        body = crowd.surface.request("m" * (MESSAGE_BYTES_MAX * 2))
        status, _ = await crowd.ask(crowd.ports[0], "POST", crowd.surface.broadcast, body)
    except (OSError, http.client.HTTPException):
        status = 413
    if status != 413:
        raise Broken(f"a body of {MESSAGE_BYTES_MAX * 2} bytes was answered with {status}, not 413")
    await expect_connections(crowd, len(crowd.sockets))
    return "kept"


async def check_request(crowd, _):
    def conversation(port):
        connection = http_connection(crowd.host, port, PATIENCE_S, crowd.context)
        try:
            connection.connect()
            first = connection.sock
            for body in (b"first", b"x" * 4096, "żółw".encode()):
                connection.request("POST", "/request", body)
                response = connection.getresponse()
                answer = response.read()
                if (response.status, answer) != (200, body):
                    raise Broken(f"POST /request was answered with {response.status} {answer[:40]!r}")
                if connection.sock is not first:
                    raise Broken("POST /request did not keep its connection alive")
        finally:
            connection.close()

    for port in crowd.ports:
        await asyncio.to_thread(conversation, port)
    return "body returned, connection kept"


async def check_echo(crowd, _):
    """Every kind and length, then all connections at once; ticks of the timer in between do not count."""

    async def echo(socket, message):
        expected = "".join(message) if isinstance(message, list) else message
        try:
            # A deadline of its own: every tick that comes before it would renew that of a next message.
            async with asyncio.timeout(PATIENCE_S):
                await socket.send(message)
                while (received := (await next_message(socket))[0]) != expected:
                    if not (isinstance(received, str) and received.startswith("tick ")):
                        raise Broken(f"{describe(expected)} was echoed as {describe(received)}")
        except TimeoutError:
            raise Broken(f"{describe(expected)} was not echoed within {PATIENCE_S} s") from None

    socket = crowd.sockets[0]
    for message in ("x", "a" * 126, "żółw 万", b"\x00\xff\x7f", "c" * 100_000, ["in ", "three ", "parts"]):
        await echo(socket, message)
    started = time.monotonic()
    for turn in range(10):
        await asyncio.gather(*(echo(socket, f"{turn} of {number}") for number, socket in enumerate(crowd.sockets)))
    rate = 10 * len(crowd.sockets) / (time.monotonic() - started)
    return f"{rate:,.0f} round trips a second with this client"


async def check_timer(crowd, _):
    """Every connection sees consecutive ticks."""

    async def listen(socket):
        ticks = [(await next_message(socket))[0] for _ in range(4)]
        if ticks[0] != f"tick {(first := tick_number(ticks[0]))}" or any(
            tick != f"tick {first + place}" for place, tick in enumerate(ticks)
        ):
            raise Broken(f"the timer's pushes arrived as {[describe(tick) for tick in ticks]}")

    await asyncio.gather(*(listen(socket) for socket in crowd.sockets))
    return "consecutive on all connections"


def tick_number(message):
    words = message.split() if isinstance(message, str) else []
    if len(words) != 2 or not words[1].isdigit():
        raise Broken(f"the timer's push arrived as {describe(message)}, not as `tick N`")
    return int(words[1])


def checks_for(features, mode, push_every_ms, deviations=(), tls=False):
    """Checks that count messages exactly are for a contestant without a timer."""
    for name, function in offered(features, mode, push_every_ms, tls):
        if name not in deviations:
            yield name, function


def offered(features, mode, push_every_ms, tls):
    yield "upgrade", check_upgrade
    if tls:
        yield "tls", check_tls
    yield "ping", check_ping
    if push_every_ms:
        if "timer" in features:
            yield "timer", check_timer
    elif "push" in features and mode == "push":
        yield "push", check_push
        yield "burst", check_burst
        yield "silence", check_silence
        yield "disconnects", check_disconnects
    if mode == "echo" and "echo" in features:
        yield "echo", check_echo
    if "request" in features:
        yield "request", check_request
    yield "limits", check_limits


async def check(crowd, count, checks, say):
    """Runs the checks in order on one crowd.

    # Errors
    `Broken` of the first check that fails.
    """
    try:
        for name, function in checks:
            say(name, await function(crowd, count))
    except (OSError, http.client.HTTPException) as error:
        raise Broken(f"{name}: a request got no answer: {error!r}") from error
    except Broken as broken:
        raise Broken(f"{name}: {broken}") from broken
    finally:
        await crowd.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", required=True, help="one per process, separated by commas")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--mode", choices=("push", "echo"), default="push")
    parser.add_argument("--push-every-ms", type=int, default=0)
    parser.add_argument("--features", default=",".join(FEATURES), help="what it offers (default: everything)")
    parser.add_argument("--deviations", default="", help=f"of {', '.join(DEVIATIONS)}: what it is not held to")
    parser.add_argument("--ca", metavar="FILE", help="it speaks TLS, with a certificate that this file (PEM) vouches for")
    arguments = parser.parse_args()
    features = arguments.features.split(",")
    if unknown := set(features) - set(FEATURES):
        parser.error(f"no such feature: {', '.join(sorted(unknown))}; there are: {', '.join(FEATURES)}")
    deviations = tuple(word for word in arguments.deviations.split(",") if word)
    if unknown := set(deviations) - set(DEVIATIONS):
        parser.error(f"no such deviation: {', '.join(sorted(unknown))}; there are: {', '.join(DEVIATIONS)}")
    try:
        context = ssl.create_default_context(cafile=arguments.ca) if arguments.ca else None
    except OSError as error:
        parser.error(f"--ca {arguments.ca}: {error}; give the certificate that the contestant shows, in PEM")
    crowd = Crowd([int(port) for port in arguments.ports.split(",")], arguments.host, deviations, context=context)
    checks = list(checks_for(features, arguments.mode, arguments.push_every_ms, deviations, bool(context)))
    try:
        asyncio.run(
            check(crowd, arguments.connections, checks, lambda name, said: print(f"{name:<12} ok: {said}", flush=True))
        )
    except Broken as broken:
        print(f"broken: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

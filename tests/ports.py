"""Ports of loopback that nobody else takes, for programs that have to be told a port before they listen.

A port that was free a moment ago may be an outgoing connection's now, of any program of the machine. So each port is held by a socket
of this process that is bound to it and does not listen. The kernel then gives the port to no connection and to no bind to port 0. A
server may bind beside the holder and listen, because both have SO_REUSEADDR, as nginx, HAProxy, nats-server, Myriad and most
others set it. Before and after that, connections to the port are refused. Programs that this process starts do not inherit the holder.
"""

import contextlib
import random
import socket

# The lower end is where `myriad doctor --fix` lets outgoing connections begin. The upper one is where a new network namespace lets them
# begin: programs of tests listen there too, and no holder keeps their ports.
FIRST, LAST = 10_000, 32_767
ATTEMPTS = 1_000

# Until this process ends.
holders = []


def reserve(count=1):
    """The first of so many neighbouring ports."""
    for _ in range(ATTEMPTS):
        first = random.randint(FIRST, LAST + 1 - count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(hold(port))
            holders.append(held.pop_all())
            return first
    raise OSError(f"no {count} neighbouring ports are free from {FIRST} to {LAST}")


def hold(port):
    """A socket that is bound to the port.

    OSError: somebody has it.
    """
    holder = socket.socket()
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    # Only now: with it, a bind succeeds beside another holder.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder

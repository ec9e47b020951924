"""Plain programs that run into a limit and say at how many connections: `plain.py NAME [ARGUMENT ...]`.

Each writes the count as its last line.
"""

import errno
import select
import socket
import sys


def listener(backlog=4096):
    """On a port below every range that a test sets."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    listening.listen(backlog)
    return listening


def descriptors():
    """An epoll server that accepts until its descriptors end. Says its port first."""
    listening, epoll, held = listener(), select.epoll(), []
    print(listening.getsockname()[1], flush=True)
    while True:
        try:
            connection, _ = listening.accept()
        except OSError as error:
            assert error.errno == errno.EMFILE, error
            print(len(held), flush=True)
            return
        epoll.register(connection, select.EPOLLIN)
        held.append(connection)


def ports(port):
    """Connects from one address to one listener until no port is left."""
    listening, held = socket.socket(), []
    listening.bind(("127.0.0.1", int(port)))
    listening.listen(64)
    while True:
        connection = socket.socket()
        try:
            connection.connect(listening.getsockname())
        except OSError as error:
            assert error.errno == errno.EADDRNOTAVAIL, error
            print(len(held) // 2, flush=True)
            return
        held += [connection, listening.accept()[0]]


def burst(wanted):
    """Connects without anybody accepting, and counts the handshakes that ended.

    Over loopback a handshake that the kernel takes has ended when connect() returns; one that it does not
    take waits a second for its next SYN, and this program does not.
    """
    listening, begun = listener(backlog=65535), []
    for _ in range(int(wanted)):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(listening.getsockname())
        begun.append(connection)
    poll = select.poll()
    for connection in begun:
        poll.register(connection, select.POLLOUT)
    print(len(poll.poll(0)), flush=True)


if __name__ == "__main__":
    {"descriptors": descriptors, "ports": ports, "burst": burst}[sys.argv[1]](*sys.argv[2:])

"""Plain programs that run into a limit and say at how many connections: `plain.py [as-nobody] NAME [ARGUMENT ...]`.

Each writes the count as its last line.
"""

import errno
import os
import pwd
import resource
import select
import signal
import socket
import struct
import subprocess
import sys


def listener(backlog=4096):
    """Listens on a port below every range that a test sets."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    listening.listen(backlog)
    return listening


def descriptors():
    """An epoll server that accepts until its descriptors run out. Prints its port first."""
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


def ports(port, most="65536"):
    """Connects from one address to one listener until the ports run out, or the wanted number is open."""
    listening, held = socket.socket(), []
    listening.bind(("127.0.0.1", int(port)))
    listening.listen(64)
    while len(held) < 2 * int(most):
        connection = socket.socket()
        try:
            connection.connect(listening.getsockname())
        except OSError as error:
            assert error.errno == errno.EADDRNOTAVAIL, error
            break
        held += [connection, listening.accept()[0]]
    print(len(held) // 2, flush=True)


def burst(wanted):
    """Connects to a listener that does not accept, and counts the complete handshakes.

    Over loopback a handshake that the kernel takes has ended when connect() returns; one that it does not
    take waits a second for its next SYN, and this program does not.
    """
    listening, begun = listener(backlog=65535), []
    for _ in range(int(wanted)):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(listening.getsockname())
        begun.append(connection)
    print(finished(begun), flush=True)


def ends(wanted):
    """Opens connections one after the other and closes each at both ends."""
    listening = listener()
    for _ in range(int(wanted)):
        connection = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        connection.close()
        assert accepted.recv(1) == b""
        accepted.close()
    print(wanted, flush=True)


def listens(connections, port):
    """Connects until ports run out or the wanted number is open. Prints 1 if a server can bind that port then, else 0."""
    listening, held = listener(), []
    for _ in range(int(connections)):
        held.append(socket.socket())
        try:
            held[-1].connect(listening.getsockname())
        except OSError as error:
            assert error.errno == errno.EADDRNOTAVAIL, error
            break
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("0.0.0.0", int(port)))
        server.listen()
        print(1, flush=True)
    except OSError as error:
        assert error.errno == errno.EADDRINUSE, error
        print(0, flush=True)


def opens(most):
    """Opens files, in as many processes as RLIMIT_NOFILE needs, until the machine allows no more or all are open."""
    most, children, opened = int(most), [], 0
    each, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Made once and early: when the machine allows no more files, a pipe cannot be made either.
    reading, writing = os.pipe()
    while opened < most:
        if (child := os.fork()) == 0:
            count = 0
            try:
                while count < min(each - 64, most - opened):
                    os.open("/dev/null", os.O_RDONLY)
                    count += 1
            except OSError as error:
                if error.errno != errno.ENFILE:
                    # A number, because the parent waits for one.
                    count = -error.errno
            os.write(writing, struct.pack("q", count))
            signal.pause()
        children.append(child)
        (count,) = struct.unpack("q", os.read(reading, 8))
        if count <= 0:
            break
        opened += count
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert count >= 0, os.strerror(-count)
    print(opened, flush=True)


def copies(most):
    """Raises its limit of descriptors as far as it may, and duplicates one until the wanted number is open."""
    most = int(most)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most + 12, most + 12))
    except ValueError:
        with open("/proc/sys/fs/nr_open") as file:
            ceiling = int(file.read())
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, ceiling))
    copied = 0
    try:
        while copied < most:
            os.dup(0)
            copied += 1
    except OSError as error:
        assert error.errno == errno.EMFILE, error
    print(copied, flush=True)


def watches(most):
    """Adds epoll watches until the limit of this user or the wanted number is reached: many for each of some files."""
    most, watching, epolls = int(most), 0, []
    files = [os.eventfd(0) for _ in range(10_000)]
    try:
        while watching < most:
            epolls.append(select.epoll())
            for file in files[:most - watching]:
                epolls[-1].register(file, select.EPOLLIN)
                watching += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    print(watching, flush=True)


def holds(size):
    """Allocates that many bytes, prints a line, and keeps them."""
    kept = bytearray(b"x") * int(size)
    print(len(kept), flush=True)
    signal.pause()


def grows():
    """Allocates memory until the kernel kills it."""
    kept = []
    while True:
        kept.append(bytearray(b"x") * (1 << 20))


def handshakes(begun, clients):
    """Begins handshakes without completing them. Prints how many the kernel holds, then how many clients connect."""
    # From addresses without a host: a host would refuse the answer, and end the handshake.
    subprocess.run(["ip", "route", "add", "10.0.0.0/8", "dev", "lo"], check=True)
    listening = listener(backlog=65535)
    port = listening.getsockname()[1]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for index in range(int(begun)):
            source = socket.inet_aton(f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}")
            raw.sendto(syn(source, 20000, port), ("127.0.0.1", 0))
    print(half_open(port), flush=True)
    begun = []
    for _ in range(int(clients)):
        begun.append(socket.socket())
        begun[-1].setblocking(False)
        begun[-1].connect_ex(listening.getsockname())
    print(finished(begun), flush=True)


def syn(source, source_port, port):
    """A packet that asks 127.0.0.1 for a connection (RFC 791, RFC 9293)."""
    target = socket.inet_aton("127.0.0.1")
    segment = struct.pack(">HHIIBBHHH", source_port, port, 1, 0, 5 << 4, 2, 65535, 0, 0)
    pseudo = source + target + struct.pack(">BBH", 0, socket.IPPROTO_TCP, len(segment))
    words = struct.unpack(f">{len(pseudo + segment) // 2}H", pseudo + segment)
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    segment = segment[:16] + struct.pack(">H", ~total & 0xFFFF) + segment[18:]
    # The kernel fills in the header's own checksum.
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 1, 0, 64, socket.IPPROTO_TCP, 0)
    return header + source + target + segment


def half_open(port):
    """Connections to that port in state SYN_RECV."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "03" for row in rows)


def finished(begun):
    """How many of these have completed their handshake by now."""
    poll = select.poll()
    for connection in begun:
        poll.register(connection, select.POLLOUT)
    return len(poll.poll(0))


PROBE_BYTES = 3000


def reader():
    """Holds connections and reads only from the first two. Prints its port first.

    The first one is for questions, answered one by one: `h` if a further connection is held, `r` if what two messages
    brought on the second one is read.
    """
    listening, held = listener(), []
    print(listening.getsockname()[1], flush=True)
    questions, probe = listening.accept()[0], listening.accept()[0]
    while question := questions.recv(1):
        if question == b"h":
            held.append(listening.accept()[0])
        else:
            left = 2 * PROBE_BYTES
            while left:
                left -= len(probe.recv(left))
        questions.send(question)


def unread(port, most):
    """Leaves a small message unread on one connection after the other. Prints on how many the kernel kept it, before it
    dropped one for a connection that had unread data already."""
    address, held, dropped_before = ("127.0.0.1", int(port)), [], queue_drops()
    questions, probe = socket.create_connection(address), socket.create_connection(address)
    # The second message must not wait until the first one is acknowledged.
    probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(question):
        questions.send(question)
        assert questions.recv(1) == question

    while len(held) < int(most):
        held.append(socket.create_connection(address))
        ask(b"h")
        held[-1].send(b"unread")
        for _ in range(2):
            probe.send(b"p" * PROBE_BYTES)
        if queue_drops() > dropped_before:
            break
        ask(b"r")
    print(len(held), flush=True)


def queue_drops():
    """TCPRcvQDrop of this network namespace."""
    with open("/proc/net/netstat") as file:
        lines = [line.split() for line in file]
    [names, values] = [line for line in lines if line[0] == "TcpExt:"]
    return int(values[names.index("TCPRcvQDrop")])


def become_nobody():
    """Becomes another user, without privileges. Called late, because that user may not read the folder with Python."""
    user = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


if __name__ == "__main__":
    programs = [
        descriptors, ports, listens, opens, copies, watches, holds, grows, burst, handshakes, ends, reader, unread,
    ]
    words = sys.argv[1:]
    if words[0] == "as-nobody":
        become_nobody()
        words = words[1:]
    {program.__name__: program for program in programs}[words[0]](*words[1:])

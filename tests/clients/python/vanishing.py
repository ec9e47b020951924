"""Clients that vanish without FIN, in a network namespace of their own: run by test_vanishing.py inside one.

A socket in TCP_REPAIR mode sends nothing when it is closed. The kernel would answer the server's next ping to it with
RST, as if the machine were still there; a blackhole route makes it a machine that has lost its power.
"""

import contextlib
import queue
import socket
import subprocess
import sys
import threading

from server import PATIENCE, UPGRADE, DriverUnavailable, Server, receive, receive_head, until

TCP_REPAIR = 19
VANISHING = 20
# Every 127.x.y.z belongs to this machine without configuration. This one will stop answering.
THEIR_ADDRESS = "127.9.9.9"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Client:
    """A WebSocket that answers every ping until it vanishes, whatever the test waits for: its reader is a thread."""

    def __init__(self, server, path):
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        self.socket.bind((THEIR_ADDRESS, 0))
        self.socket.connect((server.host, server.port))
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
        assert receive_head(self.socket).startswith(b"HTTP/1.1 101")
        # Blocks for ever: `vanish` ends it.
        self.socket.settimeout(None)
        self.frames = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with contextlib.suppress(EOFError, OSError):
            while True:
                head = receive(self.socket, 2)
                frame = head + receive(self.socket, head[1])
                if frame == b"\x89\x00":
                    self.socket.sendall(b"\x8a\x80\0\0\0\0")
                else:
                    self.frames.put(frame)

    def begin_message(self):
        """Sends a fragment, which is not the last. Pongs may follow it, as they could not in the middle of a frame."""
        self.socket.sendall(b"\x02\x84\0\0\0\0half")

    def vanish(self):
        self.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        # Ends the reader and sends nothing. A socket that is still read from would not go with its close.
        self.socket.shutdown(socket.SHUT_RD)
        self.reader.join()
        self.socket.close()


def main(driver):
    ip("link", "set", "lo", "up")
    server = Server.start("--driver", driver, "--ping-interval", "2s", "--pong-timeout", "2s")
    try:
        bystander = server.client("/raw?channel=c")
        clients = [Client(server, "/raw?channel=c") for _ in range(VANISHING)]
        # Half of them are in the middle of a message, which the server keeps until it knows that they are gone.
        for client in clients[::2]:
            client.begin_message()
        half = Client(server, "/echo")
        half.begin_message()
        server.publish("c", "before")
        for client in clients:
            assert client.frames.get(timeout=PATIENCE) == b"\x81\x06before"
        assert bystander.recv(timeout=30) == "before"
        until("partial input is kept", lambda: server.metric("myriad_buffered_bytes") > 0)

        ip("route", "add", "blackhole", f"{THEIR_ADDRESS}/32", "table", "local")
        for client in [*clients, half]:
            client.vanish()
        # The server does not notice, and continues to serve the others.
        server.publish("c", "meanwhile")
        assert bystander.recv(timeout=30) == "meanwhile"
        gone = len(clients) + 1
        until("all are found out", lambda: server.metric('myriad_closes_total{reason="pong_timeout"}') == gone)
        assert server.metric('myriad_closes_total{reason="reset"}') == 0
        # The close frame is never acknowledged: the linger's timeout ends them.
        until("their memory is back", lambda: server.metric("myriad_connections") == 1)
        until("their bytes are back", lambda: server.metric("myriad_buffered_bytes") == 0)
        server.publish("c", "after")
        assert bystander.recv(timeout=30) == "after"
        bystander.close()
    finally:
        code = server.stop()
    assert code == 0, server.log


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except DriverUnavailable as reason:
        sys.exit(f"unavailable: {reason}")

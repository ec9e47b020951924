"""A client's end of a connection: it sends any bytes, and says how the server ended."""

import socket
import struct
from dataclasses import dataclass, field

from wire import ALERT, ALERTS, DATA, HANDSHAKE

# A test that waits longer has failed.
PATIENCE = 30


@dataclass
class Ending:
    """All that came until the server's FIN."""

    # Descriptions, in their order.
    alerts: list = field(default_factory=list)
    levels: list = field(default_factory=list)
    data: bytes = b""
    # Records with messages of a handshake.
    messages: list = field(default_factory=list)
    # What came and is no record.
    rest: bytes = b""
    # Broken off with a RST: what the server said before may be lost.
    is_reset: bool = False

    @property
    def alert(self):
        """The alert, of which there may be one."""
        assert len(self.alerts) < 2, self
        return self.alerts[0] if self.alerts else None


class Peer:
    """A socket, and what protects each direction once there is something."""

    def __init__(self, port, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        # Messages of a handshake that have not come whole.
        self.coming = b""
        # Of what we write, and of what we read.
        self.write = self.read = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def reset(self):
        """Breaks off with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, sent):
        """Sends bytes as they are. A server that has refused us may have gone: what it said is read all the same."""
        try:
            self.socket.sendall(sent)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def end(self):
        """Our FIN."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def fill(self, count):
        """Reads until that many bytes are there. False at the end."""
        while len(self.received) < count:
            piece = self.socket.recv(65_536)
            if not piece:
                return False
            self.received += piece
        return True

    def take(self, count):
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def read_record(self):
        """Type and contents of the next record, opened if its direction is protected: nothing at the end."""
        if not self.fill(5):
            return None
        length = int.from_bytes(self.received[3:5], "big")
        if not self.fill(5 + length):
            return None
        head, body = self.take(5), self.take(length)
        return self.open(head, body)

    def open(self, head, body):
        if self.read is None:
            return head[0], body
        return self.read.open(head, body)

    def read_message(self):
        """The next message of the handshake, with its head."""
        while len(self.coming) < 4 or len(self.coming) < 4 + int.from_bytes(self.coming[1:4], "big"):
            found = self.read_record()
            assert found is not None, "the server ended the connection in the handshake"
            kind, contents = found
            assert kind == HANDSHAKE, (kind, contents)
            self.coming += contents
        length = 4 + int.from_bytes(self.coming[1:4], "big")
        taken, self.coming = self.coming[:length], self.coming[length:]
        return taken

    def read_until(self, end):
        """Reads data up to this, and perhaps more."""
        data = b""
        while end not in data:
            piece = self.read_data()
            assert piece is not None, data
            data += piece
        return data

    def handle_message(self, contents):
        """Messages behind the handshake."""

    def ending(self):
        """Reads to the end."""
        ending = Ending()
        try:
            while (found := self.read_record()) is not None:
                kind, contents = found
                if kind == ALERT:
                    ending.levels.append(contents[0])
                    ending.alerts.append(ALERTS.get(contents[1], contents[1]))
                elif kind == DATA:
                    ending.data += contents
                else:
                    ending.messages.append(contents)
                    self.handle_message(contents)
        except ConnectionResetError:
            ending.is_reset = True
        ending.rest = self.received
        return ending

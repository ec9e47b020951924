"""Where a connection is behind its handshake, and how a client gets there."""

# An answer that leaves the connection open, from the control plane.
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /raw?channel=hostile HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# A pong that nobody asked for: it is data, and nothing answers it (RFC 6455, 5.5.3).
PONG = b"\x8a\x80\0\0\0\0"
PING = b"\x89\x80\0\0\0\0"
PONG_OF_SERVER = b"\x8a\0"


def stay_with_shard(client):
    """No request has come."""


def open_websocket(client):
    """A WebSocket of a shard."""
    client.say_data(UPGRADE)
    assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")


def go_to_control(client):
    """The control plane answers a request of it, and waits for the next."""
    client.say_data(REQUEST)
    assert client.read_until(b"# EOF\n").startswith(b"HTTP/1.1 200 ")


def still_works(client):
    """A connection of a WebSocket answers a ping."""
    client.say_data(PING)
    client.read_until(PONG_OF_SERVER)


PLACES = {"shard": stay_with_shard, "websocket": open_websocket, "control": go_to_control}

"""Clients that vanish without FIN, in a network namespace of their own: run by test_vanishing.py inside one.

A socket in TCP_REPAIR mode sends nothing when it is closed. The kernel would answer the server's next ping to it with
RST, as if the machine were still there; a blackhole route makes it a machine that has lost its power.
"""

import socket
import subprocess
import sys

from server import UPGRADE, DriverUnavailable, Server, receive, receive_head, until

TCP_REPAIR = 19
VANISHING = 20
# Every 127.x.y.z belongs to this machine without configuration. This one will stop answering.
THEIR_ADDRESS = "127.9.9.9"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def connect(server, path):
    client = socket.socket()
    client.settimeout(30)
    client.bind((THEIR_ADDRESS, 0))
    client.connect((server.host, server.port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\n{UPGRADE}\r\n".encode())
    assert receive_head(client).startswith(b"HTTP/1.1 101")
    return client


def vanish(client):
    client.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    client.close()


def main(driver):
    ip("link", "set", "lo", "up")
    server = Server.start("--driver", driver, "--ping-interval", "1s", "--pong-timeout", "1s")
    try:
        bystander = server.client("/raw?channel=c")
        clients = [connect(server, "/raw?channel=c") for _ in range(VANISHING)]
        # Half of them are in the middle of a message, which the server keeps until it knows that they are gone.
        for client in clients[::2]:
            client.sendall(b"\x02\xfe\x10\x00\0\0\0\0half")
        half = connect(server, "/echo")
        half.sendall(b"\x02\xfe\x10\x00\0\0\0\0half")
        server.publish("c", "before")
        for client in clients:
            assert receive(client, 8) == b"\x81\x06before"
        assert bystander.recv(timeout=30) == "before"
        until("partial input is kept", lambda: server.metric("myriad_buffered_bytes") > 0)

        ip("route", "add", "blackhole", f"{THEIR_ADDRESS}/32", "table", "local")
        for client in [*clients, half]:
            vanish(client)
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

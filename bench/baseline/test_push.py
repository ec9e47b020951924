"""Tests of the plain baseline with raw sockets: python3 -m unittest discover -s bench/baseline.

A yardstick that is wrong measures nothing, so it is held to what the crowd relies on: the RFC's handshake,
one frame per publication to every connection, and a broadcast that survives clients that leave or stall.
"""

import base64
import hashlib
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import ports  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PATIENCE_S = 20


def build(directory):
    program = os.path.join(directory, "push")
    source = os.path.join(HERE, "push.c")
    subprocess.run(
        ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True
    )
    return program


class Client:
    """A WebSocket client that can do nothing but upgrade and read frames."""

    def __init__(self, port, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))
        self.buffer = b""

    def request(self, key):
        return (
            "GET /raw?channel=x HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"sec-websocket-key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    def upgrade(self):
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(self.request(key))
        return key, self.head()

    def head(self):
        while b"\r\n\r\n" not in self.buffer:
            more = self.socket.recv(4096)
            if not more:
                break
            self.buffer += more
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head.decode()

    def exactly(self, length):
        while len(self.buffer) < length:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError
            self.buffer += more
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def frame(self):
        first, length = self.exactly(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.exactly(2))
        return first, self.exactly(length)

    def close(self):
        self.socket.close()


class PushTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.program = build(cls.directory.name)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def setUp(self):
        self.port, self.control = ports.reserve(), ports.reserve()
        self.server = self.start()
        self.clients = []

    def start(self, *options):
        server = subprocess.Popen(
            [self.program, "--listen", f"127.0.0.1:{self.port}", "--control", f"127.0.0.1:{self.control}", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.announcement = server.stderr.readline()
        return server

    def tearDown(self):
        for client in self.clients:
            client.close()
        self.server.terminate()
        self.server.wait(PATIENCE_S)
        self.server.stderr.close()

    def client(self, **options):
        client = Client(self.port, **options)
        self.clients.append(client)
        return client

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.control, timeout=PATIENCE_S)
        connection.request(method, path, body)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text)

    def stats(self):
        status, stats = self.call("GET", "/stats")
        self.assertEqual(status, 200)
        return stats

    def wait_for(self, **wanted):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            stats = self.stats()
            if all(stats[name] == value for name, value in wanted.items()):
                return stats
            self.assertLess(time.monotonic(), deadline, f"waited for {wanted}, saw {stats}")

    def crowd(self, count):
        for _ in range(count):
            _, head = self.client().upgrade()
            self.assertTrue(head.startswith("HTTP/1.1 101 "), head)
        self.wait_for(connections=count)

    def test_the_upgrade_is_answered_as_the_rfc_says(self):
        key, head = self.client().upgrade()
        expected = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        self.assertIn(f"Sec-WebSocket-Accept: {expected}", head)
        # RFC 6455, 1.3: the example.
        client = self.client()
        client.socket.sendall(client.request("dGhlIHNhbXBsZSBub25jZQ=="))
        self.assertIn("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", client.head())

    def test_a_head_may_come_a_byte_at_a_time(self):
        client = self.client()
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in client.request("dGhlIHNhbXBsZSBub25jZQ=="):
            client.socket.sendall(bytes([byte]))
        self.assertIn("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", client.head())
        self.wait_for(connections=1)

    def test_every_connection_gets_every_publication_once(self):
        self.crowd(300)
        for text in ("first", "second"):
            self.assertEqual(self.call("POST", "/anything", text), (200, {}))
        for client in self.clients:
            self.assertEqual(client.frame(), (0x81, b"first"))
            self.assertEqual(client.frame(), (0x81, b"second"))
        stats = self.wait_for(sent=600)
        self.assertEqual((stats["connections"], stats["dropped"], stats["processes"]), (300, 0, 16))

    def test_long_messages_have_a_long_head(self):
        self.crowd(1)
        for length in (125, 126, 60000):
            self.call("POST", "/", "x" * length)
            self.assertEqual(self.clients[0].frame(), (0x81, b"x" * length))

    def test_connections_that_leave_are_forgotten(self):
        self.crowd(60)
        for client in self.clients[::2]:
            client.close()
        self.wait_for(connections=30)
        self.call("POST", "/", "still here")
        for client in self.clients[1::2]:
            self.assertEqual(client.frame(), (0x81, b"still here"))
        self.wait_for(sent=30, dropped=0)

    def test_what_clients_send_is_ignored(self):
        self.crowd(1)
        self.clients[0].socket.sendall(b"\x89\x80\x00\x00\x00\x00" * 5000)
        self.call("POST", "/", "after the pings")
        self.assertEqual(self.clients[0].frame(), (0x81, b"after the pings"))

    def test_a_client_that_does_not_read_misses_and_is_counted(self):
        stalled = self.client(receive_buffer=4096)
        stalled.upgrade()
        _, head = self.client().upgrade()
        self.assertTrue(head)
        self.wait_for(connections=2)
        pushed = 0
        while self.stats()["dropped"] == 0:
            self.assertLess(pushed, 1000)
            self.call("POST", "/", "x" * 60000)
            pushed += 1
            self.assertEqual(self.clients[1].frame(), (0x81, b"x" * 60000))

    def test_bad_requests_are_refused(self):
        client = self.client()
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        self.assertTrue(client.head().startswith("HTTP/1.1 400 "))
        client = self.client()
        client.socket.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 10000)
        with self.assertRaises((ConnectionResetError, EOFError)):
            client.exactly(1)
        self.assertEqual(self.call("POST", "/")[0], 400)
        self.assertEqual(self.call("POST", "/", "x" * 70000)[0], 413)

    def test_a_port_in_use_is_not_shared_silently(self):
        second = subprocess.run(
            [self.program, "--listen", f"127.0.0.1:{self.port}", "--control", f"127.0.0.1:{ports.reserve()}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"cannot listen on 127.0.0.1:{self.port}", second.stderr)


class ManyProcessesTest(unittest.TestCase):
    def test_more_processes_are_started_where_the_descriptor_limit_demands_it(self):
        with tempfile.TemporaryDirectory() as directory:
            program = build(directory)
            port, control = ports.reserve(), ports.reserve()
            server = subprocess.Popen(
                ["sh", "-c", f"ulimit -n 512; exec {program} --listen 127.0.0.1:{port} "
                 f"--control 127.0.0.1:{control} --connections 20000"],
                stderr=subprocess.PIPE,
                text=True,
            )
            announcement = server.stderr.readline()
            server.terminate()
            server.wait(PATIENCE_S)
            server.stderr.close()
        processes = int(announcement.split()[-2])
        # 480 slots each; the mean must stay five deviations below: which 53 do.
        self.assertEqual(processes, 53, announcement)


if __name__ == "__main__":
    unittest.main()

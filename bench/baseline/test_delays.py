"""Tests of the server whose delays are known: it holds each message for a time of the distribution, and tells the truth of it."""

import base64
import json
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 60


class Client:
    """A WebSocket client that sends and takes short text messages."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        key = base64.b64encode(bytes(16)).decode()
        head = f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.file = self.socket.makefile("rb")
        assert self.file.readline().startswith(b"HTTP/1.1 101 ")
        while self.file.readline() != b"\r\n":
            pass

    def send(self, text):
        mask = b"\1\2\3\4"
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(text.encode()))
        self.socket.sendall(struct.pack("BB", 0x81, 0x80 | len(masked)) + mask + masked)

    def take(self):
        first, length = self.file.read(2)
        assert first == 0x81
        return self.file.read(length).decode()

    def close(self):
        self.file.close()
        self.socket.close()


class DelaysTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        program = os.path.join(self.directory.name, "delays")
        source = os.path.join(HERE, "delays.c")
        subprocess.run(["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
        self.server = subprocess.Popen([program, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        self.port = int(self.server.stderr.readline().rsplit(":", 1)[1])

    def tearDown(self):
        self.server.kill()
        self.server.wait()
        self.server.stderr.close()
        self.directory.cleanup()

    def stats(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def test_messages_come_back_after_the_time_that_it_says(self):
        client = Client(self.port)
        begun = time.monotonic()
        for number in range(200):
            client.send(f"m{number}")
        taken = {}
        for _ in range(200):
            message = client.take()
            taken[message] = (time.monotonic() - begun) * 1000
        client.close()
        self.assertEqual(len(taken), 200)
        # None is early: 10 ms is the shortest of the distribution.
        self.assertGreaterEqual(min(taken.values()), 10)
        stats = self.stats()
        held = stats["held_ms"]
        self.assertEqual(stats["count"], 200)
        self.assertTrue(10 <= held["p50"] <= held["p99"] <= held["p999"] <= max(taken.values()) + 1, stats)

    def test_who_has_gone_gets_nothing_and_others_do(self):
        gone, other = Client(self.port), Client(self.port)
        gone.send("never")
        gone.close()
        other.send("still")
        self.assertEqual(other.take(), "still")
        other.close()
        self.assertLessEqual(self.stats()["count"], 2)


if __name__ == "__main__":
    unittest.main()

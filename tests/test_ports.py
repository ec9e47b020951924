"""Ports of tests are theirs, however wide the range of outgoing connections is."""

import os
import shutil
import socket
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import ports

HERE = Path(__file__).resolve().parent
# Run in a network namespace of its own, whose outgoing connections have the range of four ports.
FEW_PORTS = """
import socket, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import ports
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("20000 20003")
ports.FIRST, ports.LAST = 20001, 20001
port = ports.reserve()
server = socket.create_server(("127.0.0.1", 20500))
mine, refused = [], 0
while len(mine) < 3:
    mine.append(socket.create_connection(("127.0.0.1", 20500)))
try:
    socket.create_connection(("127.0.0.1", 20500))
except OSError:
    refused += 1
assert port not in {one.getsockname()[1] for one in mine} and refused == 1
ours = socket.create_server(("127.0.0.1", port))
for one in mine:
    one.close()
print("kept")
"""


def may_make_namespaces():
    done = subprocess.run(["unshare", "-n", "true"], capture_output=True) if shutil.which("unshare") else None
    return os.geteuid() == 0 and done is not None and done.returncode == 0


class PortsTest(unittest.TestCase):
    def test_a_server_may_have_it_and_nobody_else(self):
        port = ports.reserve()
        for _ in range(2):
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            with socket.create_server(("127.0.0.1", port)) as server:
                with socket.create_connection(("127.0.0.1", port)):
                    # This end is closed first, and stays in TIME_WAIT.
                    server.accept()[0].close()
        with socket.socket() as other, self.assertRaises(OSError):
            other.bind(("127.0.0.1", port))

    def test_neighbours_are_taken_together_and_once(self):
        taken = [ports.reserve(3) for _ in range(20)]
        every = {first + number for first in taken for number in range(3)}
        self.assertEqual(len(every), 60)

    def test_a_taken_neighbour_takes_none(self):
        # Below the outgoing range: there the neighbour of a free port is often one of a connection that has ended a moment ago.
        taken = ports.reserve(2) + 1
        ports.holders.pop().close()
        with socket.socket() as other:
            other.bind(("127.0.0.1", taken))
            before = len(ports.holders)
            with mock.patch.multiple(ports, FIRST=taken - 1, LAST=taken), self.assertRaises(OSError):
                ports.reserve(2)
        self.assertEqual(len(ports.holders), before)
        ports.hold(taken - 1).close()

    def test_outgoing_connections_get_every_port_of_their_range_but_this(self):
        if not may_make_namespaces():
            self.skipTest("needs root and unshare")
        script = f"ip link set lo up && exec {sys.executable} -c '{FEW_PORTS}' {HERE}"
        done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "kept\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()

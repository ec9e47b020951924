"""The program under test: what doctor says, a server, a crowd."""

import json
import re
import threading
from pathlib import Path

from confine import MYRIAD, World

HERE = Path(__file__).resolve().parent


def examine(world, *flags):
    """Doctor's JSON and its exit code."""
    done = world.run(MYRIAD, "doctor", "--json", *flags)
    assert done.returncode in (0, 1), done.stderr
    examination = json.loads(done.stdout)
    assert examination["enough"] == (done.returncode == 0)
    return examination


def limit(examination, name):
    [found] = [limit for limit in examination["limits"] if limit["name"] == name]
    return found


class Server:
    """`myriad serve --dev` in a world."""

    def __init__(self, world, *flags):
        self.process = world.start(
            MYRIAD, "serve", "--dev", "--listen", "127.0.0.1:0", "--drain", "0s", *flags, stderr=-1
        )
        self.said = []
        self.address = None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.match(r"listening on (\S+)", line):
                self.address = found[1]
                break
        # Its further output must not fill the pipe.
        self.reader = threading.Thread(target=lambda: self.said.extend(self.process.stderr))
        self.reader.start()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


def crowd(world, address, connections, *flags, duration="1ms"):
    """A crowd that tries each connection once. Gives the most connections that were open."""
    done = world.run(
        MYRIAD, "swarm", f"ws://{address}/raw?channel=x", "--connections", connections, "--live", "json",
        "--duration", duration, "--retries", "0", "--connect-timeout", "3s", "--handshake-timeout", "3s", *flags,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done, events


def outside():
    return World()

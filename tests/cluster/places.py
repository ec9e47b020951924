"""Where servers and nodes run: on loopback, or each in a network namespace of its own, so that its link can be cut."""

import os
import shutil
import subprocess

NETWORK = "10.77.0"


class Loopback:
    """All together."""

    host = "127.0.0.1"
    # What stands in front of a program's command line.
    command = ()


def may_make_namespaces():
    return os.geteuid() == 0 and shutil.which("ip") is not None


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


class Place:
    """A network namespace with one link to the bridge."""

    def __init__(self, namespaces, number):
        self.host = f"{NETWORK}.{number}"
        self.name = f"{namespaces.bridge}n{number}"
        self.link = f"{namespaces.bridge}v{number}"
        self.command = ("ip", "netns", "exec", self.name)
        ip("netns", "add", self.name)
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.link, "master", namespaces.bridge, "up")
        ip("-n", self.name, "addr", "add", f"{self.host}/24", "dev", "eth0")
        ip("-n", self.name, "link", "set", "eth0", "up")
        ip("-n", self.name, "link", "set", "lo", "up")

    def cut(self):
        """Nothing comes in or goes out any more; nobody is told."""
        ip("link", "set", self.link, "down")

    def heal(self):
        ip("link", "set", self.link, "up")


class Namespaces:
    """A bridge of this process, and the places on it."""

    def __init__(self):
        self.bridge = f"my{os.getpid() % 100_000}"
        self.places = []
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.254/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def place(self):
        self.places.append(Place(self, len(self.places) + 1))
        return self.places[-1]

    def remove(self):
        for place in self.places:
            # With its namespace alone the link would go some time later, and the next place of this name could not be made.
            subprocess.run(["ip", "link", "del", place.link], check=False)
            subprocess.run(["ip", "netns", "del", place.name], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)

"""A machine to install packages on: the files of a root, with everything that is written there on top of them and lost at the end."""

import os
import subprocess
import textwrap
from pathlib import Path

# A root of its own that a person has made, such as `mmdebstrap --variant=minbase --include=systemd bookworm DIR`. By default the files of
# this machine.
ROOT = os.environ.get("MYRIAD_PACKAGES_ROOT", "/")

# What the package manager's scripts call where systemd runs. It runs here in no root, so these write down what they were asked.
RECORDERS = ("systemctl", "deb-systemd-invoke")
RECORDER = """\
#!/bin/sh
echo "$(basename "$0") $*" >> /run/asked
"""

PREPARE = """\
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t tmpfs tmpfs "$1/root/run"
mount -t tmpfs tmpfs "$1/root/tmp"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
echo ready
exec cat
"""


class Machine:
    """Programs of the root run in it, as root. What it says is what they print."""

    def __init__(self, folder):
        self.root = folder / "root"
        # A namespace of mounts ends with its last process, and all mounts with it. The keeper ends with its input.
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", PREPARE, "sh", folder, ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.keeper.stdout.readline() != "ready\n":
            raise RuntimeError("no namespace of mounts with an overlay can be had")

    def end(self):
        self.keeper.stdin.close()
        self.keeper.wait()

    def command(self, *words):
        """The command line that runs these words in the root."""
        inside = ["nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "chroot", self.root]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return [str(word) for word in [*inside, "env", "-i", path, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *words]]

    def run(self, *words, input=None):
        """Runs a command. Its exit code, and all that it said."""
        done = subprocess.run(
            self.command(*words), input=input, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout

    def do(self, *words, input=None):
        """Runs a command that must succeed. What it said."""
        code, said = self.run(*words, input=input)
        assert code == 0, f"{' '.join(map(str, words))}: exit code {code}\n{said}"
        return said

    def holds(self, path):
        return self.run("test", "-e", path)[0] == 0

    def read(self, path):
        return self.do("cat", path)

    def write(self, path, text, mode="644"):
        self.do("mkdir", "-p", Path(path).parent)
        self.do("sh", "-c", 'cat > "$1" && chmod "$2" "$1"', "sh", path, mode, input=textwrap.dedent(text))

    def put(self, file):
        """Copies a file of this machine in. Its path there."""
        path = f"/tmp/{Path(file).name}"
        with open(file, "rb") as source:
            subprocess.run(self.command("sh", "-c", 'cat > "$1"', "sh", path), stdin=source, check=True)
        return path

    def owner_and_mode(self, path):
        return self.do("stat", "-c", "%U:%G %a", path).strip()

    def pretend_systemd(self):
        """From now on the scripts find a systemd that runs, and are written down."""
        self.do("mkdir", "-p", "/run/systemd/system")
        for name in RECORDERS:
            # In place of the real ones: rpm lets its scripts look nowhere else.
            self.do("rm", "-f", f"/usr/bin/{name}")
            self.write(f"/usr/bin/{name}", RECORDER, "755")

    def asked(self):
        """What a running systemd was asked since the last time, but for reading its units again. With --root a command changes files."""
        said = self.run("cat", "/run/asked")[1].splitlines() if self.holds("/run/asked") else []
        self.run("rm", "-f", "/run/asked")
        return [line for line in said if "daemon-reload" not in line and "--root=" not in line]

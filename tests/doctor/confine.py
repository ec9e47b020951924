"""Confined environments to run programs in: low limits, network namespaces, control groups, seccomp filters.

Each is a way to start a child. What a world needs and does not have makes `Missing`, whose text says what.
"""

import ctypes
import os
import resource
import struct
import subprocess
from pathlib import Path

MYRIAD = os.environ["MYRIAD"]


class Missing(Exception):
    """The machine or our privileges lack something that the environment needs."""


class World:
    """Where children run. `prepare` is called in each child, between fork and exec."""

    def __init__(self, prefix=(), prepare=None):
        self.prefix = list(prefix)
        self.prepare = prepare

    def start(self, *command, **options):
        words = [*self.prefix, *map(str, command)]
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, preexec_fn=self.prepare, text=True, **options
        )

    def run(self, *command, timeout=120):
        """The finished process, with its output."""
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def low_descriptors(most):
    """Soft and hard RLIMIT_NOFILE."""
    return World(prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))


class Network:
    """A network namespace of its own, held by a process that sleeps, with loopback up."""

    def __init__(self):
        try:
            self.holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise Missing(f"network namespaces need {error.filename}") from error
        if self.holder.stdout.readline() != "up\n":
            reason = self.holder.stderr.read().strip()
            self.close()
            raise Missing(f"no network namespace can be made here: {reason}")

    def world(self, prepare=None):
        return World(["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"], prepare)

    def set(self, key, value):
        path = "/proc/sys/" + key.replace(".", "/")
        done = self.world().run("sh", "-c", f"printf '%s\\n' '{value}' > {path}")
        assert done.returncode == 0, done.stderr

    def read(self, key):
        return self.world().run("cat", "/proc/sys/" + key.replace(".", "/")).stdout

    def close(self):
        self.holder.kill()
        self.holder.wait()


class MemoryGroup:
    """A control group with a memory limit, of whichever version has the memory controller; `file` is version 1's."""

    ROOT = Path("/sys/fs/cgroup")

    def __init__(self, version, limit_bytes, file="memory.limit_in_bytes"):
        if version == 1:
            parent = self.ROOT / "memory"
        else:
            parent = self.ROOT / "unified" if (self.ROOT / "unified").is_dir() else self.ROOT
            file = "memory.max"
            controllers = parent / "cgroup.subtree_control"
            if not controllers.exists() or "memory" not in controllers.read_text().split():
                raise Missing("control groups of version 2 have no memory controller here")
        self.path = parent / f"myriad-test-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / file).write_text(str(limit_bytes))
        except OSError as error:
            self.close()
            raise Missing(f"no memory control group can be made here: {error}") from error

    def world(self):
        return World(prepare=self.join)

    def join(self):
        """Called in a child between fork and exec."""
        with open(self.path / "cgroup.procs", "w") as file:
            file.write("0")

    def kills(self):
        """Processes that the kernel has killed in it."""
        for name in ("memory.oom_control", "memory.events"):
            file = self.path / name
            if file.exists():
                words = dict(line.split() for line in file.read_text().splitlines())
                return int(words.get("oom_kill", 0))
        return 0

    def close(self):
        if self.path.exists():
            self.path.rmdir()


SYS_IO_URING_SETUP = 425  # The same on every architecture.
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW, EPERM = 0x00050000, 0x7FFF0000, 1


def without_io_uring(prepare=None):
    """A seccomp filter answers io_uring_setup with EPERM, as container runtimes do."""
    instructions = [
        (0x20, 0, 0, 0),  # load the number of the call
        (0x15, 0, 1, SYS_IO_URING_SETUP),  # the next line if it is that, else the one after it
        (0x06, 0, 0, SECCOMP_RET_ERRNO | EPERM),
        (0x06, 0, 0, SECCOMP_RET_ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *one) for one in instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(instructions), ctypes.addressof(buffer))

    def confine():
        if prepare:
            prepare()
        assert len(buffer) > len(code)  # The filter's memory lives as long as this function.
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
            os._exit(97)

    return World(prepare=confine)

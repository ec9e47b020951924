"""A network namespace with a larger connection hash, made without root.

The kernel sizes the hash of a new network namespace by the `net.ipv4.tcp_child_ehash_entries` of the one it is
made from (Linux 6.1). So: a user namespace, in which we may set that; in it a first network namespace to set it
in; from that a second one, which gets the hash.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import traceback
from pathlib import Path

HASH_BUCKETS = 4_194_304

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_inside(work):
    """Calls `work` in a child process in such a namespace; returns its result, which must be JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            _enter()
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError("the run inside the network namespace failed; see above")
    return json.loads(text)


def _enter():
    user, group = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER | CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    Path("/proc/sys/net/ipv4/tcp_child_ehash_entries").write_text(str(HASH_BUCKETS))
    _unshare(CLONE_NEWNET)
    buckets = abs(int(Path("/proc/sys/net/ipv4/tcp_ehash_entries").read_text()))
    if buckets != HASH_BUCKETS:
        raise RuntimeError(f"the namespace has {buckets} hash buckets")
    _raise_loopback()


def _unshare(flags):
    if _LIBC.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"unshare: {os.strerror(error)} (are user namespaces allowed here?)")


def _raise_loopback():
    """A new namespace's loopback is down (netdevice(7))."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))

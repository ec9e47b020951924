"""A new network namespace, with a larger hash table of connections if wanted. It needs no root.

The kernel takes the size of a new namespace's hash table from `net.ipv4.tcp_child_ehash_entries` of its parent
(Linux 6.1). So without root, first comes a user namespace, in which we may change that. In it a first network
namespace gets the setting, and a second one made from it gets the hash table.
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

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
MS_REC = 0x4000
MS_PRIVATE = 0x40000
_LIBC = ctypes.CDLL(None, use_errno=True)


def run_inside(work, buckets=HASH_BUCKETS):
    """Calls `work` in a child process in such a namespace. Returns its result, which must be JSON.

    Without `buckets` the namespace shares the machine's hash table.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            _enter(buckets)
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


def own_sysfs():
    """Mounts a /sys that shows this namespace's devices, in a mount namespace of its own. Returns its path."""
    _unshare(CLONE_NEWNS)
    _mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    _mount(b"none", b"/sys", b"sysfs", 0)
    return Path("/sys")


def _mount(source, target, kind, flags):
    if _LIBC.mount(source, target, kind, flags, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount of {target.decode()}: {os.strerror(error)}")


def _enter(buckets):
    try:
        _unshare(CLONE_NEWNET)
    except PermissionError:
        _become_root()
    if buckets is not None:
        Path("/proc/sys/net/ipv4/tcp_child_ehash_entries").write_text(str(buckets))
        _unshare(CLONE_NEWNET)
        found = abs(int(Path("/proc/sys/net/ipv4/tcp_ehash_entries").read_text()))
        if found != buckets:
            raise RuntimeError(f"the namespace has {found} hash buckets")
    _raise_loopback()


def _become_root():
    """Becomes root of a new user namespace, in which we may make network namespaces."""
    user, group = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER | CLONE_NEWNET)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


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

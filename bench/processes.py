"""Processes and the machine, as /proc shows them."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child that ends with the `with` block, and when this process dies."""

    def __init__(self, command, stderr_path, stdout=subprocess.DEVNULL):
        self.command = [str(word) for word in command]
        self.stderr_path = Path(stderr_path)
        with open(self.stderr_path, "w") as stderr:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self):
        return self.popen.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, patience_s=60):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        if self.popen.stdout:
            self.popen.stdout.close()

    def last_words(self):
        return "".join(self.stderr_path.read_text(errors="replace").splitlines(keepends=True)[-8:])


def tree(pid):
    """The process and all its descendants."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # It ended meanwhile.
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo.extend(children.get(found[-1], []))
    return found


def cpu_seconds(pids):
    """User and system time of these processes.

    If the kernel shows them, from the scheduler's sums, in nanoseconds per thread. utime and stime (proc(5), fields 14
    and 15 of stat) are rounded down to 10 ms per process: with the 53 processes of a baseline, half a second is lost.
    """
    try:
        return sum(
            int((task / "schedstat").read_text().split()[0])
            for pid in pids
            for task in Path(f"/proc/{pid}/task").iterdir()
        ) / 1e9
    except FileNotFoundError:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(words[11]) + int(words[12]) for words in fields) / CLOCK_TICKS_PER_S


def anonymous_bytes(pids):
    """RssAnon: the private memory in use."""
    return sum(_kilobytes(f"/proc/{pid}/status", "RssAnon") * 1024 for pid in pids)


def memory(pid):
    """Resident memory, private memory, and PSS: private memory with a share of the shared pages."""
    return {
        "rss_bytes": _kilobytes(f"/proc/{pid}/status", "VmRSS") * 1024,
        "anonymous_bytes": _kilobytes(f"/proc/{pid}/status", "RssAnon") * 1024,
        "pss_bytes": _kilobytes(f"/proc/{pid}/smaps_rollup", "Pss") * 1024,
    }


def peak_resident_bytes(pid):
    """The most resident memory that the process has had."""
    return _kilobytes(f"/proc/{pid}/status", "VmHWM") * 1024


def slab_bytes():
    return (_kilobytes("/proc/meminfo", "SReclaimable") + _kilobytes("/proc/meminfo", "SUnreclaim")) * 1024


def _kilobytes(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise LookupError(f"no {name} in {path}")


def sockets():
    """TCP sockets of this network namespace: (in use, in TIME_WAIT)."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        words = line.split()
        if words[0] == "TCP:":
            numbers = dict(zip(words[1::2], map(int, words[2::2])))
            return numbers["inuse"], numbers["tw"]
    raise LookupError("no TCP line in /proc/net/sockstat")


def wait_until_drained(in_use_before, patience_s=180):
    """Waits until the sockets of an earlier run are gone. They would share hash buckets and slabs with the next run's."""
    deadline = time.monotonic() + patience_s
    while True:
        in_use, waiting = sockets()
        if in_use <= in_use_before + 32 and waiting <= 500:
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{in_use} sockets in use and {waiting} in TIME_WAIT after {patience_s} s")
        time.sleep(0.5)


def busy_share(seconds=1.0):
    """How busy all cores together are, between 0 and 1."""

    busy, total = processor_ticks()
    time.sleep(seconds)
    busy_after, total_after = processor_ticks()
    return (busy_after - busy) / max(total_after - total, 1)


def processor_ticks():
    """Of all processors since the machine started: (busy, all)."""
    numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def free_ports(count):
    """Ports below the range of outgoing connections, or reserved in it: the crowd cannot take them."""
    ipv4 = Path("/proc/sys/net/ipv4")
    first_outgoing = int((ipv4 / "ip_local_port_range").read_text().split()[0])
    reserved = _ranges((ipv4 / "ip_local_reserved_ports").read_text())
    found = []
    for port in [*range(8000, first_outgoing), *(port for ports in reserved for port in ports)]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports below {first_outgoing}")


def _ranges(text):
    """`8000-8009,9000` as ranges."""
    found = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.append(range(int(first), int(last or first) + 1))
    return found

"""Measures the limits that `myriad doctor --fix` changes: how far a program gets with a low limit, and with doctor's.

Each case makes a confined environment (tests/doctor/confine.py: child processes, network namespaces, control groups). There it
asks doctor, lets a program run into the limit, sets doctor's value, and runs the program again.
"""

import dataclasses
import json
import os
import pwd
import resource
import socket
import sys
import time
from pathlib import Path

from context import ROOT, context
from settings import SYSCTL
from whole_machine import current, machine_wide

DOCTOR = ROOT / "tests" / "doctor"
PLAIN = [sys.executable, DOCTOR / "plain.py"]
# Enough for every plain program here, which holds both ends of its connections.
DESCRIPTORS = 20_000


@dataclasses.dataclass(frozen=True)
class Row:
    setting: str
    # What was counted.
    run: str
    wanted: int
    before: str
    # The count at which doctor says that the limit ends; None if doctor gives no count.
    foretold: object
    happened: int
    after: str
    # The count with doctor's limit, out of `wanted`.
    happened_after: int


def measure(myriad, out, only=(), machine=False):
    """Measures every case, or those of `only`. With `machine` also settings of the whole machine, which are restored."""
    # confine.py reads it when it is imported.
    os.environ["MYRIAD"] = str(myriad)
    sys.path.insert(0, str(DOCTOR))
    import confine

    if unknown := [name for name in only if name not in CASES]:
        sys.exit(f"There is no limit named {', '.join(unknown)}. The limits are {', '.join(CASES)}.")
    # The crowd's, and a plain program's that holds both ends.
    raise_descriptors()
    file = out / "limits.json"
    result = json.loads(file.read_text()) if file.exists() else {"rows": {}, "skipped": {}}
    for name, case in CASES.items():
        if only and name not in only:
            continue
        started = time.monotonic()
        try:
            if name in WHOLE_MACHINE and not machine:
                raise confine.Missing("a setting of the whole machine, with `--limits --machine`")
            row = case(out) if name in WHOLE_MACHINE else case()
        except (confine.Missing, OSError, RuntimeError) as failure:
            print(f"  {name}: not measured: {failure}", file=sys.stderr, flush=True)
            # Keep an earlier measurement.
            if name not in result["rows"]:
                result["skipped"][name] = str(failure)
            continue
        result["skipped"].pop(name, None)
        result["rows"][name] = dataclasses.asdict(row) | {"context": context()}
        print(f"  {name}: {told(row)}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    file.write_text(json.dumps(result, indent=1) + "\n")


def told(row):
    foretold = "" if row.foretold is None else f" ({row.foretold:,} predicted)"
    return f"{row.before}: {row.happened:,}{foretold}; {row.after}: {row.happened_after:,} of {row.wanted:,}"


def raise_descriptors():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < DESCRIPTORS:
        sys.exit(f"The hard limit on descriptors is {hard:,}, but {DESCRIPTORS:,} are needed. Raise it with ulimit -Hn.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def ask(world, setting, *flags):
    """Doctor's examination, and the value to which doctor would change the setting."""
    from myriad import examine

    found = examine(world, *flags)
    changes = [change["to"] for change in found["changes"] if change["setting"] == setting]
    if not changes:
        raise RuntimeError(f"doctor would not change {setting}")
    return found, changes[0]


def count_of(examination, name):
    from myriad import limit

    return limit(examination, name)["connections"]


def plain(world, *program):
    """The last number that a plain program prints."""
    done = world.run(*PLAIN, *program, timeout=300)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1])
    return int(done.stdout.split()[-1])


# Of a network namespace.


def in_namespaces(key, low, flags, program, others=()):
    """Doctor's examination with a low value, both values, and how far the program gets with each.

    Each run has its own namespace, because ports in TIME_WAIT and unfinished handshakes would remain.
    """
    from confine import Network

    found, values, happened = None, [low], []
    for turn in range(2):
        network = Network()
        try:
            for other, value in (*others, (key, values[turn])):
                network.set(other, value)
            if found is None:
                found, value = ask(network.world(), {"sysctl": key}, *flags)
                values.append(value)
            happened.append(plain(network.world(), *program))
        finally:
            network.close()
    return found, values, happened


def port_range():
    # A program holds both ends, within the descriptors that any user may have.
    wanted, key = 9_000, "net.ipv4.ip_local_port_range"
    found, values, happened = in_namespaces(
        key, "32768 36863", ["--role", "client", "--connections", wanted], ["ports", "8000", wanted]
    )
    foretold = count_of(found, "source ports")
    return Row(key, "connections from one address to one", wanted, values[0], foretold, happened[0], values[1], happened[1])


def reserved_ports():
    """Doctor gives no count here: either the server gets its port, or an outgoing connection has it."""
    key = "net.ipv4.ip_local_reserved_ports"
    _, values, happened = in_namespaces(
        key, "", ["--port", "40000"], ["listens", "5000", "40000"], [("net.ipv4.ip_local_port_range", "39000 40999")]
    )
    run = "servers that can listen on port 40000 while outgoing connections use all their ports"
    return Row(key, run, 1, "empty", None, happened[0], values[1], happened[1])


def accept_queue():
    wanted, key = 4_000, "net.core.somaxconn"
    found, values, happened = in_namespaces(
        key, "128", ["--program", "ordinary", "--connections", wanted], ["burst", wanted]
    )
    foretold = count_of(found, "accept queue")
    run = "clients that connect to a busy server at the same moment"
    return Row(key, run, wanted, values[0], foretold, happened[0], values[1], happened[1])


def syn_cookies():
    """Doctor's count is that of the unfinished handshakes, which block the clients that are counted here."""
    wanted, key = 1_000, "net.ipv4.tcp_syncookies"
    _, values, happened = in_namespaces(
        key, "0", ["--program", "ordinary", "--connections", "10k"], ["handshakes", "4000", wanted],
        [("net.ipv4.tcp_max_syn_backlog", "512")],
    )
    run = "clients that connect beside 4,000 unfinished handshakes"
    return Row(key, run, wanted, values[0], None, happened[0], values[1], happened[1])


# Of a process, or its control group.


def descriptors():
    from confine import low_descriptors

    wanted, low = 5_000, "1024"
    flags = ["--program", "ordinary", "--connections", wanted]
    found, value = ask(low_descriptors(int(low)), "descriptor_limit", *flags)
    happened = [clients_of_a_plain_server(low_descriptors(int(most)), wanted) for most in (low, value)]
    foretold = count_of(found, "descriptors of a process")
    return Row("RLIMIT_NOFILE", "clients of a plain server", wanted, low, foretold, happened[0], value, happened[1])


def clients_of_a_plain_server(world, wanted):
    server = world.start(*PLAIN, "descriptors", stdout=-1)
    held = []
    try:
        address = ("127.0.0.1", int(server.stdout.readline()))
        while len(held) < wanted:
            held.append(socket.create_connection(address, timeout=5))
        return wanted
    except OSError:
        # It is full, and gone.
        return int(server.stdout.readline())
    finally:
        for connection in held:
            connection.close()
        server.kill()
        server.wait()
        server.stdout.close()


def locked_memory():
    wanted, low = 12_000, str(10 * 28_672)
    found, value = ask(as_nobody(1_024, int(low)), "locked_memory", "--connections", wanted)
    happened = [clients_of_myriad(as_nobody(1_024, int(most)), wanted) for most in (low, value)]
    foretold = count_of(found, "locked memory of one user")
    run = "clients of `myriad serve` with 1,024 descriptors, not as root"
    return Row("RLIMIT_MEMLOCK", run, wanted, low, foretold, happened[0], value, happened[1])


def as_nobody(descriptors, locked_bytes=None):
    """An environment of another user without privileges."""
    from confine import Missing, World

    if os.geteuid() != 0:
        raise Missing("only root can become another user")
    user = pwd.getpwnam("nobody")

    def become():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        if locked_bytes is not None:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked_bytes, locked_bytes))
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return World(prepare=become)


def clients_of_myriad(world, wanted, crowd_world=None):
    """The number of clients that a server in this environment holds; 0 if it does not start."""
    from confine import World
    from myriad import Server, crowd

    server = Server(world, "--max-connections", wanted, "--ping-interval", "0", "--driver", "io_uring")
    try:
        if server.address is None:
            return 0
        done, events = crowd(crowd_world or World(), server.address, wanted)
    finally:
        server.stop()
    return max((event.get("connected", 0) for event in events), default=0)


def threads():
    from confine import Missing, World

    group = Path(f"/sys/fs/cgroup/pids/myriad-limits-{os.getpid()}")
    if not (group.parent / "pids.max").exists() and not (group.parent / "cgroup.procs").exists():
        raise Missing("control groups of version 1 have no controller for threads here")
    group.mkdir()
    world = World(prepare=lambda: (group / "cgroup.procs").write_text("0"))
    try:
        low, happened = "4", []
        (group / "pids.max").write_text(low)
        _, value = ask(world, "threads", "--connections", "1k")
        for most in (low, value):
            (group / "pids.max").write_text(most)
            happened.append(int(clients_of_myriad(world, 1_000) == 1_000))
        return Row("pids.max", "servers that start and hold 1,000 clients", 1, low, None, happened[0], value, happened[1])
    finally:
        group.rmdir()


def out_of_memory():
    """Two programs in 64 MiB: the one that should survive holds a third of it, the other one takes more and more."""
    from confine import World

    low = "500"
    _, value = ask(World(prepare=lambda: Path("/proc/self/oom_score_adj").write_text(low)), "out_of_memory_score")
    happened = [int(outlives(adjustment)) for adjustment in (low, value)]
    run = "programs that survive when a neighbour takes all memory of their control group"
    return Row("oom_score_adj", run, 1, low, None, happened[0], value, happened[1])


def outlives(adjustment):
    from confine import MemoryGroup, World

    group = MemoryGroup(1, 64 << 20)

    def join():
        group.join()
        Path("/proc/self/oom_score_adj").write_text(adjustment)

    holder = World(prepare=join).start(*PLAIN, "holds", 20 << 20, stdout=-1)
    try:
        holder.stdout.readline()
        group.world().run(*PLAIN, "grows", timeout=60)
        return holder.poll() is None
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        group.close()


# Settings of the whole machine. They are only raised: other programs must not run into our limits.


def raised(key, limit_name, world, wanted, program, run, out, flags=()):
    from confine import World

    path = SYSCTL + key.replace(".", "/")
    before = current(path)
    found, value = ask(world, {"sysctl": key}, "--connections", wanted, *flags)
    happened = [plain(World(), *program)]
    with machine_wide({path: value}, out):
        happened.append(plain(World(), *program))
    return Row(key, run, wanted, before, count_of(found, limit_name), happened[0], value, happened[1])


def table_ceiling(out):
    from confine import Missing, low_descriptors

    if not may_raise_hard_limits():
        raise Missing("only CAP_SYS_RESOURCE may raise a hard limit, and it is not given here")
    ceiling = int(current(SYSCTL + "fs/nr_open"))
    wanted = ceiling * 5 // 4
    return raised(
        "fs.nr_open", "descriptors of a process", low_descriptors(ceiling), wanted, ["copies", wanted],
        "descriptors of a process that raises its own limit", out, ["--program", "ordinary"],
    )


def may_raise_hard_limits():
    """CAP_SYS_RESOURCE, capabilities(7)."""
    status = Path("/proc/self/status").read_text()
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return int(mask, 16) >> 24 & 1 == 1


def open_files(out):
    wanted = int(current(SYSCTL + "fs/file-max")) * 11 // 10
    if wanted > 20_000_000:
        raise RuntimeError("it is too large here to be reached")
    return raised(
        "fs.file-max", "open files of the machine", as_nobody(DESCRIPTORS), wanted, ["as-nobody", "opens", wanted],
        "files open at once, not as root", out,
    )


def epoll_watches(out):
    wanted = int(current(SYSCTL + "fs/epoll/max_user_watches")) * 11 // 10
    return raised(
        "fs.epoll.max_user_watches", "epoll watches of one user", as_nobody(DESCRIPTORS), wanted, ["as-nobody", "watches", wanted],
        "watches of one user", out, ["--program", "ordinary"],
    )


def tracking(out):
    from confine import Missing, Network

    key = "net.netfilter.nf_conntrack_max"
    path = SYSCTL + key.replace(".", "/")
    if not Path(path).exists():
        raise Missing("nf_conntrack is not loaded")
    before = current(path)
    wanted = int(before) * 21 // 20

    def run(examine):
        network = Network()
        try:
            done = network.world().run(sys.executable, DOCTOR / "firewall.py")
            if done.returncode != 0:
                raise Missing(f"connection tracking cannot be turned on here: {done.stderr.strip()}")
            return examine(network.world()), clients_of_myriad(network.world(), wanted, network.world())
        finally:
            network.close()

    flags = ["--role", "both", "--connections", 2 * wanted]
    (found, value), happened = run(lambda world: ask(world, {"sysctl": key}, *flags))
    with machine_wide({path: value}, out):
        # Doctor has nothing to change any more.
        _, happened_after = run(lambda _: None)
    foretold = count_of(found, "connection tracking")
    return Row(key, "tracked connections over loopback", wanted, before, foretold, happened, value, happened_after)


WHOLE_MACHINE = {
    "fs.nr_open": table_ceiling,
    "fs.file-max": open_files,
    "fs.epoll.max_user_watches": epoll_watches,
    "net.netfilter.nf_conntrack_max": tracking,
}
CASES = {
    "RLIMIT_NOFILE": descriptors,
    "RLIMIT_MEMLOCK": locked_memory,
    "pids.max": threads,
    "oom_score_adj": out_of_memory,
    "net.ipv4.ip_local_port_range": port_range,
    "net.ipv4.ip_local_reserved_ports": reserved_ports,
    "net.core.somaxconn": accept_queue,
    "net.ipv4.tcp_syncookies": syn_cookies,
} | WHOLE_MACHINE

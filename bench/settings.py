"""The settings that people change for many connections, as data: what is written where, and who says so."""

from dataclasses import dataclass, field

SYSCTL = "/proc/sys/"


@dataclass(frozen=True)
class Setting:
    name: str
    # What one says of it.
    said: str
    # Sysctls of a network namespace: path below /proc/sys, and the values to try; the first that is not there already.
    sysctls: dict = field(default_factory=dict)
    # Files of the whole machine, by path, with their values; changed only when asked for, and put back.
    machine: dict = field(default_factory=dict)
    # Buckets of the connection hash of the namespace; None: it shares the machine's.
    buckets: int = None
    # Receive packet steering of the loopback: a mask of cores.
    steering: str = None


DEFAULTS = Setting("defaults", "as the machine is")

SETTINGS = [
    Setting("hash", "a larger hash of connections keeps its buckets short", buckets=4_194_304),
    Setting("somaxconn", "65535, so that no connect waits", {"net/core/somaxconn": ["65535"]}),
    Setting("somaxconn-128", "what it was before Linux 5.4", {"net/core/somaxconn": ["128"]}),
    Setting("tcp_max_syn_backlog", "262144, for storms of connects", {"net/ipv4/tcp_max_syn_backlog": ["262144"]}),
    Setting("tcp_syncookies", "0, cookies cost time", {"net/ipv4/tcp_syncookies": ["0"]}),
    Setting("ip_local_port_range", "1024 65535, for the side that connects",
            # The server's own ports must not be taken by those who connect.
            {"net/ipv4/ip_local_port_range": ["1024 65535"], "net/ipv4/ip_local_reserved_ports": ["8000-8009"]}),
    Setting("tcp_tw_reuse", "1, or 0 where it is on", {"net/ipv4/tcp_tw_reuse": ["1", "0"]}),
    Setting("tcp_rmem, tcp_wmem small", "4096 at first, so that idle sockets are small",
            {"net/ipv4/tcp_rmem": ["4096 4096 16777216"], "net/ipv4/tcp_wmem": ["4096 4096 16777216"]}),
    Setting("tcp_rmem, tcp_wmem large", "16 MB at most and much at first, for throughput",
            {"net/ipv4/tcp_rmem": ["4096 1048576 16777216"], "net/ipv4/tcp_wmem": ["4096 1048576 16777216"]}),
    Setting("tcp_congestion_control", "bbr; where it is bbr, one without pacing",
            {"net/ipv4/tcp_congestion_control": ["bbr", "cubic", "reno"]}),
    Setting("tcp_timestamps", "0, saves 12 bytes a packet", {"net/ipv4/tcp_timestamps": ["0"]}),
    Setting("tcp_slow_start_after_idle", "0, idle connections keep their window",
            {"net/ipv4/tcp_slow_start_after_idle": ["0"]}),
    Setting("tcp_autocorking", "0, small packets leave at once", {"net/ipv4/tcp_autocorking": ["0"]}),
    Setting("tcp_notsent_lowat", "16384, keeps unsent data out of the kernel",
            {"net/ipv4/tcp_notsent_lowat": ["16384"]}),
    Setting("rps", "receive packet steering to all cores", steering="all"),
    Setting("netdev_max_backlog", "30000, a longer queue before the stack",
            machine={SYSCTL + "net/core/netdev_max_backlog": "30000"}),
    Setting("busy_poll", "50, poll the device instead of waiting",
            machine={SYSCTL + "net/core/busy_poll": "50", SYSCTL + "net/core/busy_read": "50"}),
    Setting("tcp_mem", "more pages for all sockets together",
            machine={SYSCTL + "net/ipv4/tcp_mem": "2000000 4000000 8000000"}),
    Setting("file-max", "20 million open files", machine={SYSCTL + "fs/file-max": "20000000"}),
    Setting("transparent huge pages always", "fewer page table entries",
            machine={"/sys/kernel/mm/transparent_hugepage/enabled": "always"}),
    Setting("transparent huge pages never", "no memory wasted in huge pages",
            machine={"/sys/kernel/mm/transparent_hugepage/enabled": "never"}),
]

"""The settings that people change for many connections, as data: what is written where, and what it should do."""

from dataclasses import dataclass, field

SYSCTL = "/proc/sys/"


@dataclass(frozen=True)
class Setting:
    name: str
    # What it should do.
    claim: str
    # Sysctls of a network namespace: path below /proc/sys, and the values to try. The first that is not set already is used.
    sysctls: dict = field(default_factory=dict)
    # Files of the whole machine, by path, with their values; changed only when asked for, and restored.
    machine: dict = field(default_factory=dict)
    # Buckets of the namespace's hash table of connections; None: it shares the machine's.
    buckets: int = None
    # Receive packet steering of the loopback: a mask of cores.
    steering: str = None


DEFAULTS = Setting("defaults", "as the machine is")

SETTINGS = [
    Setting("hash", "a larger hash table of connections has shorter buckets", buckets=4_194_304),
    Setting("somaxconn", "65535: connects do not wait in a full accept queue", {"net/core/somaxconn": ["65535"]}),
    Setting("somaxconn-128", "the default before Linux 5.4", {"net/core/somaxconn": ["128"]}),
    Setting("tcp_max_syn_backlog", "262144: for many connects at once", {"net/ipv4/tcp_max_syn_backlog": ["262144"]}),
    Setting("tcp_syncookies", "0: SYN cookies cost time", {"net/ipv4/tcp_syncookies": ["0"]}),
    Setting("ip_local_port_range", "1024 65535: more ports for the client's side",
            # Reserved, so that no client takes the server's ports.
            {"net/ipv4/ip_local_port_range": ["1024 65535"], "net/ipv4/ip_local_reserved_ports": ["8000-8009"]}),
    Setting("tcp_tw_reuse", "1, or 0 if it is 1 already", {"net/ipv4/tcp_tw_reuse": ["1", "0"]}),
    Setting("tcp_rmem, tcp_wmem small", "4096 at first: idle sockets are small",
            {"net/ipv4/tcp_rmem": ["4096 4096 16777216"], "net/ipv4/tcp_wmem": ["4096 4096 16777216"]}),
    Setting("tcp_rmem, tcp_wmem large", "1 MiB at first, 16 MiB at most: for throughput",
            {"net/ipv4/tcp_rmem": ["4096 1048576 16777216"], "net/ipv4/tcp_wmem": ["4096 1048576 16777216"]}),
    Setting("tcp_congestion_control", "bbr, or one without pacing if it is bbr already",
            {"net/ipv4/tcp_congestion_control": ["bbr", "cubic", "reno"]}),
    Setting("tcp_timestamps", "0: saves 12 bytes a packet", {"net/ipv4/tcp_timestamps": ["0"]}),
    Setting("tcp_slow_start_after_idle", "0: idle connections keep their congestion window",
            {"net/ipv4/tcp_slow_start_after_idle": ["0"]}),
    Setting("tcp_autocorking", "0: small packets leave at once", {"net/ipv4/tcp_autocorking": ["0"]}),
    Setting("tcp_notsent_lowat", "16384: the kernel holds less unsent data",
            {"net/ipv4/tcp_notsent_lowat": ["16384"]}),
    Setting("rps", "receive packet steering to all cores", steering="all"),
    Setting("netdev_max_backlog", "30000: a longer queue of received packets",
            machine={SYSCTL + "net/core/netdev_max_backlog": "30000"}),
    Setting("busy_poll", "50: polls the network card instead of waiting",
            machine={SYSCTL + "net/core/busy_poll": "50", SYSCTL + "net/core/busy_read": "50"}),
    Setting("tcp_mem", "more pages for all sockets together",
            machine={SYSCTL + "net/ipv4/tcp_mem": "2000000 4000000 8000000"}),
    Setting("file-max", "20 million open files", machine={SYSCTL + "fs/file-max": "20000000"}),
    Setting("transparent huge pages always", "fewer page table entries",
            machine={"/sys/kernel/mm/transparent_hugepage/enabled": "always"}),
    Setting("transparent huge pages never", "no memory is wasted in huge pages",
            machine={"/sys/kernel/mm/transparent_hugepage/enabled": "never"}),
]

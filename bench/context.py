"""The machine and the commit of a measurement."""

import datetime
import os
import platform
import resource
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def context():
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    processor = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    if git("status", "--porcelain", "--untracked-files=no"):
        commit += " with uncommitted changes"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": processor,
        "memory": f"{memory_kb / (1 << 20):.1f} GiB",
        "kernel": kernel_version(platform.release()),
        "descriptors": f"{resource.getrlimit(resource.RLIMIT_NOFILE)[1]:,}",
        "commit": commit,
        "date": datetime.date.today().isoformat(),
    }


def kernel_version(release):
    """The version alone: what follows it names a distribution or a host."""
    return ".".join(release.split("-")[0].split(".")[:2])


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""

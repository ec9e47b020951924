#!/usr/bin/env python3
"""A cluster under faults: every publication is followed from its acknowledgement to each subscriber.

    tests/cluster/faults.py [--fault NAME ...] [--runs N] [--myriad PATH] [--seconds S] [--list]

Each run starts three NATS servers and four nodes (`--servers`, `--nodes`), lets clients subscribe on all nodes and publishers publish through
all of them, lets the fault happen, heals it, and waits until it is quiet. Then it compares what was acknowledged with what each
subscriber got (`ledger.py` has the rules). The last line is "N passed, N failed": one for each run.
"""

import argparse
import asyncio
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nats
from ledger import Ledger
from node import Node
from subscriber import Subscriber

ROOT = Path(__file__).resolve().parent.parent.parent
MYRIAD = os.environ.get("MYRIAD", str(ROOT / "target" / "debug" / "myriad"))
STREAM = "myriad-~"
CHANNELS = [f"room {index}" for index in range(6)]
# So many of them become quiet as soon as the fault begins: the last message of a quiet channel is the easiest one to lose.
QUIET = 3
SUBSCRIBERS = 8
PUBLISHERS = 4
# JetStream elects a leader in 4 to 9 s.
SETTLE_SECONDS = 45


class Run:
    """One cluster, one fault."""

    def __init__(self, options, folder, seed):
        self.options, self.random = options, random.Random(seed)
        self.ledger = Ledger()
        self.cluster = nats.Cluster(options.nats, folder, options.servers)
        replicas = 3 if options.servers >= 3 else 1
        self.nodes = [
            Node(options.myriad, folder, index, self.cluster.url(), replicas) for index in range(options.nodes)
        ]
        self.numbers = itertools.count(1)
        self.quiet = set()
        self.is_publishing = True

    async def go(self, fault):
        self.cluster.start()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            await asyncio.to_thread(node.wait_until_ready)
        self.subscribers = [
            Subscriber(f"s{index}", self.nodes, CHANNELS, self.ledger, index) for index in range(SUBSCRIBERS)
        ]
        listening = [asyncio.create_task(one.run()) for one in self.subscribers]
        await self.until("all are subscribed", self.are_subscribed)
        publishing = [asyncio.create_task(self.publish(index)) for index in range(PUBLISHERS)]
        await asyncio.sleep(self.options.seconds / 4)
        self.quiet = set(self.random.sample(CHANNELS, QUIET))
        await fault(self)
        await asyncio.sleep(self.options.seconds / 2)
        self.is_publishing = False
        await asyncio.gather(*publishing)
        await self.settle()
        for task in listening:
            task.cancel()
        return self.ledger.judge()

    def are_subscribed(self):
        return all(len(one.subscribed) == len(CHANNELS) for one in self.subscribers)

    async def until(self, what, ready, seconds=60):
        deadline = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"it has not happened in {seconds} s: {what}")
            await asyncio.sleep(0.05)

    async def settle(self):
        """Waits until everybody is subscribed and nothing is missing, or for long enough to be sure that it will not come."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if self.are_subscribed() and next(self.ledger.missing(), None) is None:
                # What should not come may come late.
                await asyncio.sleep(2)
                return
            await asyncio.sleep(0.2)

    async def publish(self, index):
        """One publisher: one publication after the other, through any node."""
        while self.is_publishing:
            node = self.random.choice(self.nodes)
            channel = self.random.choice([one for one in CHANNELS if one not in self.quiet])
            number = next(self.numbers)
            self.ledger.note_sent(number, channel)
            await self.publish_one(node, channel, number)

    async def publish_one(self, node, channel, number):
        try:
            answer = await asyncio.to_thread(node.call, "publish", channel=channel, data={"n": number})
        except OSError:
            # A node that is down does not answer at once.
            await asyncio.sleep(0.05)
            return
        result = answer.get("result")
        if result:
            self.ledger.note_acknowledged(number, (result["epoch"], result["offset"]))
        else:
            self.ledger.counts[f"refused: {answer['error'].get('code')}"] += 1
            await asyncio.sleep(0.1)

    def any_node(self):
        return self.random.choice(self.nodes)

    async def leader(self):
        return await asyncio.to_thread(nats.wait_for, "a leader", lambda: self.cluster.leader_of(STREAM))


async def nothing(run):
    """No fault."""
    await asyncio.sleep(2)


async def node_killed(run):
    """kill -9 of a node; it comes back after 3 s."""
    node = run.any_node()
    node.kill()
    await asyncio.sleep(3)
    node.start()
    await asyncio.to_thread(node.wait_until_ready)


async def node_frozen(run):
    """SIGSTOP of a node for 12 s."""
    node = run.any_node()
    node.freeze()
    await asyncio.sleep(12)
    node.thaw()


async def leader_killed(run):
    """kill -9 of the NATS server that leads the stream; it comes back after 8 s."""
    server = await run.leader()
    server.kill()
    await asyncio.sleep(8)
    server.start()


async def leader_frozen(run):
    """SIGSTOP of the NATS server that leads the stream for 12 s."""
    server = await run.leader()
    server.freeze()
    await asyncio.sleep(12)
    server.thaw()


async def all_nats_killed(run):
    """kill -9 of all NATS servers; they come back after 3 s."""
    for server in run.cluster.servers:
        server.kill()
    await asyncio.sleep(3)
    for server in run.cluster.servers:
        server.start()
    await asyncio.to_thread(nats.wait_for, "JetStream", run.cluster.is_ready)


async def old_copy(run):
    """kill -9 of all NATS servers, which come back with what they had some seconds before; publishers go on at once."""
    servers = run.cluster.servers

    async def restart(change):
        for server in servers:
            server.kill()
        for server in servers:
            change(server.folder, server.folder.with_suffix(".old"))
        for server in servers:
            server.start()
        await asyncio.to_thread(nats.wait_for, "JetStream", run.cluster.is_ready)

    def put_back(folder, copy):
        shutil.rmtree(folder)
        copy.rename(folder)

    await restart(shutil.copytree)
    await asyncio.sleep(3)
    await restart(put_back)


FAULTS = {
    "nothing": nothing,
    "node-killed": node_killed,
    "node-frozen": node_frozen,
    "leader-killed": leader_killed,
    "leader-frozen": leader_frozen,
    "all-nats-killed": all_nats_killed,
    "old-copy": old_copy,
}


def run_once(options, name, seed):
    """Runs a fault once. Returns whether nothing was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    run = Run(options, folder, seed)
    began = time.monotonic()
    try:
        faults = asyncio.run(run.go(FAULTS[name]))
    except Exception as error:
        faults = [f"the run failed: {error!r}"]
    finally:
        for node in run.nodes:
            node.kill()
        run.cluster.stop()
    counts = ", ".join(f"{count:,} {what}" for what, count in run.ledger.counts.items())
    verdict = f"{len(faults)} faults" if faults else "nothing lost, doubled or out of order"
    print(f"{name}, seed {seed}: {verdict} ({counts}; {time.monotonic() - began:.0f} s)", flush=True)
    for fault in faults[:10]:
        print(f"  {fault}")
    if faults:
        print(f"  logs: {folder}")
    else:
        shutil.rmtree(folder)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="default: each")
    parser.add_argument("--runs", type=int, default=1, help="of each fault")
    parser.add_argument("--seconds", type=float, default=8, help="time of publishing beside the fault's own")
    parser.add_argument("--servers", type=int, default=3, choices=[1, 3], help="NATS servers")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--myriad", default=MYRIAD)
    parser.add_argument("--list", action="store_true", help="names the faults")
    options = parser.parse_args()
    if options.list:
        for name, fault in FAULTS.items():
            print(f"{name}: {fault.__doc__}")
        return 0
    options.nats = nats.program()
    if options.nats is None:
        print("skipped: nats-server is built with Go, which is not installed\n0 passed, 0 failed")
        return 0
    passed = failed = 0
    for name in options.fault or FAULTS:
        for seed in range(options.seed, options.seed + options.runs):
            if run_once(options, name, seed):
                passed += 1
            else:
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

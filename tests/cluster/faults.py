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
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nats
import places
from ledger import Ledger
from node import Node
from places import Loopback, Namespaces
from reader import Reader
from subscriber import Subscriber

ROOT = Path(__file__).resolve().parent.parent.parent
MYRIAD = os.environ.get("MYRIAD", str(ROOT / "target" / "debug" / "myriad"))
STREAM = "myriad-~"
CHANNELS = [f"room {index}" for index in range(6)]
# So many of them become quiet as soon as the fault begins: the last message of a quiet channel is the easiest one to lose.
QUIET = 3
SUBSCRIBERS = 8
PUBLISHERS = 4
READERS = 4
INTERESTS = ["stream", "channel", "auto"]
# JetStream elects a leader in 4 to 9 s.
SETTLE_SECONDS = 45


class Run:
    """One cluster, one fault."""

    def __init__(self, options, folder, seed, fault):
        self.options, self.random = options, random.Random(seed)
        self.ledger = Ledger()
        self.folder = folder
        self.namespaces = None
        where = [Loopback] * (options.servers + options.nodes)
        if fault.needs_namespaces:
            self.namespaces = Namespaces()
            where = [self.namespaces.place() for _ in where]
        self.cluster = nats.Cluster(options.nats, folder, options.servers, where[: options.servers])
        if fault.needs_routes:
            self.cluster.relay_routes()
        replicas = 3 if options.servers >= 3 else 1
        self.nodes = [
            Node(options.myriad, folder, index, self.cluster.url(), replicas, place=place, interest=interest_of(options, index))
            for index, place in enumerate(where[options.servers :])
        ]
        if fault.needs_clocks:
            for node in self.nodes:
                node.environment = jumping_clock(folder, node.name)
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
        self.readers = [
            Reader(f"r{index}", self.nodes, CHANNELS[index % len(CHANNELS)], self.ledger, self.random) for index in range(READERS)
        ]
        listening = [asyncio.create_task(one.run()) for one in [*self.subscribers, *self.readers]]
        await self.until("all are subscribed", self.are_subscribed)
        publishing = [asyncio.create_task(self.publish(index)) for index in range(PUBLISHERS)]
        await asyncio.sleep(self.options.seconds / 4)
        self.quiet = set(self.random.sample(CHANNELS, QUIET))
        await fault.happen(self)
        await asyncio.sleep(self.options.seconds / 2)
        self.is_publishing = False
        await asyncio.gather(*publishing)
        await self.settle()
        for task in listening:
            task.cancel()
        return self.ledger.judge()

    def stop(self):
        for node in self.nodes:
            node.kill()
        self.cluster.stop()
        if self.namespaces:
            self.namespaces.remove()

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
            missing = itertools.chain(self.ledger.missing(), self.ledger.unread())
            if self.are_subscribed() and next(missing, None) is None:
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


async def node_partitioned(run):
    """A node that nobody reaches, and that reaches nobody, for 12 s."""
    await partitioned(run.any_node().place)


async def leader_partitioned(run):
    """The same of the NATS server that leads the stream."""
    await partitioned((await run.leader()).place)


async def routes_cut(run):
    """The NATS server that leads the stream is cut from the other servers for 40 s, and keeps its clients. Subscribers change nodes meanwhile."""
    server = await run.leader()
    run.cluster.routes.cut(server)
    for _ in range(20):
        await asyncio.sleep(2)
        run.random.choice(run.subscribers).leave()
    run.cluster.routes.heal(server)
    await asyncio.to_thread(nats.wait_for, "JetStream", run.cluster.is_ready)


async def partitioned(place):
    place.cut()
    await asyncio.sleep(12)
    place.heal()


async def stale_replica(run):
    """A NATS server comes back with a copy of its files from 6 s before, and is asked to lead."""
    leader = await run.leader()
    server = run.random.choice([one for one in run.cluster.servers if one is not leader])
    server.kill()
    copy = run.folder / "copy"
    await asyncio.to_thread(shutil.copytree, server.folder, copy)
    server.start()
    await asyncio.to_thread(nats.wait_for, "JetStream", run.cluster.is_ready)
    await asyncio.sleep(6)
    server.kill()
    await asyncio.to_thread(shutil.rmtree, server.folder)
    await asyncio.to_thread(shutil.move, copy, server.folder)
    server.start()
    # The other two outvote it; without the leader it has to take part in an election.
    leader.kill()
    await asyncio.sleep(8)
    leader.start()
    await asyncio.to_thread(nats.wait_for, "JetStream", run.cluster.is_ready)


async def clock_jump(run):
    """The wall clock of a node jumps an hour forward, and that of another one an hour back."""
    forward, back = run.random.sample(run.nodes, 2)
    for node, seconds in [(forward, 3_600), (back, -3_600)]:
        Path(node.environment["JUMP_FILE"]).write_text(str(seconds))
    await asyncio.sleep(6)


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


def interest_of(options, index):
    """What the node with this index hears of the broker."""
    if options.interest == "mixed":
        return INTERESTS[index % len(INTERESTS)]
    return options.interest


def jumping_clock(folder, name):
    """Variables of the environment of a program whose wall clock can jump."""
    library = folder / "clock.so"
    if not library.exists():
        source = Path(__file__).parent / "clock.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "JUMP_FILE": str(folder / f"{name}.jump")}


@dataclass
class Fault:
    happen: object
    needs_namespaces: bool = False
    needs_clocks: bool = False
    needs_routes: bool = False

    def why_not(self, options):
        """Why it cannot happen here; none if it can."""
        if self.needs_namespaces and not places.may_make_namespaces():
            return "network namespaces need root and ip(8)"
        if self.needs_clocks and shutil.which("gcc") is None:
            return "a clock that jumps is built with gcc, which is not installed"
        if self.happen is stale_replica and options.servers < 3:
            return "with one NATS server there is no replica"
        if self.needs_routes and options.servers < 3:
            return "with one NATS server there are no routes"
        return None


FAULTS = {
    "nothing": Fault(nothing),
    "node-killed": Fault(node_killed),
    "node-frozen": Fault(node_frozen),
    "leader-killed": Fault(leader_killed),
    "leader-frozen": Fault(leader_frozen),
    "all-nats-killed": Fault(all_nats_killed),
    "node-partitioned": Fault(node_partitioned, needs_namespaces=True),
    "leader-partitioned": Fault(leader_partitioned, needs_namespaces=True),
    "routes-cut": Fault(routes_cut, needs_routes=True),
    "stale-replica": Fault(stale_replica),
    "clock-jump": Fault(clock_jump, needs_clocks=True),
    "old-copy": Fault(old_copy),
}


def run_once(options, name, seed):
    """Runs a fault once. Returns whether nothing was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    fault = FAULTS[name]
    run = Run(options, folder, seed, fault)
    began = time.monotonic()
    try:
        faults = asyncio.run(run.go(fault))
    except Exception as error:
        faults = [f"the run failed: {error!r}"]
    finally:
        run.stop()
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
    parser.add_argument("--interest", choices=[*INTERESTS, "mixed"], default="stream", help="what nodes hear; mixed: each of these in turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--myriad", default=MYRIAD)
    parser.add_argument("--list", action="store_true", help="names the faults")
    options = parser.parse_args()
    if options.list:
        for name, fault in FAULTS.items():
            print(f"{name}: {fault.happen.__doc__}")
        return 0
    options.nats = nats.program()
    if options.nats is None:
        print("skipped: nats-server is built with Go, which is not installed\n0 passed, 0 failed")
        return 0
    passed = failed = 0
    for name in options.fault or FAULTS:
        why_not = FAULTS[name].why_not(options)
        if why_not:
            print(f"{name}: skipped: {why_not}")
            continue
        for seed in range(options.seed, options.seed + options.runs):
            if run_once(options, name, seed):
                passed += 1
            else:
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

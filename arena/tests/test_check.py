"""The checker passes a server that keeps the contract, and names each way of breaking it."""

import asyncio
import ssl
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ARENA = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ARENA), str(ARENA / "tests")]

import check  # noqa: E402
from contestants import Pair  # noqa: E402
from reference import Reference, secure  # noqa: E402

CONNECTIONS = 9


def outcome(mode="push", push_every_ms=0, fault="", only=None, processes=1, deviations=(), server_tls=None, client_tls=None):
    """What the checker says of a reference server: (the checks that passed, the breach or None)."""

    async def run():
        references = [Reference(mode == "echo", fault) for _ in range(processes)]
        servers = [await reference.serve(0, push_every_ms, server_tls) for reference in references]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        checks = [
            entry
            for entry in check.checks_for(check.FEATURES, mode, push_every_ms, deviations, bool(client_tls))
            if only is None or entry[0] in ("upgrade", only)
        ]
        passed = []
        try:
            crowd = check.Crowd(ports, deviations=deviations, context=client_tls)
            await check.check(crowd, CONNECTIONS, checks, lambda name, _: passed.append(name))
        except check.Broken as broken:
            return passed, str(broken)
        finally:
            for server in servers:
                server.close()
        return passed, None

    return asyncio.run(run())


class KeptTest(unittest.TestCase):
    def test_push(self):
        wanted = ["upgrade", "ping", "push", "burst", "silence", "disconnects", "request", "limits"]
        self.assertEqual(outcome(), (wanted, None))

    def test_two_processes(self):
        self.assertIsNone(outcome(processes=2)[1])

    def test_echo_between_ticks(self):
        wanted = ["upgrade", "ping", "timer", "echo", "request", "limits"]
        self.assertEqual(outcome("echo", push_every_ms=50), (wanted, None))

    def test_a_known_deviation_is_not_held_against_it(self):
        self.assertEqual(outcome(fault="compresses", only="upgrade", deviations=("compression",)), (["upgrade"], None))
        passed, breach = outcome(fault="talks back", deviations=("silence", "limits"))
        self.assertEqual((passed, breach), (["upgrade", "ping", "push", "burst", "disconnects", "request"], None))

    def test_nobody_there(self):
        crowd = check.Crowd([1])
        with self.assertRaisesRegex(check.Broken, "upgrade: no WebSocket on port 1"):
            asyncio.run(check.check(crowd, 1, [("upgrade", check.check_upgrade)], None))


class TlsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pair = Pair.make(folder.name)
        self.server, self.client = secure(pair.certificate, pair.key), pair.context()

    def outcome(self, **options):
        return outcome(server_tls=self.server, client_tls=self.client, **options)

    def test_everything_goes_over_tls(self):
        wanted = ["upgrade", "tls", "ping", "push", "burst", "silence", "disconnects", "request", "limits"]
        self.assertEqual(self.outcome(), (wanted, None))

    def test_an_older_version(self):
        self.server.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assertEqual(self.outcome(only="tls"), (["upgrade"], "tls: connections speak TLSv1.2, not TLSv1.3"))

    def test_a_certificate_of_somebody_else(self):
        self.client = ssl.create_default_context()
        self.assertRegex(self.outcome(only="tls")[1], "^upgrade: .*certificate verify failed")

    def test_a_server_without_tls(self):
        _, breach = outcome(client_tls=self.client, only="tls")
        self.assertRegex(breach, "^upgrade: ")


class PatienceTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_message_does_not_outrun_a_deadline(self):
        arrival = asyncio.get_running_loop().create_future()
        socket = mock.Mock(recv=lambda: arrival)
        waiting = asyncio.create_task(check.next_message(socket))
        await asyncio.sleep(0)
        arrival.set_result("tick 1")
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting


class BrokenTest(unittest.TestCase):
    """Each fault is found by the check that is there for it, in its words."""

    def expect(self, words, fault, only, **options):
        _, breach = outcome(fault=fault, only=only, **options)
        self.assertRegex(breach or "kept", f"^{only}: .*{words}")

    def impatient(self):
        # These faults show only in what never comes.
        patched = mock.patch.object(check, "PATIENCE_S", 2)
        patched.start()
        self.addCleanup(patched.stop)

    def test_altered_broadcast(self):
        self.expect("arrived as text '!'", "alters broadcasts", "push")

    def test_binary_broadcast(self):
        self.expect("arrived as binary", "sends binary", "push")

    def test_broadcast_twice(self):
        self.expect("arrived as text 'x'", "says it twice", "push")

    def test_burst_twice(self):
        self.expect("50 broadcasts in a row arrived as", "says it twice", "burst")

    def test_count_of_a_broadcast(self):
        self.expect("answered with 8 connections, 9 are open", "reports fewer", "push")

    def test_lost_broadcast(self):
        self.impatient()
        self.expect("got nothing within 2 s", "leaves one out", "push")

    def test_stale_count(self):
        self.impatient()
        self.expect("says 6 connections 2 s after there were 3", "forgets no reset", "disconnects")

    def test_count_that_is_no_number(self):
        self.expect("'0' connections|which is no number", "counts in words", "upgrade")

    def test_compression(self):
        self.expect("permessage-deflate", "compresses", "upgrade")

    def test_unknown_path(self):
        self.expect("answered with 200, not 404", "finds everything", "upgrade")

    def test_answer_in_push_mode(self):
        self.expect("arrived as text 'does anybody listen", "talks back", "silence")

    def test_echo_of_another_kind(self):
        self.expect("binary .* was echoed as text", "echoes in another kind", "echo", mode="echo")

    def test_echo_that_never_comes(self):
        self.impatient()
        self.expect("text 'x' .* was not echoed within 2 s", "swallows echoes", "echo", mode="echo")

    def test_echo_that_never_comes_among_ticks(self):
        self.impatient()
        self.expect(
            "text 'x' .* was not echoed within 2 s", "swallows echoes", "echo", mode="echo", push_every_ms=50
        )

    def test_missing_ticks(self):
        # A client on a busy machine comes late, and the first ticks go without it.
        self.expect("arrived as.*tick", "skips ticks", "timer", push_every_ms=20)

    def test_altered_request(self):
        self.expect("answered with 200 b'FIRST'", "alters requests", "request")

    def test_request_without_keep_alive(self):
        self.expect("did not keep|no answer", "hangs up", "request")

    def test_long_message(self):
        self.impatient()
        self.expect("did not end its connection", "takes any message", "limits")

    def test_long_message_echoed(self):
        self.expect("262144 bytes was taken", "takes any message", "limits", mode="echo")

    def test_long_body(self):
        self.expect("answered with 200, not 413", "takes any body", "limits")


if __name__ == "__main__":
    unittest.main()

"""The client of `ask.py` against a server that sends what the tests say: a wrong answer must not pass as a fast one."""

import contextlib
import io
import json
import socket
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest import mock

import ask

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def frame(text, first=ask.TEXT_FRAME):
    length = len(text)
    if length < 126:
        return bytes([first, length]) + text
    if length < 1 << 16:
        return bytes([first, 126]) + length.to_bytes(2, "big") + text
    return bytes([first, 127]) + length.to_bytes(8, "big") + text


def read_command(source):
    """The text of a client's frame. Fails where it is not masked."""
    first, length = source.read(2)
    assert first == ask.TEXT_FRAME and length & 0x80
    length &= 0x7F
    length = int.from_bytes(source.read(2), "big") if length == 126 else length
    key = source.read(4)
    return bytes(byte ^ key[place % 4] for place, byte in enumerate(source.read(length)))


@contextlib.contextmanager
def server(answer, piece=1 << 20):
    """Upgrades one client and sends it `answer(command)` for each command, so many bytes at a time. Yields its address and
    what it heard."""
    heard, failures = [], []

    def serve():
        peer, _ = listener.accept()
        peer.settimeout(10)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer, peer.makefile("rb") as source:
            while source.readline().strip():
                pass
            peer.sendall(UPGRADED)
            try:
                while True:
                    heard.append(read_command(source))
                    data = answer(heard[-1])
                    for start in range(0, len(data), piece):
                        peer.sendall(data[start:start + piece])
            except (ValueError, OSError):
                pass  # The client has gone.
            except AssertionError as failure:
                failures.append(failure)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join()
    assert not failures, failures


def replies(result, before=b""):
    """Answers each command with this result. `before` goes ahead of each answer but the one to `connect`."""

    def answer(text):
        if text == b"{}":
            return b""
        command = json.loads(text)
        method = next(key for key in command if key != "id")
        if method == "connect":
            return frame(b'{"id":%d,"connect":{}}' % command["id"])
        body = json.dumps({"id": command["id"], method: result}, separators=(",", ":"))
        return before + frame(body.encode())

    return answer


def history(numbers, newest):
    return {"publications": [{"offset": 100 + n, "data": {"number": n}} for n in numbers], "offset": newest, "epoch": "e"}


def asked(question, result, count, requests=3, **more):
    """Asks such a server, and returns the figures and what it heard."""
    with server(replies(result, more.pop("before", b"")), **more) as (origin, heard):
        client = ask.Client(origin)
        try:
            return ask.measure(client, question, "room", count, requests, 2), heard
        finally:
            client.close()


class ClientTest(unittest.TestCase):
    def test_it_asks_what_it_says_and_counts_what_it_measured(self):
        figures, heard = asked("history", history(range(100), 199), 100)
        self.assertEqual(json.loads(heard[1]), {"id": 2, "history": {"channel": "room", "limit": 100}})
        self.assertEqual((len(heard), figures["requests"], figures["warm_up"], figures["checked"]), (6, 3, 2, 1))
        times = figures["round_trip_ms"]
        self.assertTrue(0 < times["p50"] <= times["p90"] <= times["p99"] <= times["max"])

    def test_answers_of_every_length_are_read_whole(self):
        # Lengths of one, of two and of eight bytes.
        for names in (1, 3, 400):
            members = {f"{number:0200}": {} for number in range(names)} if names > 1 else {"a": {}}
            figures, _ = asked("members", {"presence": members}, names)
            self.assertGreater(figures["answer_bytes"], 200 * (names - 1))

    def test_answers_in_single_bytes_are_read_whole(self):
        self.assertEqual(asked("stats", {"num_clients": 7}, 7, piece=1)[0]["requests"], 3)

    def test_pings_are_answered_and_are_no_answers(self):
        _, heard = asked("stats", {"num_clients": 7}, 7, before=frame(b"{}"))
        self.assertEqual(heard.count(b"{}"), 5)

    def test_what_is_no_answer_fails(self):
        def other_id(text):
            return replies({"num_clients": 7})(json.dumps(json.loads(text) | {"id": 1}).encode())

        def an_error(text):
            command = json.loads(text)
            good = replies({})(text)
            return good if "connect" in command else frame(b'{"id":%d,"error":{"code":108}}' % command["id"])

        def in_fragments(text):
            return b"\x01" + replies({})(text)[1:]

        def cut(text):
            raise OSError

        for answer in (other_id, an_error, in_fragments, cut):
            with self.subTest(answer.__name__), server(answer) as (origin, _):
                with self.assertRaises(ask.WrongAnswer):
                    client = ask.Client(origin)
                    try:
                        ask.measure(client, "stats", "room", 7, 1, 0)
                    finally:
                        client.close()


class CheckTest(unittest.TestCase):
    def refused(self, question, result, count):
        with self.assertRaises(ask.WrongAnswer):
            asked(question, result, count)

    def test_history_is_whole_and_in_order(self):
        self.refused("history", history(range(99), 198), 100)
        self.refused("history", history([1, 0, *range(2, 100)], 199), 100)
        # The newest one is not among them.
        self.refused("history", history(range(100), 200), 100)
        self.refused("history", {"offset": 199}, 100)

    def test_a_page_of_members_is_full_or_the_last(self):
        page = {f"client-{number}": {} for number in range(1_000)}
        self.assertEqual(asked("members", {"presence": page, "cursor": "c"}, 1_001)[0]["count"], 1_001)
        self.assertEqual(asked("members", {"presence": page}, 1_000)[0]["count"], 1_000)
        self.refused("members", {"presence": page}, 1_001)
        self.refused("members", {"presence": page, "cursor": "c"}, 1_000)
        self.refused("members", {"presence": page}, 999)
        self.refused("members", {}, 5)

    def test_the_number_of_members_is_right(self):
        self.refused("stats", {"num_clients": 6}, 7)
        self.refused("stats", {}, 7)

    def test_quantiles_are_times_that_were_measured(self):
        figures = ask.quantiles([float(number) for number in range(200, 0, -1)])
        self.assertEqual((figures["p50"], figures["p90"], figures["p99"], figures["max"]), (100, 180, 198, 200))
        self.assertEqual(ask.quantiles([3.0]), {"mean": 3, "p50": 3, "p90": 3, "p99": 3, "max": 3})

    def test_a_masked_text_is_the_text(self):
        for length in (1, 5, 125, 126, 4_000):
            text = bytes(number % 251 for number in range(length))
            self.assertEqual(read_command(io.BytesIO(ask.masked(text))), text)


class MainTest(unittest.TestCase):
    def said(self, question, answer):
        """What `ask.py` says about a server that answers all but `connect` so."""

        def malformed(text):
            return replies({})(text) if b"connect" in text else frame(answer % json.loads(text)["id"])

        with server(malformed) as (origin, _):
            words = ["ask.py", question, origin, "room", "--requests", "1"]
            with mock.patch.object(sys, "argv", words), self.assertRaises(SystemExit) as ended:
                ask.main()
        return ended.exception.code

    def test_a_malformed_answer_is_named(self):
        for question, answer in (
            ("history", b'{"id":%d,"history":{'),
            ("history", b'{"id":%d,"history":[]}'),
            ("history", b'{"id":%d,"history":{}}'),
            ("history", b'{"id":%d,"history":{"publications":[{}],"offset":1}}'),
            ("history", b'{"id":%d,"history":{"publications":7,"offset":1}}'),
            ("history", b'{"id":%d,"history":{"offset":"\xff"}}'),
            ("members", b'{"id":%d,"presence":{"presence":7}}'),
            ("members", b'{"id":%d,"presence":null}'),
            ("stats", b'{"id":%d,"presence_stats":7}'),
        ):
            with self.subTest(answer=answer):
                said = self.said(question, answer)
                self.assertTrue(said.startswith(f"{question} room: an answer cannot be read ("), said)
                # The first command is `connect`.
                self.assertTrue(said.endswith(f": {answer % 2!r}"), said)


class FillTest(unittest.TestCase):
    def positions(self, found):
        """The position that `fill` gives for a server whose publications get these."""
        bodies, left = [], list(found)

        class Api(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps({"result": left.pop(0)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        with HTTPServer(("127.0.0.1", 0), Api) as api:
            thread = threading.Thread(target=api.serve_forever, args=[0.01])
            thread.start()
            try:
                return ask.fill(f"127.0.0.1:{api.server_port}", "room", len(found)), bodies
            finally:
                api.shutdown()
                thread.join()

    def test_it_publishes_numbers_and_gives_the_last_position(self):
        position, bodies = self.positions([{"offset": 5 + number, "epoch": "e"} for number in range(3)])
        self.assertEqual(position, {"epoch": "e", "offset": 7})
        self.assertEqual([(body["channel"], body["data"]["number"]) for body in bodies], [("room", n) for n in range(3)])

    def test_positions_with_a_gap_or_of_two_epochs_are_refused(self):
        for last in ({"offset": 3, "epoch": "e"}, {"offset": 2, "epoch": "f"}):
            with self.assertRaises(ask.WrongAnswer):
                self.positions([{"offset": 1, "epoch": "e"}, last])

    def test_a_malformed_position_is_refused(self):
        for position in ({}, [], {"offset": "1", "epoch": "e"}, {"offset": 1}):
            with self.assertRaisesRegex(ask.WrongAnswer, "cannot be read"):
                self.positions([position])


if __name__ == "__main__":
    unittest.main()

"""The same cases at Centrifugo and at Myriad: what differs is what docs/differences.md lists, no more and no less."""

import json

import pytest

import cases
import drive
import listed
from compare import differences, normalised

UNI_TRANSPORTS = ("uni_websocket", "uni_sse", "uni_http_stream")
# Methods of the API that tell of all clients. A server learns late that the client of an earlier case has gone.
OF_ALL_CLIENTS = {"info", "channels"}


class Seen:
    """Which listed differences the cases have shown."""

    def __init__(self, rows):
        self.rows, self.shown, self.played = rows, set(), set()

    def judge(self, case, original, ours):
        """Fails if the two answers differ in something that is not listed."""
        self.played.add(case)
        unlisted = []
        for difference in differences(normalised(original), normalised(ours)):
            rows = [row for row in self.rows if row.covers(case, difference)]
            self.shown.update(rows)
            if not rows:
                unlisted.append("%s: %s -> %s" % difference)
        assert not unlisted, f"{case}:\n" + "\n".join(unlisted) + f"\n{json.dumps(original)}\n{json.dumps(ours)}"


def every():
    """All cases: a name, which pair of servers it is for, and what plays it at one server."""

    def commands(table, transports, pair="open"):
        for name, steps in table.items():
            for transport in transports:
                yield f"{name} [{transport}]", pair, lambda server, names, steps=steps, transport=transport: drive.play(
                    server, steps, transport, names
                )

    def uni(table, pair="open"):
        for name, (connect, steps) in table.items():
            for transport in UNI_TRANSPORTS:
                yield f"{name} [{transport}]", pair, lambda server, names, connect=connect, steps=steps, transport=transport: (
                    drive.play_uni(server, connect, steps, transport, names)
                )

    def api():
        for name, case in cases.API.items():
            pair = "idle" if case[0] in OF_ALL_CLIENTS else "open"
            yield name, pair, lambda server, names, case=case: drive.play_api(server, *case, names)

    yield from commands(cases.COMMANDS, drive.OPENERS)
    yield from commands(cases.RAW, ["json"])
    yield from commands(cases.STRICT, ["json", "http_stream"], pair="strict")
    yield from uni(cases.UNI)
    yield from uni(cases.UNI_STRICT, pair="strict")
    yield from api()


EVERY = list(every())


@pytest.mark.parametrize("number", range(len(EVERY)), ids=[name for name, *_ in EVERY])
def test_case(number, start, seen):
    name, pair, play = EVERY[number]
    # Nobody has used these names before, at either server.
    seen.judge(name, *[play(server, f"t{number}") for server in start(pair)])


def test_that_each_listed_difference_is_still_there(start, seen):
    if len(seen.played) < len(EVERY):
        pytest.skip("only some of the cases have run")
    gone = [f"{row.name}: {row.cases}, {row.where}" for row in seen.rows if row not in seen.shown]
    assert not gone, f"listed in {listed.PAGE.name}, and no longer so:\n" + "\n".join(gone)

"""Reads the cases of tests/hostile, whose README.md says how they are written."""

import re
from dataclasses import dataclass, field

from proxy import ROOT

ESCAPES = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|\{(.*?)\*(\d+)\}|(.))", re.S)


@dataclass
class Request:
    """What two readers of a request must agree on."""

    method: str
    target: str
    body: bytes


@dataclass
class Case:
    name: str
    sent: bytes = b""
    ends: list = field(default_factory=list)
    # What comes behind the requests that are accepted: "open", "closed", "partial" or "refused".
    last: str = "partial"

    @property
    def requests(self):
        """The requests that Myriad accepts."""
        return [read_request(self.sent[start:end]) for start, end in zip([0, *self.ends], self.ends)]


def unescaped(text):
    sent, at = b"", 0
    for found in ESCAPE.finditer(text):
        byte, piece, count, letter = found.groups()
        sent += text[at : found.start()].encode()
        at = found.end()
        if byte:
            sent += bytes([int(byte, 16)])
        elif count:
            sent += unescaped(piece) * int(count)
        else:
            sent += ESCAPES[letter]
    return sent + text[at:].encode()


def read_all():
    cases = []
    for file in sorted((ROOT / "tests" / "hostile").glob("*.cases")):
        for line in file.read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word == "case":
                cases.append(Case(rest))
            elif word == ">":
                cases[-1].sent += unescaped(rest)
                if cases[-1].last == "open":
                    cases[-1].last = "partial"
            elif word in ("end", "close"):
                cases[-1].ends.append(len(cases[-1].sent))
                cases[-1].last = "open" if word == "end" else "closed"
            elif word == "refused":
                cases[-1].last = "refused"
    assert len(cases) >= 200
    return cases


def read_request(sent):
    """A request that is written as the RFCs say; the bytes are exactly one."""
    head, _, body = sent.lstrip(b"\r\n").partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = line.split(" ")
    if "chunked" in [value.strip().lower() for name, value in headers_of(lines) if name == "transfer-encoding"]:
        body, _ = joined(body)
    return Request(method, target, body)


def headers_of(lines):
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower(), value


def joined(chunks):
    """The data of a body in chunks, and what follows the size of the last one."""
    data = b""
    while True:
        line, _, chunks = chunks.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            return data, chunks
        data, chunks = data + chunks[:size], chunks[size + 2 :]

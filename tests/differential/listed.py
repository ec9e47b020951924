"""The differences that the documentation lists, each with its reason."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "differences.md"
HEAD = "| id | cases | where | Centrifugo | Myriad | why |"


@dataclass(frozen=True)
class Difference:
    name: str
    cases: str
    where: str
    original: str
    ours: str

    def covers(self, case, difference):
        told = (case, *difference)
        return all(map(matches, (self.cases, self.where, self.original, self.ours), told))


def matches(pattern, text):
    """`*` is any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.S) is not None


def listed(text=None):
    """The rows of the page's tables. Several cases of a row, with `; ` between them, are a row each: none of them may be out of date."""
    found, inside = [], False
    for line in (text or PAGE.read_text()).splitlines():
        if line == HEAD:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            name, *cells, why = [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
            if len(cells) != 4 or not why.strip():
                raise ValueError(f"a row needs six cells, and a reason: {line}")
            cases, *others = cells
            found += [Difference(name, one, *others) for one in cases.split("; ")]
    return found

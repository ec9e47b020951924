"""Reads the figures of an earlier docs/benchmarks.md, so that measuring one scenario keeps the others' figures."""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Earlier:
    # By scenario: its whole section, and where it was measured.
    sections: dict = field(default_factory=dict)
    places: dict = field(default_factory=dict)
    # By (title, target): the line. Some titles only say "the same", of the one above; no two of those have one target.
    targets: dict = field(default_factory=dict)

    @classmethod
    def read(cls, text):
        head, *sections = re.split(r"^## ", text, flags=re.M)
        found = {section.split("\n", 1)[0]: f"## {section}" for section in sections}
        targets = _targets(found.pop("Targets", ""))
        return cls(found, _places(head, list(found)), targets)


def _places(head, scenarios):
    """Lines `- PLACE: scenario, scenario`; or `- PLACE` alone, where everything was measured."""
    places = {}
    for line in re.findall(r"^- (.*)$", head, re.M):
        place, _, names = line.rpartition(": ")
        named = names.split(", ")
        if not place or not set(named) <= set(scenarios):
            place, named = line, scenarios
        places.update(dict.fromkeys(named, place))
    return places


def _targets(section):
    targets = {}
    for line in re.findall(r"^\| (?!\||---).*$", section, re.M):
        title, target, *_ = [cell.strip() for cell in line.strip("|").split(" | ")]
        targets[title, target] = line
    return targets

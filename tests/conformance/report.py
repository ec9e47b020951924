"""Reads the suite's JSON report."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# Every case of the suite in the version that requirements.txt names.
CASES_ALL = 517
GOOD = {"OK", "INFORMATIONAL"}


@dataclass(frozen=True)
class Case:
    name: str
    # OK, NON-STRICT, INFORMATIONAL, UNIMPLEMENTED or FAILED.
    behavior: str
    # How the connection ended: OK, INFORMATIONAL, UNCLEAN, WRONG CODE, FAILED or FAILED BY CLIENT.
    ending: str
    report: Path

    @property
    def passed(self):
        return self.behavior in GOOD and self.ending in GOOD

    @property
    def order(self):
        return [int(part) for part in self.name.split(".")]

    def explain(self):
        """The case, the expected result, and the result."""
        try:
            details = json.loads(self.report.read_text(errors="replace"))
        except (OSError, ValueError) as error:
            details = {"result": f"no report: {error}"}
        lines = [f"{self.name}: {self.behavior}, ended {self.ending}"]
        for key, label in [
            ("description", "tried"),
            ("expectation", "expected"),
            ("result", "got"),
            ("resultClose", "end"),
            ("remoteCloseReason", "the server's reason"),
        ]:
            if details.get(key):
                lines.append(f"    {label}: {' '.join(str(details[key]).split())}")
        return "\n".join(lines)


def read(directory):
    """The cases of the one server in a report directory, in their order."""
    try:
        index = json.loads((directory / "index.json").read_text())
    except (OSError, ValueError):
        return []
    cases = [
        Case(name, found["behavior"], found["behaviorClose"], directory / found["reportfile"])
        for agent in index.values()
        for name, found in agent.items()
    ]
    return sorted(cases, key=lambda case: case.order)


def summary(cases):
    """`514 OK, 3 INFORMATIONAL; all connections ended OK`."""
    def counted(values):
        return ", ".join(f"{count} {value}" for value, count in sorted(Counter(values).items(), key=lambda item: -item[1]))

    if not cases:
        return "no case ran"
    return f"{counted(case.behavior for case in cases)}; closes: {counted(case.ending for case in cases)}"

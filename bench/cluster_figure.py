"""A figure of a cluster, as a line and for the file of results."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured. `asked` is the smallest and the largest value that is good enough; None is no limit."""

    what: str
    value: float
    unit: str
    asked: tuple = (None, None)

    def holds(self):
        """Whether it is as it was asked for. None if nothing was."""
        least, most = self.asked
        if least is None and most is None:
            return None
        return (least is None or self.value >= least) and (most is None or self.value <= most)

    def line(self):
        """`what  value unit  (asked: ...)`."""
        words = f"{self.what}  {number(self.value)} {self.unit}".rstrip()
        if self.holds() is None:
            return words
        verdict = "" if self.holds() else "; MISSED"
        return f"{words}  (asked: {self.limits()}{verdict})"

    def limits(self):
        least, most = self.asked
        if least is None:
            return f"at most {most:,}"
        if most is None:
            return f"at least {least:,}"
        return f"{least:,} to {most:,}" if least != most else f"{least:,}"

    def as_json(self):
        least, most = self.asked
        return {
            "what": self.what, "value": self.value, "unit": self.unit, "asked_least": least, "asked_most": most,
            "holds": self.holds(),
        }


def number(value):
    """Counts as they are, other numbers with three digits or more."""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3f}"

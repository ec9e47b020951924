"""Numbers on the command line, and sizes as every command shows them."""

import argparse
import re


def count(text):
    """A count such as 250, 50k or 1m.

    # Errors
    `ArgumentTypeError`, which says what to write.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([km]?)", text.lower())
    value = round(float(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]]) if found else 0
    if not value:
        raise argparse.ArgumentTypeError(f"{text}: write a count such as 250, 50k or 1m")
    return value


def size(value):
    """Bytes with a binary prefix and three significant digits: `131 B`, `7.91 KiB`, `16.0 GiB`."""
    for name, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        # From here on the smaller unit would be rounded to 1,024.
        if value >= step - step / 2048:
            number = value / step
            decimals = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
            return f"{number:,.{decimals}f} {name}"
    return f"{value:,.0f} B"

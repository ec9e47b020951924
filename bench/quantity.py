"""Numbers on the command line."""

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

#!/usr/bin/env python3
"""Checks by deny.toml that the licences and sources of all dependencies allow shipping the program.

cargo-deny does this and looks up advisories besides, but takes minutes to install; this is what every run of the tests
checks, with nothing installed. One line for each crate that is not allowed; the exit code is 1 if there is one.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TOKEN = re.compile(r"\(|\)|[^\s()]+")


def is_allowed(expression, allowed):
    """Evaluates an SPDX expression: AND binds closer than OR, WITH belongs to the licence before it. A slash is how
    old manifests write OR."""
    tokens = TOKEN.findall(expression.replace("/", " OR "))
    value, rest = read_or(tokens, allowed)
    if rest:
        raise ValueError(f"{expression}: {' '.join(rest)} is left over")
    return value


def read_or(tokens, allowed):
    value, tokens = read_and(tokens, allowed)
    while tokens and tokens[0] == "OR":
        other, tokens = read_and(tokens[1:], allowed)
        value = value or other
    return value, tokens


def read_and(tokens, allowed):
    value, tokens = read_one(tokens, allowed)
    while tokens and tokens[0] == "AND":
        other, tokens = read_one(tokens[1:], allowed)
        value = value and other
    return value, tokens


def read_one(tokens, allowed):
    if not tokens:
        raise ValueError("a licence is missing")
    if tokens[0] == "(":
        value, tokens = read_or(tokens[1:], allowed)
        if not tokens or tokens[0] != ")":
            raise ValueError("a parenthesis is not closed")
        return value, tokens[1:]
    name, tokens = tokens[0], tokens[1:]
    if tokens and tokens[0] == "WITH":
        name, tokens = " ".join([name, *tokens[:2]]), tokens[2:]
    return name in allowed, tokens


def packages(targets):
    """Every crate that a build for one of the targets uses, by its id."""
    found = {}
    for target in targets:
        command = [CARGO, "metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform", target]
        metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
        used = {node["id"] for node in metadata["resolve"]["nodes"]}
        found |= {package["id"]: package for package in metadata["packages"] if package["id"] in used}
    return found.values()


def faults(package, allowed):
    name = f"{package['name']} {package['version']}"
    source = package["source"]
    if source and not source.startswith("registry+"):
        yield f"{name}: comes from {source}; only a registry is allowed"
    if not package["license"]:
        yield f"{name}: names no licence; read what it ships and decide in deny.toml"
    elif not is_allowed(package["license"], allowed):
        yield f"{name}: {package['license']} is not in deny.toml; allow it there, or do without the crate"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = set(rules["licenses"]["allow"])
    checked = list(packages(rules["graph"]["targets"]))
    found = sorted(fault for package in checked for fault in faults(package, allowed))
    print("\n".join([*found, f"{len(checked)} crates, {len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

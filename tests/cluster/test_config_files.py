"""The programs that read the config files of a cluster accept them: those of deploy/, and those that docs/cluster.md shows."""

import os
import re
import subprocess
import textwrap

import nats
import pytest
from faults import MYRIAD

DEPLOY = nats.ROOT / "deploy"
PAGE = (nats.ROOT / "docs" / "cluster.md").read_text()
# Of a server without what follows from its region.
SERVER = (DEPLOY / "nats.conf").read_text()


def check(*command, **variables):
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def chart():
    """What a node of the chart has in its file, but for what the chart writes from single values."""
    values = (DEPLOY / "helm" / "myriad" / "values.yaml").read_text()
    return textwrap.dedent(re.search(r"^config: \|\n((?:  .*\n|\n)+)", values, re.M)[1])


@pytest.mark.parametrize("config", [(DEPLOY / "cluster.toml").read_text(), chart()], ids=["compose", "chart"])
def test_nodes_accept_their_file(config, tmp_path):
    file = tmp_path / "myriad.toml"
    file.write_text(config)
    secrets = {"MYRIAD_API_KEY": "k" * 32, "MYRIAD_CLIENT_TOKEN_HMAC_SECRET_KEY": "s" * 32}
    assert check(MYRIAD, "config", "check", "--env", file, **secrets) == (0, "")


def region_files():
    """The files of docs/cluster.md: of the first region and of the second one, with leaf nodes and as a supercluster."""
    first, second, gateway = re.findall(r"^```text\n(.*?)^```", PAGE[PAGE.index("\n## Regions") :], re.M | re.S)
    without_jetstream = re.sub(r"^jetstream \{.*?^\}\n", "", SERVER, flags=re.M | re.S)
    for cluster in "ab":
        server = (SERVER if cluster == "a" else without_jetstream).replace("name: myriad", f"name: {cluster}")
        yield f"gateway {cluster}", server + gateway.replace("    name: a\n", f"    name: {cluster}\n")
    yield "hub", without_jetstream + first
    yield "leaf", second


@pytest.mark.parametrize("config", [("compose", SERVER), *region_files()], ids=lambda config: config[0])
def test_nats_accepts_its_file(config, tmp_path):
    program = nats.program()
    if program is None:
        pytest.skip("nats-server is built with Go, which is not installed")
    file = tmp_path / "nats.conf"
    file.write_text(config[1])
    code, said = check(program, "-t", "-c", file)
    assert code == 0 and "is valid" in said, said

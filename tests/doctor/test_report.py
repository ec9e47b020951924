"""The report on this machine: its JSON form, its exit codes, its behaviour on terminals and closed pipes."""

import json
import os
import pty
import subprocess

import jsonschema
import pytest

from confine import MYRIAD, World, without_io_uring
from myriad import HERE, examine

SCHEMA = json.loads((HERE.parent.parent / "docs" / "doctor.schema.json").read_text())
MACHINES = HERE.parent.parent / "crates" / "doctor" / "tests" / "machines"


def check(examination):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(examination, SCHEMA, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("role", ["server", "client", "both", "proxy"])
def test_json_is_what_the_schema_says(role):
    check(examine(World(), "--role", role, "--connections", "1k"))


@pytest.mark.parametrize("machine", sorted(path.name for path in MACHINES.iterdir()))
def test_json_of_written_machines_is_what_the_schema_says(machine):
    check(examine(World(), "--root", MACHINES / machine, "--role", "proxy", "--connections", "10m"))


def test_the_schema_notices_a_field_it_does_not_know():
    examination = examine(World(), "--connections", "1k")
    examination["limits"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        check(examination)


def test_io_uring_is_tried():
    assert "refused" in examine(without_io_uring())["machine"]["io_uring"]


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--connections", "0"], "at least 1"),
        (["--connections", "many"], "many"),
        (["--role", "proxy", "--program", "myriad"], "Myriad is no proxy"),
        (["--processes", "4"], "--program ordinary"),
        (["--role", "server", "--sources", "4"], "--role client"),
        (["--port", "0"], "0"),
        (["--fix", "--undo"], "cannot be used with"),
        (["--fix", "--unit", "../../etc/passwd"], "nginx.service"),
        (["--print", "ansible"], "sysctl.conf"),
    ],
)
def test_bad_arguments_are_named_and_end_with_104(arguments, told):
    done = World().run(MYRIAD, "doctor", *arguments)
    assert done.returncode == 104 and told in done.stderr, done.stderr


def test_a_folder_that_is_no_machine_is_named(tmp_path):
    done = World().run(MYRIAD, "doctor", "--root", tmp_path)
    assert done.returncode == 1 and f"{tmp_path}/proc/meminfo" in done.stderr


def on_a_terminal(*environment):
    """What a terminal shows."""
    leader, follower = pty.openpty()
    command = ["env", *environment, MYRIAD, "doctor", "--root", str(MACHINES / "firewalled")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 1 << 16):
            shown += part
    except OSError:
        pass  # The other end is closed.
    os.close(leader)
    process.wait()
    return shown.decode()


def test_colours_are_for_terminals_that_want_them():
    assert "\x1b[" in on_a_terminal("-u", "NO_COLOR", "TERM=xterm")
    assert "\x1b[" not in on_a_terminal("NO_COLOR=1", "TERM=xterm")
    assert "\x1b[" not in on_a_terminal("-u", "NO_COLOR", "TERM=dumb")
    assert "\x1b[" not in World().run(MYRIAD, "doctor", "--root", MACHINES / "firewalled").stdout


@pytest.mark.parametrize(
    "form, line",
    [
        ("sysctl.conf", "net.ipv4.ip_local_port_range = 1024 65535"),
        ("limits.conf", "* hard nofile 30000"),
        ("systemd", "LimitNOFILE=30000"),
        ("docker", "--ulimit nofile=30000:30000"),
        ("kubernetes", "    - name: net.ipv4.ip_local_port_range"),
    ],
)
def test_files_for_others_hold_what_would_be_changed(form, line):
    flags = ["--root", MACHINES / "small", "--role", "proxy", "--destinations", "2", "--processes", "8"]
    done = World().run(MYRIAD, "doctor", *flags, "--connections", "100k", "--print", form)
    assert done.returncode == 0 and line in done.stdout.splitlines(), done.stdout

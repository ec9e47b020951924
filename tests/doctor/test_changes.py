"""Doctor lists its changes, and `--undo` restores all of them, even after a kill in the middle."""

import os
import resource
import signal

import pytest

from confine import MYRIAD, Missing, Network

KEYS = [
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.core.somaxconn",
]
WANTED = ["--role", "proxy", "--processes", "8", "--destinations", "2", "--connections", "100k", "--port", "40000"]


@pytest.fixture
def network():
    try:
        network = Network()
    except Missing as reason:
        pytest.skip(str(reason))
    network.set("net.core.somaxconn", "200")
    network.set("net.ipv4.ip_local_reserved_ports", "33000-33010,50000")
    yield network
    network.close()


def settings(network):
    return {key: network.read(key) for key in KEYS}


def doctor(network, *arguments, prepare=None):
    return network.world(prepare).run(MYRIAD, "doctor", *arguments)


def test_changes_are_listed_made_and_taken_back(network, tmp_path):
    journal = tmp_path / "journal"
    before = settings(network)
    asked = doctor(network, "--fix", *WANTED, "--journal", journal)
    assert "Nothing was changed." in asked.stdout and settings(network) == before
    fixed = doctor(network, "--fix", "--yes", *WANTED, "--journal", journal)
    after = settings(network)
    changed = {key for key in KEYS if before[key] != after[key]}
    assert changed == set(KEYS), fixed.stdout
    listed = fixed.stdout.split("To change:")[1].split("\n\n")[0]
    assert all(key in listed for key in KEYS), listed
    assert after["net.ipv4.ip_local_port_range"].split() == ["1024", "65535"]
    assert after["net.ipv4.ip_local_reserved_ports"] == "33000-33010,40000,50000\n"
    undone = doctor(network, "--undo", "--yes", "--journal", journal)
    assert undone.returncode == 0 and "Everything is as it was." in undone.stdout
    assert settings(network) == before
    assert not journal.exists()
    again = doctor(network, "--undo", "--journal", journal)
    assert again.returncode == 0 and "nothing to take back" in again.stdout


def test_a_kill_at_any_byte_of_the_journal_leaves_what_undo_needs(network, tmp_path):
    """The kernel ends the process (SIGXFSZ) when its journal would grow past a size."""
    before = settings(network)
    journal = tmp_path / "journal"
    doctor(network, "--fix", "--yes", *WANTED, "--journal", journal)
    whole = journal.stat().st_size
    assert doctor(network, "--undo", "--yes", "--journal", journal).returncode == 0
    killed = halfway = 0
    for most in range(0, whole, 97):

        def limit(most=most):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        fixed = doctor(network, "--fix", "--yes", *WANTED, "--journal", journal, prepare=limit)
        killed += fixed.returncode == -signal.SIGXFSZ
        halfway += settings(network) != before
        undone = doctor(network, "--undo", "--yes", "--journal", journal)
        assert undone.returncode == 0, undone.stdout + undone.stderr
        assert settings(network) == before, f"killed at {most} bytes"
    assert killed > 5 and halfway > 2


def test_undo_in_another_namespace_changes_nothing(network, tmp_path):
    journal = tmp_path / "journal"
    doctor(network, "--fix", "--yes", *WANTED, "--journal", journal)
    other = Network()
    try:
        before = settings(other)
        undone = doctor(other, "--undo", "--yes", "--journal", journal)
        assert undone.returncode == 1 and "another network namespace" in undone.stdout
        assert settings(other) == before
    finally:
        other.close()
    assert doctor(network, "--undo", "--yes", "--journal", journal).returncode == 0


def test_what_somebody_else_changed_since_is_said_and_left(network, tmp_path):
    journal = tmp_path / "journal"
    doctor(network, "--fix", "--yes", *WANTED, "--journal", journal)
    network.set("net.core.somaxconn", "777")
    undone = doctor(network, "--undo", "--yes", "--journal", journal)
    assert undone.returncode == 1
    assert "net.core.somaxconn: is 777, which somebody else made it; it was 200 before" in undone.stdout
    assert network.read("net.core.somaxconn") == "777\n"
    assert journal.exists()


def test_without_rights_what_cannot_be_changed_is_said(network, tmp_path):
    network_admin_only = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]
    world = network.world()
    world.prefix += network_admin_only
    tmp_path.chmod(0o777)
    for folder in (tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    before = settings(network)
    done = world.run(MYRIAD, "doctor", "--fix", "--yes", *WANTED, "--journal", tmp_path / "journal")
    if "setpriv" in done.stderr:
        pytest.skip(f"rights cannot be dropped here: {done.stderr.strip()}")
    assert done.returncode == 1, done.stderr
    assert "not changed net.core.somaxconn: Permission denied" in done.stdout, done.stdout + done.stderr
    assert settings(network) == before


def test_a_reader_that_leaves_does_not_end_it_between_two_changes(network, tmp_path):
    journal = tmp_path / "journal"
    before = settings(network)
    told, untold = os.pipe()
    os.close(told)  # Its output goes to a closed pipe.
    process = network.world().start(
        MYRIAD, "doctor", "--fix", "--yes", *WANTED, "--journal", journal, stdout=untold, stderr=untold
    )
    os.close(untold)
    assert process.wait(timeout=60) in (0, 1)
    after = settings(network)
    assert all(before[key] != after[key] for key in KEYS), after
    assert doctor(network, "--undo", "--yes", "--journal", journal).returncode == 0
    assert settings(network) == before

"""The .rpm: what is in it, and what its scripts do. Debian's rpm installs it, without the packages that it wants."""

import re
import shutil
import subprocess

import pytest

CONFIG = "/etc/myriad/myriad.toml"
KEY = "/etc/myriad/myriad.env"
ALONE = ["--nodeps", "--force-debian"]

pytestmark = pytest.mark.skipif(not shutil.which("rpm"), reason="rpm is not installed")


def query(package, *words):
    return subprocess.run(["rpm", "--query", "--package", *words, package], capture_output=True, text=True, check=True).stdout


def test_the_package_has_every_file(packages):
    package = packages["rpm"][0]
    files = query(package, "--list").splitlines()
    for path in (
        "/usr/bin/myriad",
        "/usr/lib/systemd/system/myriad.service",
        "/usr/lib/sysusers.d/myriad.conf",
        CONFIG,
        "/usr/share/man/man1/myriad.1.gz",
        "/usr/share/bash-completion/completions/myriad",
        "/usr/share/zsh/site-functions/_myriad",
        "/usr/share/licenses/myriad/LICENSE",
    ):
        assert path in files
    # rpm gives the mode of a package's folders to those that were there.
    folders = re.findall(r"^(\S+) (d\S+)$", query(package, "--queryformat", "[%{FILENAMES} %{FILEMODES:perms}\n]"), re.M)
    assert {mode for _, mode in folders} <= {"drwxr-xr-x"}
    assert "/usr/share/man/man1" not in dict(folders)
    assert query(package, "--configfiles").split() == [CONFIG]
    assert query(package, "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{LICENSE}") == "myriad 0.1.0 1 Apache-2.0"


def test_the_package_wants_the_library_that_its_program_was_built_with(packages, myriad):
    wanted = query(packages["rpm"][0], "--requires")
    symbols = subprocess.run(["objdump", "-T", myriad], capture_output=True, text=True).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
    if versions:
        assert f"libc.so.6(GLIBC_{'.'.join(map(str, max(versions)))})(64bit)" in wanted
    assert "systemd" in wanted.split()


def test_its_scripts_are_those_of_a_shell(packages):
    scripts = query(packages["rpm"][0], "--scripts")
    parts = re.split(r"^(\w+) scriptlet \(using /bin/sh\):\n", scripts, flags=re.M)
    bodies = dict(zip(parts[1::2], parts[2::2]))
    assert set(bodies) == {"postinstall", "preuninstall", "postuninstall"}
    for body in bodies.values():
        assert subprocess.run(["sh", "-n"], input=body, text=True, capture_output=True).stderr == ""


def test_it_is_installed_upgraded_and_removed(machine, packages):
    if machine.run("sh", "-c", "command -v rpm")[0] != 0:
        pytest.skip("there is no rpm in the root")
    machine.pretend_systemd()
    old, new = (machine.put(package) for package in packages["rpm"])
    machine.do("rpm", "--install", *ALONE, old)
    # An rpm starts nothing by itself.
    assert machine.asked() == ["systemctl --no-reload preset myriad.service"]
    assert machine.owner_and_mode(CONFIG) == "root:myriad 640"
    assert machine.owner_and_mode(KEY) == "root:myriad 640"
    machine.do("sh", "-c", f'echo "# mine" >> {CONFIG}')
    key = machine.read(KEY)

    machine.do("rpm", "--upgrade", *ALONE, new)
    assert machine.asked() == ["systemctl try-restart myriad.service"]
    assert "# mine" in machine.read(CONFIG) and machine.read(KEY) == key
    assert machine.owner_and_mode(CONFIG) == "root:myriad 640"

    machine.do("rpm", "--erase", "myriad")
    assert machine.asked() == ["systemctl --no-reload disable --now myriad.service"]
    assert not machine.holds("/usr/bin/myriad")
    # rpm keeps a configuration that was changed.
    assert machine.holds(f"{CONFIG}.rpmsave") and machine.holds(KEY)


def test_an_upgrade_with_a_configuration_that_is_refused_restarts_nothing(machine, packages):
    if machine.run("sh", "-c", "command -v rpm")[0] != 0:
        pytest.skip("there is no rpm in the root")
    machine.pretend_systemd()
    old, new = (machine.put(package) for package in packages["rpm"])
    machine.do("rpm", "--install", *ALONE, old)
    machine.asked()
    machine.do("sh", "-c", f"echo 'histroy_size = 1' >> {CONFIG}")
    said = machine.do("rpm", "--upgrade", *ALONE, new)
    assert machine.asked() == [] and "histroy_size" in said

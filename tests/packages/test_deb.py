"""The .deb: what is in it, and how it is installed, upgraded, removed and purged."""

import contextlib
import re
import subprocess
import urllib.error
import urllib.request

import pytest

CONFIG = "/etc/myriad/myriad.toml"
KEY = "/etc/myriad/myriad.env"
# Nobody else's script is run, and nothing is asked.
INSTALL = ["dpkg", "--install", "--no-triggers"]


def dpkg_deb(*words):
    return subprocess.run(["dpkg-deb", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def installed(machine, packages):
    """A machine with the older version."""
    machine.do(*INSTALL, machine.put(packages["deb"][0]))
    return machine


def upgrade(machine, packages):
    return machine.do(*INSTALL, machine.put(packages["deb"][1]))


def test_the_package_has_every_file_where_debian_wants_it(packages):
    lines = [line.split() for line in dpkg_deb("--contents", packages["deb"][0]).splitlines()]
    files = {line[5].removeprefix("."): (line[0], line[1]) for line in lines if not line[0].startswith("d")}
    for path in (
        "/usr/bin/myriad",
        "/usr/lib/systemd/system/myriad.service",
        "/usr/lib/sysusers.d/myriad.conf",
        CONFIG,
        "/usr/share/man/man1/myriad.1.gz",
        "/usr/share/man/man1/myriad-config-check.1.gz",
        "/usr/share/bash-completion/completions/myriad",
        "/usr/share/zsh/vendor-completions/_myriad",
        "/usr/share/fish/vendor_completions.d/myriad.fish",
        "/usr/share/doc/myriad/docs/tls.md",
        "/usr/share/doc/myriad/copyright",
        "/usr/share/doc/myriad/changelog.gz",
        "/usr/share/doc/myriad/changelog.Debian.gz",
    ):
        assert path in files
    assert files["/usr/bin/myriad"][0] == "-rwxr-xr-x"
    # Secrets may be written there.
    assert files[CONFIG][0] == "-rw-r-----"
    assert {line[0] for line in lines if line[0].startswith("d")} == {"drwxr-xr-x"}
    assert {owner for _, owner in files.values()} <= {"root/root", "0/0"}
    assert dpkg_deb("--info", packages["deb"][0], "conffiles").split() == [CONFIG]


def test_the_package_says_what_it_needs(packages, myriad):
    fields = dict(re.findall(r"^(\S+): (.*)$", dpkg_deb("--field", packages["deb"][0]), re.M))
    assert fields["Package"] == "myriad" and fields["Version"] == "0.1.0-1"
    assert fields["Architecture"] == subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    wanted = subprocess.run(["objdump", "-T", myriad], capture_output=True, text=True).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", wanted)}
    if versions:
        newest = ".".join(map(str, max(versions)))
        assert f"libc6 (>= {newest})" in fields["Depends"]
    else:
        assert "libc6" not in fields["Depends"]
    assert "systemd-sysusers" in fields["Depends"]


def test_the_same_sources_make_the_same_bytes(packages, build, tmp_path):
    for kind, again in build("0.1.0", tmp_path).items():
        assert again.read_bytes() == packages[kind][0].read_bytes(), kind


def test_an_installed_server_answers_whoever_has_its_key(installed):
    assert re.fullmatch(r"myriad \d+\.\d+\.\d+ \(commit \S+\)\n", installed.do("myriad", "--version"))
    assert f"{CONFIG}: no mistakes" in installed.do("myriad", "config", "check", CONFIG)
    assert installed.owner_and_mode(CONFIG) == "root:myriad 640"
    assert installed.owner_and_mode(KEY) == "root:myriad 640"
    key = re.search(r"^MYRIAD_API_KEY=([0-9a-f]{48})$", installed.read(KEY), re.M)[1]
    assert re.search(r"^myriad:x:\d+:\d+:Myriad push server:/var/lib/myriad:/usr/sbin/nologin$", installed.read("/etc/passwd"), re.M)
    assert installed.holds("/etc/systemd/system/multi-user.target.wants/myriad.service")
    with serving(installed, key) as address:
        assert publish(address, key) == 200
        assert publish(address, "another") == 401


@contextlib.contextmanager
def serving(machine, key):
    """Starts the server as its unit does, but at any port. Its address."""
    unit = machine.read("/usr/lib/systemd/system/myriad.service")
    start = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
    assert start[0] == "/usr/bin/myriad" and start[-1] == CONFIG
    user = ["setpriv", "--reuid=myriad", "--regid=myriad", "--clear-groups", "env", f"MYRIAD_API_KEY={key}"]
    words = machine.command(*user, *start, "--listen", "127.0.0.1:0", "--driver", "epoll", "--max-connections", "100", "--drain", "1s")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = []
            for line in server.stderr:
                said.append(line)
                if found := re.match(r"listening on (\S+) ", line):
                    yield found[1]
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            server.terminate()


def publish(address, key):
    request = urllib.request.Request(
        f"http://{address}/api/publish", b'{"channel": "news", "data": 1}', {"X-API-Key": key, "Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_each_machine_has_a_key_of_its_own(installed, packages):
    first = installed.read(KEY)
    installed.do("dpkg", "--purge", "myriad")
    installed.do(*INSTALL, installed.put(packages["deb"][0]))
    assert installed.read(KEY) != first


def test_an_upgrade_keeps_what_the_administrator_wrote(installed, packages):
    installed.do("sh", "-c", f'echo \'drain = "5s"\' | sed -i "/^listen/r /dev/stdin" {CONFIG}')
    installed.write(KEY, "MYRIAD_API_KEY=mine\n", "600")
    installed.do("systemctl", "disable", "myriad.service")
    upgrade(installed, packages)
    assert installed.do("dpkg-query", "--show", "--showformat", "${Version} ${db:Status-Abbrev}", "myriad") == "0.2.0-1 ii "
    assert 'drain = "5s"' in installed.read(CONFIG)
    assert installed.read(KEY) == "MYRIAD_API_KEY=mine\n"
    assert installed.owner_and_mode(CONFIG) == "root:myriad 640"
    assert not installed.holds("/etc/systemd/system/multi-user.target.wants/myriad.service")


def test_an_upgrade_makes_no_key_again_that_was_deleted(installed, packages):
    installed.do("rm", KEY)
    upgrade(installed, packages)
    assert not installed.holds(KEY)


def test_a_removal_leaves_the_configuration_and_a_purge_leaves_nothing(machine, packages):
    places = ["/usr", "/etc", "/var", "/opt"]

    def named():
        return set(machine.do("find", *places, "-xdev", "-iname", "*myriad*").splitlines())

    before = named()
    machine.do(*INSTALL, machine.put(packages["deb"][0]))
    machine.do("sh", "-c", "mkdir -m 700 /var/lib/myriad && echo account > /var/lib/myriad/acme")
    machine.do("dpkg", "--remove", "myriad")
    assert not machine.holds("/usr/bin/myriad") and not machine.holds("/usr/lib/systemd/system/myriad.service")
    assert machine.holds(CONFIG) and machine.holds(KEY) and machine.holds("/var/lib/myriad/acme")
    machine.do("dpkg", "--purge", "myriad")
    assert named() - before == set()
    # Whoever gets its number would own what is left of it elsewhere.
    assert "\nmyriad:" in machine.read("/etc/passwd")


def test_a_purge_leaves_files_that_are_not_of_the_package(installed):
    installed.write("/etc/myriad/tls/privkey.pem", "secret\n", "640")
    installed.do("dpkg", "--purge", "myriad")
    assert installed.holds("/etc/myriad/tls/privkey.pem")
    assert not installed.holds(CONFIG) and not installed.holds(KEY)


def test_systemd_is_asked_for_a_start_a_restart_and_a_stop(machine, packages):
    machine.pretend_systemd()
    machine.do(*INSTALL, machine.put(packages["deb"][0]))
    assert machine.asked() == ["deb-systemd-invoke start myriad.service"]
    upgrade(machine, packages)
    # The old version serves until the new one is there.
    assert machine.asked() == ["deb-systemd-invoke restart myriad.service"]
    machine.do("dpkg", "--remove", "myriad")
    assert machine.asked() == ["deb-systemd-invoke stop myriad.service"]


def test_an_upgrade_with_a_configuration_that_is_refused_lets_the_old_server_run(installed, packages):
    installed.pretend_systemd()
    installed.do("sh", "-c", f"echo 'histroy_size = 1' >> {CONFIG}")
    said = upgrade(installed, packages)
    assert installed.asked() == []
    assert "histroy_size" in said and "systemctl restart myriad" in said
    assert installed.do("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}", "myriad") == "ii "


def test_systemd_finds_no_fault_in_the_unit(installed):
    if installed.run("sh", "-c", "command -v systemd-analyze")[0] != 0:
        pytest.skip("systemd-analyze is not installed")
    # Without its manual pages, which are there: some images install no program that reads them.
    code, said = installed.run("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/myriad.service")
    assert code == 0 and "myriad" not in said, said


def test_what_the_configuration_shows_can_be_used(installed):
    """Each example, without its #."""
    text = installed.read(CONFIG)
    whole = re.sub(r"^#(?=\S)", "", text, flags=re.M)
    assert whole != text
    for name in ("fullchain.pem", "privkey.pem"):
        assert f"/etc/myriad/tls/{name}" in whole
    # These are files of the administrator, made by no example.
    whole = re.sub(r"^tls-.*\n", "", whole, flags=re.M)
    installed.write("/tmp/whole.toml", whole)
    said = installed.do("myriad", "config", "check", "/tmp/whole.toml")
    assert "warning" not in said, said

"""Manual pages and completions: what the tools find that read them."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest


def run(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, **more).stdout


@pytest.fixture(scope="module")
def pages(myriad, tmp_path_factory):
    folder = tmp_path_factory.mktemp("man") / "man1"
    run(myriad, "man", folder, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    return folder


def commands(myriad, *above):
    """All commands that the help shows, as lists of words."""
    help = run(myriad, *above, "--help")
    section = re.search(r"^Commands:\n((?:  .*\n|\n(?=  ))*)", help, re.M)
    names = re.findall(r"^  (\w[\w-]*)(?:  |$)", section[1], re.M) if section else []
    for name in names:
        yield [*above, name]
        yield from commands(myriad, *above, name)


def test_each_command_has_a_page(myriad, pages):
    expected = {"-".join(["myriad", *words]) + ".1" for words in commands(myriad)}
    assert {"myriad-serve.1", "myriad-config-check.1", "myriad-completions.1"} <= expected
    assert {path.name for path in pages.iterdir()} == expected | {"myriad.1"}


def test_a_page_has_the_usual_sections_in_their_order(pages):
    headings = re.findall(r'^\.SH "?([^"\n]+)"?$', (pages / "myriad-token.1").read_text(), re.M)
    order = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "NOTES", "SEE ALSO"]
    assert [heading for heading in headings if heading in order] == order
    assert "COMMANDS" in (pages / "myriad.1").read_text()
    text = (pages / "myriad-token.1").read_text()
    assert re.search(r'^\.TH MYRIAD\\?-TOKEN 1 2023-11-14 "Myriad [\d.]+" "Myriad Manual"$', text, re.M), text[:500]
    assert "EXTRA" not in text


def test_pages_name_only_pages_that_are_there(pages):
    there = {path.stem for path in pages.iterdir()}
    for path in pages.iterdir():
        text = re.sub(r"\\f.|\\", "", path.read_text())
        named = set(re.findall(r"(myriad[\w-]*)\(1\)", text))
        assert named and named <= there, path.name


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_mandoc_finds_no_fault(pages):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *sorted(pages.iterdir())], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_groff_finds_no_fault(pages):
    for path in sorted(pages.iterdir()):
        done = subprocess.run(["groff", "-man", "-ww", "-z", "-K", "utf8", path], capture_output=True, text=True)
        assert done.stderr == "", path.name


def test_a_folder_that_cannot_be_made_is_named(myriad, tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run([myriad, "man", tmp_path / "file" / "man1"], capture_output=True, text=True)
    assert done.returncode == 1 and str(tmp_path / "file" / "man1") in done.stderr


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("myriad conf", "myriad config "),
        ("myriad config ch", "myriad config check "),
        ("myriad serve --max-conn", "myriad serve --max-connections "),
        ("myriad completions fi", "myriad completions fish "),
        ("myriad serve --config myr", "myriad serve --config myriad.toml"),
    ],
)
def test_bash_completes(myriad, tmp_path, typed, shown):
    """A bash at a terminal, to which a person types a few letters and the tabulator."""
    (tmp_path / "script").write_text(run(myriad, "completions", "bash"))
    (tmp_path / "myriad.toml").write_text("")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        # A prompt that no line of the script contains.
        environment = {"PATH": "/usr/bin:/bin", "PS1": "READY> ", "TERM": "dumb", "HOME": str(tmp_path), "COLUMNS": "200"}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
    try:
        read_until(terminal, "READY> ")
        os.write(terminal, b". ./script\r")
        read_until(terminal, "READY> ")
        os.write(terminal, f"{typed}\t".encode())
        read_until(terminal, shown)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def read_until(terminal, text):
    """Reads what a terminal shows until this stands in it."""
    seen, end = "", time.monotonic() + 20
    while text not in seen:
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], f"{text!r} does not come: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace").replace("\a", "")


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(myriad, tmp_path):
    script = tmp_path / "myriad.fish"
    script.write_text(run(myriad, "completions", "fish"))
    environment = {**os.environ, "HOME": str(tmp_path)}
    said = run("fish", "--no-config", "-c", f"source {script}; complete -C 'myriad serve --max-conn'", env=environment)
    assert said.startswith("--max-connections\t")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_takes_its_script(myriad, tmp_path):
    script = tmp_path / "_myriad"
    script.write_text(run(myriad, "completions", "zsh"))
    assert script.read_text().startswith("#compdef myriad\n")
    run("zsh", "-f", "-c", f"autoload -Uz compinit && compinit -u -d {tmp_path}/dump && source {script} && whence -w _myriad")
    assert subprocess.run(["zsh", "-n", script], capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("shell", ["bash", "elvish", "fish", "powershell", "zsh"])
def test_a_reader_that_has_read_enough_is_no_fault(myriad, shell):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([myriad, "completions", shell], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")

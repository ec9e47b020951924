"""The crowd's dashboard on a pseudo-terminal: what is drawn, and that the terminal comes back as it was."""

import fcntl
import os
import pty
import re
import struct
import termios
import time
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from server import PATIENCE, binary, run

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
SHOWS_CURSOR = b"\x1b[?25h"
# Only what changes is drawn: `latency` may be there already.
DRAWN = re.escape(ENTERS) + rb".*of echoes"
# A braille pattern in UTF-8.
DOTS = rb"\xe2[\xa0-\xa3]"


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments, rows=40, columns=120):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            # Until the size is set.
            os.read(0, 1)
            os.execve(binary(), [binary(), *arguments], {**os.environ, "TERM": "xterm-256color"})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.master)
        os.write(self.master, b"\n")
        self.output = b""

    def read(self):
        """Reads more; false at the end."""
        try:
            more = os.read(self.master, 65536)
        except OSError:
            return False
        self.output += more
        return bool(more)

    def read_until(self, pattern):
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.output, re.DOTALL):
            assert self.read() and time.monotonic() < deadline, self.output[-2000:]

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """The exit code, when all has been read."""
        after = None
        while True:
            # As long as the program lives the terminal has settings; the last ones count.
            if LEAVES in self.output:
                after = termios.tcgetattr(self.master)
            if not self.read():
                break
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.master)
        return os.waitstatus_to_exitcode(status), after


def crowd(server, *more):
    return ["swarm", f"ws://{server.host}:{server.port}/echo", "-c", "50", "--echo", "200/s", "--warmup", "100ms", *more]


def test_a_run_is_drawn_and_its_table_follows(serve):
    terminal = Terminal(*crowd(serve(), "-d", "3s"))
    terminal.read_until(DRAWN + rb".*" + DOTS)
    code, _ = terminal.end()
    assert code == 0
    drawn, table = terminal.output.rsplit(LEAVES, 1)
    assert drawn.count(ENTERS) == 1 and SHOWS_CURSOR in table
    assert b"received" in drawn and b"generator" in drawn and b"no errors" in drawn
    # The drawing writes only what changed, so the table alone has whole lines.
    assert b"threads" in table and b"since due" in table


def test_ctrl_c_ends_the_run_and_gives_the_terminal_back(serve):
    terminal = Terminal(*crowd(serve(), "-d", "10m"))
    terminal.read_until(DRAWN)
    assert not termios.tcgetattr(terminal.master)[3] & termios.ECHO
    terminal.press(b"abc\x03")
    code, after = terminal.end()
    assert code == 105
    assert terminal.output.index(LEAVES) > terminal.output.index(ENTERS)
    assert after is None or after[3] == terminal.before[3] or not after[3] & termios.ECHO
    assert b"since due" in terminal.output.rsplit(LEAVES, 1)[1]


def test_a_second_ctrl_c_gives_it_back_too(serve):
    terminal = Terminal(*crowd(serve(), "-d", "10m"))
    terminal.read_until(DRAWN)
    terminal.press(b"\x03\x03")
    code, _ = terminal.end()
    assert code == 105
    assert LEAVES in terminal.output


def test_plain_lines_where_no_dashboard_is_wanted_or_fits(serve):
    server = serve()
    for arguments, size in [(["--no-tui"], {}), ([], {"rows": 10, "columns": 50})]:
        terminal = Terminal(*crowd(server, "-d", "1s", *arguments), **size)
        code, _ = terminal.end()
        assert code == 0
        assert b"\x1b[?" not in terminal.output and b"50 of 50 connected" in terminal.output
    code, table, lines = run(*crowd(server, "-d", "1s"))
    assert code == 0 and "\x1b" not in table + lines


def asked(url):
    """Families of metrics by their names."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def test_a_terminal_that_takes_nothing_holds_up_nothing(serve):
    terminal = Terminal(*crowd(serve(), "-d", "10m", "--metrics-listen", "127.0.0.1:0"))
    terminal.read_until(DRAWN)
    url = re.search(rb"http://127.0.0.1:\d+/metrics", terminal.output)[0].decode()
    # Ctrl-S: the drawing waits in the kernel from now on.
    terminal.press(b"\x13")
    deadline = time.monotonic() + PATIENCE
    answered = [asked(url)["myriad_swarm_answered"].samples[0].value]
    while answered[-1] < answered[0] + 600:
        assert time.monotonic() < deadline, answered
        answered.append(asked(url)["myriad_swarm_answered"].samples[0].value)
    # Ctrl-C lets it go on.
    terminal.press(b"\x03")
    assert terminal.end()[0] == 105
    assert LEAVES in terminal.output


def test_figures_are_told_while_the_run_goes_on(serve):
    terminal = Terminal(*crowd(serve(), "-d", "10m", "--no-tui", "--metrics-listen", "127.0.0.1:0"))
    terminal.read_until(rb"figures are at http://[^\s]+/metrics\r?\n")
    url = re.search(rb"(http://[^\s]+)", terminal.output)[1].decode()
    deadline = time.monotonic() + PATIENCE
    while True:
        families = asked(url)
        if "myriad_swarm_latency_seconds" in families:
            break
        # Each line of the run is a second of it.
        assert terminal.read() and time.monotonic() < deadline
    assert families["myriad_swarm_connections"].samples[0].value == 50
    terminal.press(b"\x03")
    assert terminal.end()[0] == 105

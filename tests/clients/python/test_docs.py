"""The first lines of docs/protocol.md, as a reader copies them."""

import re
import subprocess
import sys

from server import ROOT


def test_the_first_lines_of_python_get_what_they_publish(serve):
    server = serve()
    page = (ROOT / "docs" / "protocol.md").read_text()
    lines = re.search(r"^```python\n(.*?)^```$", page, re.M | re.S)[1]
    code = lines.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    assert code != lines
    reader = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout.readline() == "{'text': 'hello'}\n"
    finally:
        reader.kill()
        reader.communicate()

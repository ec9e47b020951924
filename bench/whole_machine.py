"""Changes settings of the whole machine for the time of a measurement."""

import contextlib
import sys
from pathlib import Path


@contextlib.contextmanager
def machine_wide(values, out):
    """Writes settings by path and restores them afterwards. After a kill -9, the script that it leaves restores them."""
    before = {path: current(path) for path in values}
    script = out / "restore.sh"
    try:
        if before:
            lines = [f"echo '{value}' > {path}" for path, value in before.items()]
            script.write_text("\n".join(lines) + "\n")
            for path, value in values.items():
                print(f"  {path}: {before[path]} -> {value}, until this run is over", file=sys.stderr)
                Path(path).write_text(value)
        yield before
    finally:
        for path, value in before.items():
            Path(path).write_text(value)
        script.unlink(missing_ok=True)


def current(path):
    """A file's value; of a choice like `always [madvise] never` the chosen one."""
    text = Path(path).read_text().strip()
    if "[" in text:
        return text[text.index("[") + 1:text.index("]")]
    return " ".join(text.split())

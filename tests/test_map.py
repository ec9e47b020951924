"""docs/architecture.md, the map of the code, names what there is: every module of every crate, and no file that is gone."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# A crate's root and its build script are no modules; insta keeps its snapshots beside the code.
NO_MODULES = {"lib", "main", "build", "snapshots"}


def names(page):
    """What stands between backticks in the text of a page, not in its fenced blocks."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    return set(re.findall(r"`([^`\n]+)`", text))


def words(page):
    """The parts of these names: `hub/home/budget.rs` has three."""
    return {word for name in names(page) for word in re.split(r"[/.:()\s]+", name.removesuffix(".rs"))}


def modules(crate):
    """The modules at the top of a crate."""
    entries = (crate / "src").iterdir()
    return {entry.stem for entry in entries if entry.is_dir() or entry.suffix == ".rs"} - NO_MODULES


def tree():
    # New files count before they are committed.
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def is_there(name, files):
    """If some file or folder has this path, behind the name of its crate or anywhere."""
    crate, _, path = name.rstrip("/").partition("/")
    inside = [file.removeprefix(f"crates/{crate}/") for file in files if file.startswith(f"crates/{crate}/")]
    places = [(files, name.rstrip("/")), (inside, path)]
    return any(f"/{path}/" in f"/{file}/" for among, path in places if path for file in among)


class Map(unittest.TestCase):
    def test_the_map_names_every_module_of_every_crate(self):
        known = words(PAGE)
        crates = sorted(path.parent for path in (ROOT / "crates").glob("*/Cargo.toml"))
        self.assertGreater(len(crates), 15)
        unnamed = [f"{crate.name}/{module}" for crate in crates for module in sorted(modules(crate) - known)]
        self.assertEqual(unnamed, [])

    def test_every_file_that_the_map_names_is_there(self):
        files = tree()
        named = {name for name in names(PAGE) if re.fullmatch(r"[\w./-]+\.(rs|py|js|mjs|toml|md|html)|(?!/)[\w./-]+/", name)}
        self.assertGreater(len(named), 150)
        self.assertEqual(sorted(name for name in named if not is_there(name, files)), [])

    def test_a_name_that_is_gone_and_a_module_that_is_new_are_noticed(self):
        files = ["crates/hub/src/home/budget.rs", "docs/adr/0001.md"]
        self.assertTrue(is_there("hub/home/budget.rs", files))
        self.assertTrue(is_there("budget.rs", files))
        self.assertTrue(is_there("docs/adr/", files))
        self.assertFalse(is_there("hub/src/purse.rs", files))
        self.assertFalse(is_there("get.rs", files))
        self.assertEqual(words("a `hub/home/budget.rs`\n```text\n`not`\n```\n"), {"hub", "home", "budget"})


if __name__ == "__main__":
    unittest.main()

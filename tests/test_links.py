"""Every link of a page to a file of the repository leads somewhere, and its anchor too."""

import functools
import subprocess
import unittest

import pages
from pages import ROOT


def all_pages():
    # New pages count before they are committed.
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in found if (ROOT / path).exists()]


def broken(path, text, anchors_of):
    """What is wrong with the links of a page. `anchors_of` has the anchors of a file, or None if there is no such file."""
    for target, anchor in pages.links(path, text):
        there = anchors_of(target)
        if there is None:
            yield f"{path}: there is no {target}"
        elif anchor and anchor not in there:
            yield f"{path}: {target} has no #{anchor}"


@functools.cache
def anchors_in_the_repository(target):
    file = ROOT / target
    if target.startswith("..") or not file.exists():
        return None
    return pages.anchors(file.read_text()) if file.suffix == ".md" else set()


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        paths = all_pages()
        self.assertGreater(len(paths), 60)
        self.assertTrue({"README.md", "README.zh.md", "docs/serve.md", "docs/zh/serve.md"} <= set(paths))
        wrong = [line for path in paths for line in broken(path, (ROOT / path).read_text(), anchors_in_the_repository)]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_a_link_to_nowhere_is_noticed(self):
        files = {"docs/a.md": {"one", "two-1"}, "docs": set()}

        def said(text):
            return list(broken("docs/zh/b.md", text, files.get))

        self.assertEqual(said("[a](../a.md#one), [b](../a.md), [the folder](..), [far](https://example.com/#x)"), [])
        self.assertEqual(said("[`a`](../a.md#three)"), ["docs/zh/b.md: docs/a.md has no #three"])
        self.assertEqual(said("[a](a.md)"), ["docs/zh/b.md: there is no docs/zh/a.md"])
        self.assertEqual(said("[out](../../../a.md)"), ["docs/zh/b.md: there is no ../a.md"])
        self.assertEqual(said("`[code](nowhere)`\n```sh\n[code](nowhere)\n```\n"), [])

    def test_anchors_are_those_that_github_makes(self):
        text = "# `a_b` and [c](d.md)\n## 名字 <a id=\"names\"></a>\n## Twice!\n## Twice\n```sh\n# not this\n```\n"
        self.assertEqual(pages.anchors(text), {"a_b-and-c", "名字", "names", "twice", "twice-1"})


if __name__ == "__main__":
    unittest.main()

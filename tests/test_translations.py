#!/usr/bin/env python3
"""The Chinese pages say what the English text says that they follow, and which of them are older than it.

    tests/test_translations.py            the tests, and a line for each page that is older
    tests/test_translations.py --older    those lines alone; the exit code is 1 if there is one

A page begins with `<!-- follows docs/serve.md 0123456789ab -->`: the English page, and the first 12 hexadecimal digits of the SHA-256 of
the text that it follows. It is compared with that text and not with the newest one. So whoever changes an English page breaks nothing: the
Chinese page is then older, and keeps its promise.
"""

import functools
import hashlib
import re
import subprocess
import sys
import unittest
from collections import Counter
from dataclasses import dataclass

import pages
from pages import ROOT

FOLLOWS = re.compile(r"<!-- follows (\S+) ([0-9a-f]{12}) -->\n")
# The words that the pages use. It follows nothing.
GLOSSARY = "docs/zh/glossary.md"
# A comment, or a docstring of one line, in the languages of the fenced blocks. What a program prints (`text`, or no language) has none.
COMMENT = re.compile(r'(?:^|(?<=\s))(?:(?:#|//)\s.*|"""[^"]*""")$')
# The line of a page that leads to its other language.
LANGUAGE = re.compile(r"^\[(?:English|中文)\]\([^)]*\)\n", re.M)
# Of two characters or more: a small number may be a word in either language.
NUMBER = re.compile(r"\d+[.,]?\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Page:
    """A Chinese page, and the English text that it follows. Both paths are seen from the root."""

    path: str
    text: str
    english: str
    digest: str


def translations():
    """The paths of all Chinese pages."""
    found = [*ROOT.glob("docs/zh/*.md"), *ROOT.glob("*.zh.md")]
    return sorted(path for path in (str(file.relative_to(ROOT)) for file in found) if path != GLOSSARY)


def page_at(path):
    """The page, or None if it does not begin as it should."""
    text = (ROOT / path).read_text()
    found = FOLLOWS.match(text)
    return Page(path, text, *found.groups()) if found else None


def known_pages():
    return [page for page in map(page_at, translations()) if page and (ROOT / page.english).exists()]


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def commit_with(english, digest):
    """The newest commit in which the English page has this hash, or None, as in a clone without its history."""
    for commit in git("log", "--full-history", "--format=%h", "--", english).split():
        # A commit that removed the page has no text of it.
        shown = subprocess.run(["git", "show", f"{commit}:{english}"], cwd=ROOT, capture_output=True)
        if shown.returncode == 0 and hashlib.sha256(shown.stdout).hexdigest()[:12] == digest:
            return commit
    return None


@functools.cache
def followed(page):
    """The English text that a page follows, and whether that is the newest one. Without the history of an older text it is None."""
    newest = (ROOT / page.english).read_text()
    if hash_of(newest) == page.digest:
        return newest, True
    commit = commit_with(page.english, page.digest)
    return (git("show", f"{commit}:{page.english}") if commit else None), False


def older_lines(among):
    """Two lines for each of these pages that is older than its English one: which, and what shows the change."""
    for page in among:
        if followed(page)[1]:
            continue
        commit = commit_with(page.english, page.digest)
        yield f"{page.path} is older than {page.english}. What has changed since:"
        if commit:
            yield f"    git diff {commit} -- {page.english}"
        else:
            yield f"    no commit here has the text {page.digest}: fetch the whole history, or read the page anew"


def code_lines(text):
    """The lines of the fenced blocks, without comments: those are translated."""
    for language, lines in pages.blocks(text):
        for line in lines:
            said = line if language in ("", "text") else COMMENT.sub("", line)
            if said.strip():
                yield said.rstrip()


def first_cells(text):
    """The code in the first cell of each row: the options, metrics or paths that the row is about, whatever words are between them."""
    return [tuple(sorted(pages.codes(cells[0]))) if cells else () for cells in pages.rows(text)]


def links(path, text):
    """The links, with the English page for a Chinese one, and without those between the two languages of this page."""
    return {(english_of(target), anchor) for target, anchor in pages.links(path, text)} - {(english_of(path), "")}


def english_of(path):
    """The English page of a Chinese one, by its name. Other files stay as they are."""
    if path == GLOSSARY:
        return path
    return re.sub(r"^docs/zh/", "docs/", re.sub(r"\.zh\.md$", ".md", path))


def paragraphs(text):
    """How many paragraphs and items each section has, without the line that leads to the other language."""
    return pages.paragraphs(LANGUAGE.sub("", text))


def numbers(text):
    """The numbers of the text. Code and links have been compared already."""
    return set(NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", pages.CODE.sub("", pages.prose(text)))))


def compared(what, chinese, english):
    """What one of the two has more often than the other."""
    chinese, english = Counter(chinese), Counter(english)
    yield from (f"lacks {what} {one!r}" for one in english - chinese)
    yield from (f"has {what} {one!r}, which the English text has not" for one in chinese - english)


def differences(page, english):
    """Where a page does not say what this English text says, as far as a program can tell.

    Words are not compared, and code may be repeated or not. A sentence without code, number or link may be lost unnoticed.
    """
    yield from compared("the code", set(pages.codes(page.text)), set(pages.codes(english)))
    yield from compared("the line", code_lines(page.text), code_lines(english))
    yield from compared("the link", links(page.path, page.text), links(page.english, english))
    yield from compared("the number", numbers(page.text), numbers(english))
    ours, theirs = first_cells(page.text), first_cells(english)
    if ours != theirs:
        yield from compared("a row that begins with", ours, theirs) if Counter(ours) != Counter(theirs) else ["has its rows in another order"]
    ours = [(level, pages.ANCHOR.findall(words)) for level, words, _ in pages.headings(page.text) if level > 1]
    theirs = [(level, [anchor]) for level, _, anchor in pages.headings(english) if level > 1]
    if ours != theirs:
        wrong = next((pair for pair in zip(ours, theirs) if pair[0] != pair[1]), (f"{len(ours)} headings", f"{len(theirs)}"))
        yield "has other headings: {}, and the English text {}".format(*wrong)
    else:
        names = ["the title", *(anchor for _, [anchor] in ours)]
        for name, mine, its in zip(names, paragraphs(page.text), paragraphs(english), strict=True):
            if mine != its:
                yield f"has {mine} paragraphs and items below {name}, and the English text {its}"


def tearDownModule():
    # Older pages fail no test, so that a change of an English page needs nobody who writes Chinese. A release does: docs/testing.md.
    print_older()


def print_older():
    lines = list(older_lines(known_pages()))
    print("\n".join(lines) or "no Chinese page is older than its English one")
    return bool(lines)


class Translations(unittest.TestCase):
    def test_each_page_names_the_text_that_it_follows(self):
        paths = translations()
        self.assertIn("README.zh.md", paths)
        self.assertIn("docs/zh/serve.md", paths)
        for path in paths:
            with self.subTest(path):
                page = page_at(path)
                self.assertIsNotNone(page, f"{path} does not begin with <!-- follows PAGE HASH -->")
                self.assertEqual(page.english, english_of(path))
                self.assertTrue((ROOT / page.english).is_file(), f"{path} follows {page.english}, which is not there")

    def test_each_page_says_what_the_text_says_that_it_follows(self):
        for page in known_pages():
            with self.subTest(page.path):
                english, _ = followed(page)
                if english is None:
                    print(f"{page.path}: not compared, because no commit here has the text {page.digest} of {page.english}")
                    continue
                found = list(differences(page, english))
                self.assertEqual(found, [], "\n" + "\n".join(f"{page.path} {line}" for line in found))

    def test_each_page_links_to_its_other_language_and_to_chinese_pages(self):
        chinese = {page.english: page.path for page in known_pages()}
        for page in known_pages():
            with self.subTest(page.path):
                targets = [target for target, _ in pages.links(page.path, page.text)]
                self.assertEqual(targets[:1], [page.english], "the first link leads to the English page")
                self.assertEqual([target for target in targets[1:] if target in chinese], [], "these pages are there in Chinese")
                back = [target for target, _ in pages.links(page.english, (ROOT / page.english).read_text())]
                if page.english == "README.md":
                    self.assertIn(page.path, back)


class Comparison(unittest.TestCase):
    ENGLISH = (
        "# A\n\nSee [b](b.md#c) and `--a\nb` of 1,000.\n\n## Two words\n\n"
        "| option | |\n| --- | --- |\n| `x` | 5 |\n| `y` | `z` |\n\n```sh\ngo --it   # to it\n```\n```text\nout # put\n```\n"
    )
    CHINESE = (
        "<!-- follows docs/a.md 0123456789ab -->\n\n[English](../a.md)\n\n# 甲\n\n`--a b` 的 1,000 见 [b](../b.md#c)。\n\n"
        '## 两个词 <a id="two-words"></a>\n\n'
        "| 选项 | |\n| --- | --- |\n| `x` | 5 |\n| `y` | `z` |\n\n```sh\ngo --it   # 去\n```\n```text\nout # put\n```\n"
    )

    def found(self, old="", new=""):
        self.assertIn(old, self.CHINESE)
        page = Page("docs/zh/a.md", self.CHINESE.replace(old, new, 1), "docs/a.md", "0123456789ab")
        return list(differences(page, self.ENGLISH))

    def test_a_page_that_says_the_same_differs_nowhere(self):
        self.assertEqual(self.found(), [])

    def test_what_is_lost_or_added_is_noticed(self):
        self.assertEqual(self.found("`--a b`", "`--ab`"), ["lacks the code '--a b'", "has the code '--ab', which the English text has not"])
        self.assertEqual(self.found("| `y` | `z` |\n", "`y`, `z`\n"), ["lacks a row that begins with ('y',)"])
        self.assertEqual(self.found("| `x` | 5 |\n| `y` | `z` |", "| `y` | `z` |\n| `x` | 5 |"), ["has its rows in another order"])
        self.assertEqual(
            self.found("go --it", "go --is"), ["lacks the line 'go --it'", "has the line 'go --is', which the English text has not"]
        )
        self.assertEqual(self.found("out # put", "out # 出")[0], "lacks the line 'out # put'")
        self.assertEqual(self.found("1,000", "10,00")[0], "lacks the number '1,000'")
        self.assertEqual(self.found("#c", "#d")[0], "lacks the link ('docs/b.md', 'c')")
        self.assertIn("has other headings", self.found("two-words", "two-word")[0])
        self.assertIn("has other headings", self.found("## 两", "### 两")[0])
        self.assertEqual(
            self.found("\n\n## 两", "\n\n另一段。\n\n## 两"), ["has 2 paragraphs and items below the title, and the English text 1"]
        )

    def test_a_page_begins_with_what_it_follows(self):
        self.assertEqual(FOLLOWS.match(self.CHINESE).groups(), ("docs/a.md", "0123456789ab"))
        self.assertIsNone(FOLLOWS.match("\n" + self.CHINESE))
        self.assertIsNone(FOLLOWS.match(self.CHINESE.replace("0123456789ab", "0123")))

    def test_the_text_of_an_older_page_is_found_in_the_history(self):
        commits = git("log", "--format=%h", "--", "README.md").split()
        if len(commits) < 2:
            self.skipTest("the history is not here")
        old = git("show", f"{commits[1]}:README.md")
        found = commit_with("README.md", hash_of(old))
        self.assertEqual(git("show", f"{found}:README.md"), old)
        page = Page("README.zh.md", "", "README.md", hash_of(old))
        self.assertEqual(followed(page), (old, False))
        self.assertEqual(
            list(older_lines([page])),
            ["README.zh.md is older than README.md. What has changed since:", f"    git diff {found} -- README.md"],
        )

    def test_a_page_of_the_newest_text_is_not_older_and_one_of_an_unknown_text_is(self):
        newest = (ROOT / "README.md").read_text()
        page = Page("README.zh.md", "", "README.md", hash_of(newest))
        self.assertEqual(followed(page), (newest, True))
        self.assertEqual(list(older_lines([page])), [])
        page = Page("README.zh.md", "", "README.md", "0" * 12)
        self.assertEqual(followed(page), (None, False))
        self.assertIn("no commit here has the text 000000000000", list(older_lines([page]))[1])


if __name__ == "__main__":
    if sys.argv[1:] == ["--older"]:
        sys.exit(1 if print_older() else 0)
    unittest.main()

"""What a page in Markdown consists of, for tests that compare pages or follow their links."""

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

# A block may stand in a list, and is indented then.
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
# Code may be broken at the end of a line, but not by the end of a paragraph.
CODE = re.compile(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)")
HEADING = re.compile(r"^(#{1,6}) +(.+?)$", re.M)
# An anchor that a heading has beside the one of its words.
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
LINK = re.compile(r"\]\(([^()\s]+)\)")
# The line of dashes below the head of a table.
RULE = re.compile(r"[|\s:-]+")


def prose(text):
    """The page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", FENCED.sub("", text), flags=re.S)


def codes(text):
    """What stands between backticks in the text, in order. A line's end in it counts as a space."""
    return [re.sub(r"\s+", " ", code) for code in CODE.findall(prose(text))]


def blocks(text):
    """The language and the lines of each fenced block."""
    return [(language, body.splitlines()) for _, language, body in FENCED.findall(text)]


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", ANCHOR.sub("", heading)).strip()
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def headings(text):
    """Level, words and anchor of each heading. The second of two with the same words has `-1` at its anchor."""
    found, seen = [], {}
    for hashes, words in HEADING.findall(prose(text)):
        anchor = slug(words)
        count = seen[anchor] = seen.get(anchor, -1) + 1
        found.append((len(hashes), words, f"{anchor}-{count}" if count else anchor))
    return found


def anchors(text):
    """Every anchor that a link may have behind its `#`."""
    return {anchor for _, _, anchor in headings(text)} | set(ANCHOR.findall(prose(text)))


def paragraphs(text):
    """How many paragraphs and items of lists each section has, from the title on. A table is one paragraph; blocks of code are none."""
    counts = []
    for part in re.split(r"\n\s*\n|\n(?=#{1,6} )|\n(?= *(?:[*-]|\d+\.) )", prose(text)):
        lines = part.strip().splitlines()
        if lines and HEADING.match(lines[0]):
            counts.append(0)
            lines = lines[1:]
        if lines and counts:
            counts[-1] += 1
    return counts


def rows(text):
    """The cells of each row of each table, heads included."""
    found = []
    for line in prose(text).splitlines():
        if line.startswith("|") and not RULE.fullmatch(line):
            # A bar in code divides cells too, unless a backslash is before it.
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]])
    return found


def links(path, text):
    """The file, seen from the root, and the anchor of each link to a file of the repository; `path` is the page's own."""
    found = []
    for target in LINK.findall(CODE.sub("", prose(text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found.append((resolve(path, name), anchor))
    return found


def resolve(path, name):
    """`docs/zh/serve.md` and `../tls.md` are `docs/tls.md`."""
    if not name:
        return path
    parts = []
    for part in (PurePosixPath(path).parent / name).parts:
        if part == "..":
            # A link out of the repository keeps its `..`, and leads nowhere.
            if not parts or parts[-1] == "..":
                parts.append(part)
            else:
                parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)

"""What a PromQL expression asks for: enough of its grammar to find metrics, labels, and the function around each range."""

import re
from dataclasses import dataclass

# Words that are no metrics.
KEYWORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}
# Those that have labels in parentheses.
LABEL_LISTS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
# A metric with its labels and its range. A function is followed by a parenthesis, and a number is no name.
SELECTOR = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?\s*(\[[^\]]*\])?(?!\s*\()(?![\w:])")
MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Selector:
    metric: str
    # Labels with an operator and a value each.
    matchers: tuple
    # The function that gets it as its only argument, or "".
    function: str
    has_range: bool

    def values(self, label):
        """The values that it names for a label, one by one."""
        for name, operator, text in self.matchers:
            if name == label:
                yield from text.split("|") if operator in ("=~", "!~") else [text]


def selectors(expression):
    lists_gone = LABEL_LISTS.sub(" ", expression)
    for found in SELECTOR.finditer(lists_gone):
        metric, matchers, time_range = found.groups()
        if metric in KEYWORDS and not matchers:
            continue
        around = re.search(r"(\w+)\s*\(\s*$", lists_gone[: found.start()])
        function = around[1] if around and around[1] not in KEYWORDS else ""
        yield Selector(metric, tuple(MATCHER.findall(matchers or "")), function, time_range is not None)


def grouping_labels(expression):
    """The labels that results are grouped or matched by."""
    lists = LABEL_LISTS.findall(expression)
    return {label.strip() for text in lists for label in text.split(",") if label.strip()}


def legend_labels(text):
    """`{{instance}} {{reason}}` names two."""
    return set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text))

"""Comments in the text of a draft."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpduck.owner.policy_text import name_text

TODO = "TODO"
_WIDTH = 100

MOST_NAMES = 40
"""Most columns that one remark names."""


def remark_lines(text: str, indent: str = "    ") -> Iterator[str]:
    """Yields the lines of an SQL comment with this text. Line breaks in the text, as in names, cannot end it.

    A name in quotes stays as it is, and on one line.
    """
    line = f"{indent}--"
    for word in re.findall(r'(?:"[^"]*"|\S)+', " ".join(text.splitlines())):
        if len(line) + len(word) >= _WIDTH:
            yield line
            line = f"{indent}--"
        line += f" {word}"
    yield line


def name_in_comment(name: str) -> str:
    """Returns a name without line breaks, for a comment, which a line break would end.

    >>> name_in_comment("of" + chr(10) + "birth")
    '"of birth"'
    """
    return " ".join(name_text(name).splitlines())

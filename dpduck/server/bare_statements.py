"""Statements of dpduck's own language as clients type them: bare, without FROM dp($q$ .. $q$) around them.

A bare statement is the call dp(<the same text>) and nothing else. So it can do what dp() does, and no more, even if the
scanner here and the parser of dp() see different words in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from dpduck.values.errors import PermissionRefusal, Refusal
from dpduck.values.quoting import quote_text

Words = tuple[str, ...]

_PART = re.compile(
    r"(?P<blank>\s++|--[^\r\n]*+)|(?P<comment>/\*)|(?P<dollar>\$(?:[^\W\d]\w*+)?\$)"
    r"|(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\")|(?P<word>[^\W\d][\w$]*+)|(?P<open>['\"])|\d\w*+|.",
    re.DOTALL,
)
_COMMENT_PART = re.compile(r"/\*|\*/")
_CLAUSE = ("SELECT", "WITH", "DIFFERENTIAL_PRIVACY")
_HAS_CLAUSE = re.compile("differential_privacy", re.IGNORECASE | re.ASCII)
QUERIES = frozenset(("SELECT", "WITH", "FROM", "("))
"""The first words of queries."""

_PRIVATE = frozenset(
    (("CREATE", "PRIVATE"), ("CREATE", "OR", "REPLACE", "PRIVATE"), ("DROP", "PRIVATE"), ("REFRESH", "PRIVATE"))
)
_POLICY = ("PRIVACY", "POLICY")
_OWNERS = frozenset(
    (
        ("CREATE", *_POLICY),
        ("CREATE", "OR", "REPLACE", *_POLICY),
        ("ALTER", *_POLICY),
        ("DROP", *_POLICY),
        ("DECLARE", "PUBLIC", "TABLE"),
        ("UNDECLARE", "PUBLIC", "TABLE"),
    )
)
_LONGEST_BEGINNING = 5
_MOST_PARTS = 8
"""Most words and signs of a text that is FROM dp($$ .. $$) alone, with a few semicolons. No further ones are read."""

_UNCLOSED = "unclosed"
"""In place of a part that never closes. No word is written so, since words are in capitals."""

_ALONE = "SELECT WITH DIFFERENTIAL_PRIVACY .. by itself, or FROM dp($q$ SELECT WITH DIFFERENTIAL_PRIVACY .. $q$) inside"


@dataclass(frozen=True)
class BareStatement:
    """Bare statement as a call. function: dp, or dp_explain for EXPLAIN. owner: whether it is the data owner's alone.

    statement: the argument, which has the client's text with its places, without semicolons at the end.
    """

    function: str
    statement: str
    owner: bool

    @property
    def query(self) -> str:
        return f"FROM {self.function}({quote_text(self.statement)})"


def read_bare(text: str) -> BareStatement | None:
    """Reads a text as a bare statement. Returns None for any other text.

    >>> read_bare("EXPLAIN DROP PRIVATE VIEW v; -- soon")
    BareStatement(function='dp_explain', statement='        DROP PRIVATE VIEW v', owner=False)
    >>> read_bare("FROM dp($$ DROP PRIVATE VIEW v $$)"), read_bare("SELECT 'SELECT WITH DIFFERENTIAL_PRIVACY'")
    (None, None)
    """
    beginning = _beginning(text, _LONGEST_BEGINNING + 1)
    function = "dp"
    if beginning and beginning[0][0] == "EXPLAIN":
        start = beginning.pop(0)[1]
        function, text = "dp_explain", f"{text[:start]}{' ' * len('EXPLAIN')}{text[start + len('EXPLAIN') :]}"
    words = tuple(word for word, _ in beginning)
    owner = _begins_with(words, _OWNERS)
    if owner or _begins_with(words, _PRIVATE) or (words and words[0] in QUERIES and has_clause(text)):
        return BareStatement(function, _without_end(text), owner)
    return None


def in_dp(text: str) -> str:
    """Returns a bare statement as a SELECT over dp(..), and any other text as it is. Refuses statements of the owner.

    >>> in_dp("DROP PRIVATE VIEW v;")
    "FROM dp('DROP PRIVATE VIEW v')"
    """
    bare = read_bare(text)
    if bare is None:
        return text
    if bare.owner:
        raise PermissionRefusal("this statement is the data owner's", accepted="SELECT WITH DIFFERENTIAL_PRIVACY ..")
    return bare.query


def without_dp(text: str) -> str:
    """Returns the question of a text that is FROM dp($$ .. $$) alone, and any other text as it is.

    >>> without_dp("FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY count(*) FROM v $$);")
    'SELECT WITH DIFFERENTIAL_PRIVACY count(*) FROM v'
    >>> without_dp("FROM dp($$ DROP PRIVATE VIEW v $$)"), without_dp("FROM v")
    ('FROM dp($$ DROP PRIVATE VIEW v $$)', 'FROM v')
    """
    parts = list(islice(parts_of(text), _MOST_PARTS + 1))
    words = [word for word, _, _ in parts]
    if len(parts) > _MOST_PARTS or words[:5] != ["FROM", "DP", "(", "'", ")"] or set(words[5:]) - {";"}:
        return text
    quoted = text[parts[3][1] : parts[3][2]]
    if quoted[0] == "$":
        mark = quoted.index("$", 1) + 1
        inside = quoted[mark:-mark].strip()
    elif quoted[0] == "'":
        inside = quoted[1:-1].replace("''", "'").strip()
    else:
        return text
    bare = read_bare(inside)
    return inside if bare is not None and first_word(inside) in QUERIES else text


def refuse_inside(text: str) -> None:
    """Refuses a text that has SELECT WITH DIFFERENTIAL_PRIVACY as a part of a statement of another kind."""
    if has_clause(text):
        raise Refusal("SELECT WITH DIFFERENTIAL_PRIVACY is a part of another statement", accepted=_ALONE)


def split_at_ends(text: str) -> tuple[list[str], str]:
    """Splits a text at the semicolons outside of its quotes and comments. Returns its statements and the rest.

    >>> split_at_ends("FROM v; SELECT ';' AS semicolon; SELECT 'a;")
    (['FROM v', "SELECT ';' AS semicolon"], " SELECT 'a;")
    """
    statements, start = list[str](), 0
    for word, place, end in parts_of(text):
        if word == ";":
            statements.append(text[start:place].strip())
            start = end
    return [statement for statement in statements if statement], text[start:]


def first_word(text: str) -> str:
    """Returns the first word or sign of a text in capitals, '' if there is none. Comments are no words.

    >>> first_word("/* a /* b */ */ create private view"), first_word("(FROM x)"), first_word("--")
    ('CREATE', '(', '')
    """
    return next((word for word, _, _ in parts_of(text)), "")


def has_clause(text: str) -> bool:
    """Tells whether SELECT WITH DIFFERENTIAL_PRIVACY is in a text, outside of its quotes and comments."""
    if _HAS_CLAUSE.search(text) is None:
        return False
    last: Words = ()
    for word, _, _ in parts_of(text):
        last = (*last[-2:], word)
        if last == _CLAUSE:
            return True
    return False


def _begins_with(words: Words, beginnings: frozenset[Words]) -> bool:
    return any(words[:length] in beginnings for length in range(2, _LONGEST_BEGINNING + 1))


def _beginning(text: str, number: int) -> list[tuple[str, int]]:
    """Returns the first words of a text in capitals, each with its place."""
    words = list[tuple[str, int]]()
    for word, start, _ in parts_of(text):
        words.append((word, start))
        if len(words) == number or not (word.isidentifier() or word == "("):
            break
    return words


def _without_end(text: str) -> str:
    """Returns a text without the semicolons, blanks and comments at its end."""
    last = 0
    for word, _, end in parts_of(text):
        if word != ";":
            last = end
    return text[:last] if last else text


def parts_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields each word in capitals, each number and sign, and "'" for each quoted text, with its start and end.

    Takes linear time. For a quote or a comment that never closes, yields the rest of the text as one part, _UNCLOSED.
    """
    place = 0
    while (part := _PART.match(text, place)) is not None:
        start, place, kind = place, part.end(), part.lastgroup
        if kind == "blank":
            continue
        if kind in ("comment", "dollar", "open"):
            end = _end_of_comment(text, start) if kind == "comment" else _end_of_dollars(text, place, part[0])
            place = end or len(text)
            if not end:
                yield _UNCLOSED, start, place
            elif kind == "dollar":
                yield "'", start, place
        elif kind == "word":
            yield part[0].upper() if part[0].isascii() else part[0], start, place
        else:
            yield "'" if kind == "text" else part[0], start, place


def _end_of_dollars(text: str, place: int, mark: str) -> int:
    """Returns the end of a text that began with a mark such as $q$ before this place, or 0 if it never closes."""
    close = text.find(mark, place) if mark[0] == "$" else -1
    return close + len(mark) if close >= 0 else 0


def _end_of_comment(text: str, start: int) -> int:
    """Returns the end of a comment, in which others may be nested, or 0 if it never closes."""
    depth = 0
    for part in _COMMENT_PART.finditer(text, start):
        depth += 1 if part[0] == "/*" else -1
        if not depth:
            return part.end()
    return 0

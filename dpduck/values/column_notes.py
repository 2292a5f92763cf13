"""Comments on the columns of a private view. They state the role of each column, for people and for pictures.

mechanisms/published_facts.py writes them, and publish/pictures.py reads them. A `{}` stands for the guarantee. Views of
earlier versions only say that a column is a key.
"""

from __future__ import annotations

from enum import StrEnum

KEY = "a key, whose values are public"
SELECTED = "a selected value, {}"
KEYS = ("a key", "a selected value")  # the first words of the comment on a column that tells groups apart
OF_KEYS = "computed from keys, whose values are public"
CONSTANT = "the same in every row"
EVERY_LEVEL = "0 in rows in which no key is a total"
SOME_LEVEL = "tells totals of some keys from other rows"
NAMED_LEVEL = "the columns that a row is grouped by, () for the total"
IS_ANSWER = "; an answer"
ANSWER = f"{{}}{IS_ANSWER}"
FROM_ANSWERS = "computed from answers"
COMPUTED = f"{FROM_ANSWERS} that are {{}}"
ERROR_OF = "; the standard error of "
STDERR = f"{COMPUTED}{ERROR_OF}"
UNIT = "; in "
PUBLIC_TOTALS = "answers are brought to totals that are public"
"""Words in the comment on a view."""


class Values(StrEnum):
    """Kinds of values that a key can have."""

    LISTED = "one of a list"
    WHOLE = "a whole number"
    BIN = "the lower edge of a bin"
    RANGE = "an end of a range of bins"
    COMPUTED = "computed from keys"
    SELECTED = "above a threshold"


class Nulls(StrEnum):
    """Meanings that NULL in a key can have."""

    NONE = ""
    VALUE = "NULL is one of them"
    TOTAL = "NULL is a total"
    EITHER = "NULL is one of them, or a total"
    OTHERS = "NULL is one of them, or all others together"


def key_note(values: Values, nulls: Nulls) -> str:
    """Returns the comment on a key.

    >>> key_note(Values.BIN, Nulls.TOTAL)
    'a key, whose values are public; the lower edge of a bin; NULL is a total'
    """
    start = SELECTED if values is Values.SELECTED else KEY
    return "; ".join(filter(None, (start, values.value, nulls.value)))


def with_unit(note: str, unit: str) -> str:
    """Adds the unit of an answer, such as days, to the comment on the answer's column."""
    return f"{note}{UNIT}{unit}"


def unit_in(comment: str) -> str:
    """Returns the unit that the comment on an answer's column names, "" if it names none.

    >>> unit_in(with_unit(ANSWER, "visits")), unit_in(ANSWER), unit_in("a key; in days")
    ('visits', '', '')
    """
    return comment.rpartition(UNIT)[2] if IS_ANSWER in comment and UNIT in comment else ""

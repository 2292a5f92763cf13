"""The counters that hold pages to short sentences and lines: tests/support/words.py."""

from __future__ import annotations

from tests.support.words import long_lines, long_sentences, sentences, words, words_of

PAGE = """# A title of five words

One sentence of *six* words here. A `piece of code` is
one **word**! Is 0.2 a number (yes.) And on?

```sh
none of these words are counted. Nor these.
```

* an item without a stop
  that goes on
* [a link](../with/an.md#address) and ![a picture](x.svg)

| a head | `x` |
|---|---:|
| a cell. And more | 3 % |
<!-- nothing of this -->
"""


def test_sentences_of_a_page() -> None:
    """Code is left out, headings, items and cells stand for themselves, and a link is its words."""
    assert sentences(PAGE) == [
        "A title of five words",
        "One sentence of six words here.",
        "A code is one word!",
        "Is 0.2 a number (yes.)",
        "And on?",
        "an item without a stop that goes on",
        "a link and a picture",
        "a head",
        "code",
        "a cell.",
        "And more",
        "3 %",
    ]
    assert words("A 95 % interval, or -- so") == 5
    assert words_of(PAGE) == 5 + 6 + 5 + 5 + 2 + 8 + 5 + 2 + 1 + 2 + 2 + 1


def test_what_is_too_long_is_named() -> None:
    """A sentence of 25 words passes and one of 26 does not, over several lines. A line may have 120 characters."""
    just, over = " ".join(["word"] * 25) + ".", "word\n" + " ".join(["word"] * 25) + "."
    assert long_sentences(f"{just} {just}") == []
    assert long_sentences(f"{just} {over}") == [over.replace("\n", " ")]
    assert long_lines("x" * 120 + "\n" + "y" * 121) == ["y" * 121]
    assert long_sentences("one two three", most=2) == ["one two three"]

"""YAML of nested mappings, texts, numbers and lists, as the registry of deployments checks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class OpenField(str):
    """A field that only the owner can fill in, and that takes no free text. It is written as a comment."""


def yaml_lines(fields: Mapping[str, object], indent: int = 0) -> list[str]:
    """Returns the lines of a mapping. Texts of several lines keep their lines.

    >>> yaml_lines({"name": "Women's health", "sector": OpenField("Finance, or .."), "loss": {"epsilon": 0.5}})
    ["name: 'Women''s health'", '# sector: Finance, or ..', 'loss:', '  epsilon: 0.5']
    """
    lines, margin = list[str](), " " * indent
    for name, value in fields.items():
        if isinstance(value, OpenField):
            lines.append(f"{margin}# {name}: {value}")
        elif isinstance(value, Mapping):
            lines += [f"{margin}{name}:", *yaml_lines(value, indent + 2)]
        elif isinstance(value, str):
            lines += _text_lines(f"{margin}{name}:", value, indent + 2)
        elif isinstance(value, Sequence):
            lines += [f"{margin}{name}:", *(f"{margin}  - {_scalar(str(item))}" for item in value)]
        else:
            lines.append(f"{margin}{name}: {_number(value)}")
    return lines


def _number(value: object) -> str:
    """Writes a number. A float with an exponent gets a point, since YAML would read it as a text without the point.

    >>> _number(3), _number(0.5), _number(1e-06), _number(1.5e-06)
    ('3', '0.5', '1.0e-06', '1.5e-06')
    """
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}.0e{exponent}" if mark and "." not in digits else repr(value)


def _text_lines(start: str, text: str, indent: int) -> list[str]:
    parts = text.split("\n")
    if len(parts) == 1 or not all(part.isprintable() for part in parts):
        return [f"{start} {_scalar(text)}"]
    return [f"{start} |", *(f"{' ' * indent}{part}" if part else "" for part in parts)]


def _scalar(text: str) -> str:
    """Writes a text on one line: in single quotes, or with escapes in double quotes if it has control characters.

    >>> _scalar("it's"), _scalar("a\\tb")
    ("'it''s'", '"a\\\\x09b"')
    """
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    code = ord(letter)
    if letter.isprintable():
        return letter
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"

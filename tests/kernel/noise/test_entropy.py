"""Randomness comes from the operating system alone, without seed, buffer or shared state."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import LazyUniform, operating_system_entropy, words16, words32, words64

PACKAGE = Path(__file__).resolve().parents[3] / "dpduck"


class FixedEntropy:
    """Returns the same block whatever is asked for."""

    def __init__(self, block: bytes) -> None:
        self.block = block

    def bytes(self, count: int) -> bytes:
        return self.block


def test_operating_system_entropy_is_fresh() -> None:
    """Blocks have the asked length and never repeat (32 equal bytes: 2^-256)."""
    source = operating_system_entropy()
    assert [len(source.bytes(count)) for count in (0, 1, 7, 100_000)] == [0, 1, 7, 100_000]
    assert source.bytes(32) != source.bytes(32)
    assert source.bytes(32) != operating_system_entropy().bytes(32)


def test_operating_system_entropy_keeps_nothing() -> None:
    """A source has no attributes, so that a fork or a thread shares and repeats nothing."""
    source = operating_system_entropy()
    assert not hasattr(source, "__dict__")
    assert type(source).__slots__ == ()  # type: ignore[attr-defined]


def test_bits_of_the_operating_system_are_balanced() -> None:
    """Of 2^23 bits the ones are within 6.5 standard deviations of half (false alarm 8e-11)."""
    block = np.frombuffer(operating_system_entropy().bytes(1 << 20), dtype=np.uint8)
    ones = int(np.unpackbits(block).sum())
    assert abs(ones - (1 << 22)) < 6.5 * (1 << 23) ** 0.5 / 2


def test_words_are_little_endian_on_every_machine() -> None:
    source = FixedEntropy(bytes(range(1, 9)))
    assert words64(source, 1).tolist() == [0x0807060504030201]
    assert words32(source, 2).tolist() == [0x04030201, 0x08070605]
    assert words16(source, 4).tolist() == [0x0201, 0x0403, 0x0605, 0x0807]


@pytest.mark.parametrize("block", [b"", b"1234567", b"123456789"])
def test_a_source_of_the_wrong_length_is_refused(block: bytes) -> None:
    """A source with fewer bits than asked for is refused, and the message has no bytes of the source."""
    for draw in (
        lambda: words64(FixedEntropy(block), 1),
        lambda: words32(FixedEntropy(block), 2),
        lambda: words16(FixedEntropy(block), 4),
        lambda: LazyUniform(0, 64, FixedEntropy(block)).extend(64),
    ):
        with pytest.raises(ValueError, match=r"^the entropy source returned a block of the wrong length$"):
            draw()


def test_lazy_uniform_appends_bits() -> None:
    """Bits that are known never change, and new ones follow them."""
    uniform = LazyUniform(5, 8, FixedEntropy(b"\x01\x02"))
    uniform.extend(16)
    assert (uniform.value, uniform.bits) == (0x050102, 24)


def test_no_research_randomness_in_the_product() -> None:
    """The package has no seedable or floating-point generator anywhere."""
    forbidden = re.compile(r"np\.random|numpy\.random|default_rng|^\s*(import|from) random\b", re.MULTILINE)
    assert [str(path) for path in PACKAGE.rglob("*.py") if forbidden.search(path.read_text(encoding="utf-8"))] == []

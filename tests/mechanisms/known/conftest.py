"""A clinic without tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clinics import Clinic


@pytest.fixture
def clinic(open_clinic: Callable[..., Clinic]) -> Clinic:
    """Takes the place of the usual one: tests of known answers bring a table of their own."""
    return open_clinic()

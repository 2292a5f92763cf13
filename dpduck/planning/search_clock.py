"""When an anytime search must end."""

from __future__ import annotations

from time import monotonic


class SearchClock:
    """Counts down from `seconds`; searches run by fixed counts, so that it cuts only on a busy machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = monotonic() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._end - monotonic())

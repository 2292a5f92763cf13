"""Trials: noisy answers over the true rows without a charge, for the owner alone.

Many answers reveal the exact counts. So only the owner, who has the rows anyway, may see what follows from them.
dpduck/trial is the only caller, asks for the owner first, and stores and serves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.counting.unit_cells import drop_unit_cells
from dpduck.kernel.door import Door, OpenCursor, Unchanged, counting, jobs_of, open_rows, require_paid
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.place import RowPlace
from dpduck.kernel.price import Ask
from dpduck.kernel.worker.workers import Workers
from dpduck.values.privacy import Charge


@contextmanager
def open_trial(
    asks: Sequence[Ask[Any]],
    charge: Charge,
    unit_key: str,
    ledger: Ledger,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    entropy: Entropy,
    workers: Workers,
    place: RowPlace = LIVE_PLACE,
) -> Iterator[Callable[[], Door]]:
    """Yields a function that makes a Door. All its Doors have the same exact counts, and nothing is charged.

    charge: the price that a release would have. The asks must fit this charge, as in a release.
    """
    require_paid(asks, charge)
    jobs, counts = jobs_of(asks), dict[int, tuple[CountingJob, Hidden]]()
    with open_rows(jobs, unit_key, ledger.store, open_cursor, unchanged, workers, place) as (second, over):
        count_now = counting(second, ledger.bounding_key, workers, over)

        def count(job: CountingJob) -> Hidden:
            if id(job) not in counts:
                counts[id(job)] = job, count_now(job)  # the job is kept, so that no other job gets its id
            return counts[id(job)][1]

        try:
            yield lambda: Door(asks, count, entropy)
        finally:
            counts.clear()
            if any(job.beside for job in jobs):
                drop_unit_cells(second)

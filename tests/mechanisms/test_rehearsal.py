"""A rehearsal is left out for a job that went well before, and for no other job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpduck.mechanisms.rehearsal import told
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.jobs import Attribute, CountingJob, KeyColumn, KeyedJob, KeyJob
from dpduck.values.domain import Domain, RangeDomain, ValueDomain

LISTED = ValueDomain("VARCHAR", ("a", "b"))
BINS = RangeDomain("DOUBLE", ("0", "1"), "2", "1", "", 1)


def job_of(domain: Domain) -> CountingJob:
    """A count by one key."""
    size = domain.size
    attribute = Attribute((0,), np.arange(size, dtype=np.int64), size)
    return CountingJob("t", (), "u", 2, ("u",), (KeyColumn("k", domain),), (attribute,), (Contribution(""),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LISTED, ValueDomain("VARCHAR", ("a",), with_null=True)),
        (LISTED, ValueDomain("VARCHAR", ("a",), other="b")),
        (LISTED, ValueDomain("VARCHAR", ("a", "c"))),
        (BINS, replace(BINS, with_edges=True)),
        (BINS, replace(BINS, edges=("0", "1.5"))),
    ],
)
def test_domains_of_one_size_and_type_are_told_apart(one: Domain, other: Domain) -> None:
    """Each becomes SQL of its own, or labels that are cast, of which one may fail where the other does not."""
    assert one.size == other.size
    jobs = [job_of(one), job_of(other)]
    for several in (jobs, [KeyedJob(job, (), 1) for job in jobs], [KeyJob(job, "k") for job in jobs]):
        assert told(several[0]) != told(several[1])


def test_equal_jobs_are_one() -> None:
    """The same statement again is not rehearsed again."""
    assert told(job_of(LISTED)) == told(job_of(replace(LISTED)))
    assert hash(told(job_of(BINS))) == hash(told(job_of(replace(BINS))))

"""A job for scans of counts that are made without a table."""

from __future__ import annotations

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.relations import Source, Stored

NO_ROWS = CountingJob(Source(Stored("t", "t")), (), None, 0, (), (), (), (Contribution(),))

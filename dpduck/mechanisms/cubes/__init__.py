"""Counts, sums and other aggregates by declared keys."""

from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.constrained import with_errors
from dpduck.mechanisms.cubes.describe import advice, candidates
from dpduck.mechanisms.cubes.error_forecast import foreseen
from dpduck.mechanisms.cubes.measure import (
    CubeProposal,
    Noisy,
    cube_asks,
    cube_columns,
    cube_header,
    measure_cube,
    propose_cube,
    recover_cube,
)
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.unit_counts import warn_of_count_bounds

CUBES = Mechanism[SelectRequest, CubeProposal, Noisy](
    name="cube",
    serves=lambda question: isinstance(question, SelectRequest),
    plan=propose_cube,
    asks=cube_asks,
    header=cube_header,
    measure=measure_cube,
    recover=recover_cube,
    describe=candidates,
    columns=cube_columns,
    errors=lambda proposal, expect_rows: with_errors(foreseen(proposal.found, expect_rows), proposal.known),
    advise=advice,
    warn=lambda proposal, _: warn_of_count_bounds(proposal.request),
)

"""AIM and MST of OpenDP 0.16 (`opendp[mbi]`), run by the python of an environment of its own.

usage: python _opendp_peer.py table.npz AIM|MST rho kept.npz seconds

table.npz: codes and sizes, and the margins to be told. kept.npz: rows that the model made, by rounding, which is the
default, and by sampling, and the model's margins. seconds: of processor time, from the accepted price on, after which
it is stopped. Prints one line of JSON with wall and processor seconds of the mechanism, without those of asking for
margins. All keys are public, so that the whole rho goes to the mechanism, at its own settings. (MST's parts of some rho
exceed it by a last digit and are refused: such a rho is raised by a billionth and more, until one is accepted.)
"""

from __future__ import annotations

import json
import resource
import sys
from time import perf_counter, process_time

import numpy as np
import opendp.prelude as dp
import polars as pl
from mbi.estimation import mirror_descent


def main():
    path, mechanism, rho, kept, most = sys.argv[1:]
    models = {}
    for more in range(400):
        raised = float(rho) * (1 + more * 1.7e-9)
        try:
            if mechanism == "MST":
                tried(raised, len(np.load(path)["sizes"]), models)
            used = int(process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (used + int(most), resource.RLIM_INFINITY))
            run(path, mechanism, raised, kept)
            return
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
            resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    raise SystemExit("no such rho is accepted")


def tried(rho, columns, models):
    """Tries a table of as many columns of three values with a single step of fitting: a refused rho is refused here,
    too. models: of the fits so far, used again, as each takes seconds and does not depend on rho.
    """
    dp.enable_features("contrib")
    names = [f"b{column:02d}" for column in range(columns)]
    data = pl.DataFrame({name: (np.arange(200) + place) % 3 for place, name in enumerate(names)})
    context = dp.Context.compositor(
        data=data.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )

    def fitted(domain, measured, **others):
        number = len(measured)
        if number not in models:
            models[number] = mirror_descent(domain, measured, iters=1, **others)
        return models[number]

    step = dp.mbi.MST(estimator=fitted)
    keys = {name: [0, 1, 2] for name in names}
    context.query(rho=rho).select(*names).contingency_table(keys=keys, algorithm=step).release()


def run(path, mechanism, rho, kept):
    given = np.load(path)
    codes, sizes, wanted = given["codes"], given["sizes"], given["wanted"]
    names = [f"a{column:02d}" for column in range(len(sizes))]
    dp.enable_features("contrib")
    data = pl.DataFrame({name: codes[column] for column, name in enumerate(names)})
    context = dp.Context.compositor(
        data=data.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )
    wall, busy = perf_counter(), process_time()
    algorithm = dp.mbi.AIM() if mechanism == "AIM" else dp.mbi.MST()
    query = context.query(rho=rho).select(*names)
    keys = {name: list(range(size)) for name, size in zip(names, sizes.tolist(), strict=True)}
    table = query.contingency_table(keys=keys, algorithm=algorithm).release()
    made = table.synthesize(rows=codes.shape[1])
    told = {"wall": perf_counter() - wall, "busy": process_time() - busy}
    told["bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    drawn = table.synthesize(rows=codes.shape[1], method="sample")
    rows, sampled = (
        np.array([some[name].fill_null(0).to_numpy() for name in names], np.int64) for some in (made, drawn)
    )
    margins = []
    for members in wanted:
        values = np.asarray(table.project([names[member] for member in members]), float)
        shape = tuple(slice(0, int(sizes[member])) for member in members)  # a null key may follow the others
        margins.append(values[shape].reshape(-1) / values.sum())
    np.savez(kept, rows=rows, sampled=sampled, margins=np.concatenate(margins))
    print(json.dumps(told))


if __name__ == "__main__":
    main()

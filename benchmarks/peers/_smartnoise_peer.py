"""MWEM of smartnoise-synth 1.0.8, run by the python of an environment of its own.

usage: python _smartnoise_peer.py table.npy rounds replays kept.npy

table.npy: the contingency table. kept.npy: its synthetic histogram. Prints one line of JSON: wall and processor seconds
of fitting at epsilon 1 on the marginals of up to three attributes. numpy's histogramdd is replaced by an equal one:
numpy's wants 4^16 cells for 16 binary columns, 32 GiB.
"""

from __future__ import annotations

import json
import sys
import warnings
from time import perf_counter, process_time

import numpy as np
import pandas as pd
from snsynth.mwem import MWEMSynthesizer


def histogramdd(data, bins):
    made = np.zeros(bins)
    np.add.at(made, tuple(np.asarray(data).astype(int).T), 1)
    return made, [np.linspace(0, size - 1, size + 1) for size in bins]


def main():
    path, rounds, replays, kept = sys.argv[1:]
    warnings.simplefilter("ignore")
    np.histogramdd = histogramdd
    table = np.load(path)
    rows = pd.DataFrame(
        np.repeat(np.argwhere(table > 0), table[table > 0], axis=0), columns=[f"y{bit}" for bit in range(table.ndim)]
    )
    names = list(rows.columns)
    made = MWEMSynthesizer(
        epsilon=1.0, q_count=560, iterations=int(rounds), mult_weights_iterations=int(replays), splits=[],
        marginal_width=3,
    )  # fmt: skip
    wall, busy = perf_counter(), process_time()
    made.fit(rows, categorical_columns=names, preprocessor_eps=0.0)
    told = {"wall": perf_counter() - wall, "busy": process_time() - busy}
    np.save(kept, np.asarray(made.synthetic_histograms[0][0], float))
    print(json.dumps(told))


if __name__ == "__main__":
    main()

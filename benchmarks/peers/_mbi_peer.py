"""AIM and MST (McKenna et al. 2022, 2021) on the kept `mbi` 2.0.0, run by the python of an environment of its own.

usage: python _mbi_peer.py table.npy AIM|MST seed rounds seconds kept.npy

table.npy: the contingency table. rounds: of AIM, 0 for its default of 16 per attribute. seconds: no further round of
AIM begins after so many, and the run counts as unfinished. kept.npy: the fitted distribution over the table. Prints one
line of JSON: finished, rounds, wall and processor seconds of the mechanism (not of starting Python), the share of rho
that was spent. Settings are those of the package's own mechanisms: 1,000 steps of mirror descent after a round of AIM,
80 MB of model at most, 10,000 steps for MST. Noise is floating, as theirs is. One thing is faster than there. The
marginals of a model are read off its whole table, which fits into memory here. Asking for each compiled a program and
took some minutes a round.
"""

from __future__ import annotations

import json
import sys
from itertools import combinations
from time import perf_counter, process_time

import networkx
import numpy as np
from mbi import Dataset, Domain, LinearMeasurement, estimation, junction_tree
from mbi.clique_utils import downward_closure

RHO = 0.024355  # (1, 1e-6), the best conversion
LARGEST_MODEL = 80.0


def dataset_of(table):
    codes = np.argwhere(table > 0)
    domain = Domain([f"a{axis:02d}" for axis in range(table.ndim)], table.shape)
    columns = {name: codes[:, axis] for axis, name in enumerate(domain.attributes)}
    return Dataset(columns, domain, table[table > 0].astype(float))


def noisy(data, clique, sigma, random):
    exact = np.asarray(data.project(clique).datavector())
    return LinearMeasurement(exact + random.normal(0, sigma, exact.size), clique, stddev=sigma)


def chosen(scores, epsilon, sensitivity, random):
    exponents = 0.5 * epsilon / sensitivity * (scores - scores.max())
    weights = np.exp(exponents)
    return int(random.choice(len(scores), p=weights / weights.sum()))


def fitted(data, measurements, steps, before=None):
    return estimation.MirrorDescent().estimate(data.domain, measurements, iters=steps, warm_start=before)


class Unfinished(Exception):
    """Time is up. Arguments: rounds, share of rho that was spent."""


def aim(data, seed, rounds, seconds):
    """Candidates are the marginals of order 1 to 3, weighted by their overlap with the 3-way ones."""
    random, begun, names = np.random.default_rng(seed), perf_counter(), data.domain.attributes
    workload = list(combinations(names, 3))
    weights = {
        clique: float(sum(len(set(clique) & set(one)) for one in workload)) for clique in downward_closure(workload)
    }
    exact = np.asarray(data.datavector(flatten=False))
    answers, planned = marginals(exact, names, weights), rounds or 16 * len(names)
    sigma, epsilon = np.sqrt(planned / (2 * 0.9 * RHO)), np.sqrt(8 * 0.1 * RHO / planned)
    measurements = [noisy(data, (name,), sigma, random) for name in names]
    spent, done, last = len(measurements) / (2 * sigma**2), 0, False
    model = fitted(data, measurements, 1000)
    estimates = marginals(joint(model, names, exact.shape, {}) * float(model.total), names, weights)
    while not last:
        if perf_counter() - begun > seconds:
            raise Unfinished(done, spent / RHO)
        if RHO - spent < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon, last = np.sqrt(1 / (1.8 * (RHO - spent))), np.sqrt(0.8 * (RHO - spent)), True
        spent += epsilon**2 / 8 + 0.5 / sigma**2
        allowed = affordable(model, weights, LARGEST_MODEL * spent / RHO)
        scores = []
        for clique in allowed:
            gap = np.abs(answers[clique] - estimates[clique]).sum()
            scores.append(weights[clique] * (gap - np.sqrt(2 / np.pi) * sigma * answers[clique].size))
        clique = allowed[chosen(np.array(scores), epsilon, max(weights[one] for one in allowed), random)]
        measurements.append(noisy(data, clique, sigma, random))
        before = estimates[clique]
        model = fitted(data, measurements, 1000, model)
        estimates = marginals(joint(model, names, exact.shape, {}) * float(model.total), names, weights)
        done += 1
        print(done, spent / RHO, perf_counter() - begun, process_time(), clique, file=sys.stderr, flush=True)
        if np.abs(estimates[clique] - before).sum() <= sigma * np.sqrt(2 / np.pi) * before.size:
            sigma, epsilon = sigma / 2, epsilon * 2
    return fitted(data, measurements, 1000, model), {}, done, spent / RHO


def marginals(table, names, wanted):
    """Of a table, shared sums made once: attributes are kept or summed away one after the other."""
    found, most = {}, max(map(len, wanted))

    def go(table, axis, kept):
        if len(kept) == most:
            table = table.sum(axis=tuple(range(most, table.ndim)))
        if table.ndim == len(kept):
            if kept in wanted:
                found[kept] = table.reshape(-1)
            return
        go(table, axis + 1, (*kept, names[axis]))
        go(table.sum(axis=len(kept)), axis + 1, kept)

    go(table, 0, ())
    return found


def affordable(model, candidates, megabytes):
    free, cliques = set(downward_closure(model.cliques)), list(model.cliques)
    return [
        clique
        for clique in candidates
        if clique in free or junction_tree.hypothetical_model_size(model.domain, [*cliques, clique]) <= megabytes
    ]


def mst(data, seed):
    """Measures a tree of 2-way marginals over values above the noise. An attribute's other values are one value."""
    random, sigma, names = np.random.default_rng(seed), np.sqrt(3 / (2 * RHO)), data.domain.attributes
    singles = [noisy(data, (name,), sigma * np.sqrt(len(names)), random) for name in names]
    merged, measurements, shape, columns = {}, [], [], {}
    for name, single in zip(names, singles, strict=True):
        kept = single.noisy_measurement >= 3 * single.stddev
        codes = np.where(kept, np.cumsum(kept) - 1, kept.sum())
        columns[name] = codes[data.data[name]]
        shape.append(int(codes.max()) + 1)
        if kept.all():  # as it is: from a query of its own, mbi reads no number of records
            measurements.append(single)
            continue
        merged[name], sums = codes, np.zeros(shape[-1])
        np.add.at(sums, codes, single.noisy_measurement)
        together = np.bincount(codes)  # one number stands for so many: its noise is as much larger
        query = Scaled(1 / np.sqrt(together))
        measurements.append(LinearMeasurement(sums / np.sqrt(together), (name,), stddev=single.stddev, query=query))
    data = Dataset(columns, Domain(names, shape), data.weights)
    model = fitted(data, measurements, 2500)
    pairs = list(combinations(names, 2))
    gaps = {
        pair: np.abs(np.asarray(data.project(pair).datavector()) - np.asarray(model.project(pair).datavector())).sum()
        for pair in pairs
    }
    tree, epsilon = networkx.Graph(), np.sqrt(8 * RHO / 3 / (len(names) - 1))
    tree.add_nodes_from(names)
    for _ in range(len(names) - 1):
        pairs = [pair for pair in pairs if not networkx.has_path(tree, *pair)]
        tree.add_edge(*pairs[chosen(np.array([gaps[pair] for pair in pairs]), epsilon, 1.0, random)])
    edges = [tuple(sorted(edge)) for edge in tree.edges]
    measurements += [noisy(data, edge, sigma * np.sqrt(len(edges)), random) for edge in edges]
    return fitted(data, measurements, 10000), merged, len(edges), 1.0


class Scaled:
    """A query that multiplies a marginal's cells."""

    def __init__(self, factors):
        self._factors = factors

    def __call__(self, marginal):
        return marginal.datavector() * self._factors


def joint(model, names, shape, merged):
    """The distribution over the whole table: potentials added up, and merged values share evenly."""
    sizes = model.domain.project(names).shape
    total = np.zeros(sizes)
    for factor in model.potentials.tables.values():
        places = [names.index(name) for name in factor.domain.attributes]
        values = np.asarray(factor.values, float).transpose(np.argsort(places))
        total += values.reshape([size if place in places else 1 for place, size in enumerate(sizes)])
    table = np.exp(total - total.max())
    for axis, name in enumerate(names):
        if name in merged:
            shares = 1 / np.bincount(merged[name])[merged[name]]
            table = np.take(table, merged[name], axis=axis)
            table *= shares.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return table / table.sum()


def main():
    path, mechanism, seed, rounds, seconds, kept = sys.argv[1:]
    data = dataset_of(np.load(path))
    wall, busy = perf_counter(), process_time()
    told = {"mechanism": mechanism, "seed": int(seed)}
    try:
        model, merged, done, share = (
            aim(data, int(seed), int(rounds), float(seconds)) if mechanism == "AIM" else mst(data, int(seed))
        )
    except Unfinished as unfinished:
        model, (done, share) = None, unfinished.args
    told |= {"finished": model is not None, "rounds": done, "spent": share}
    told |= {"wall": perf_counter() - wall, "busy": process_time() - busy}
    if model is not None:
        np.save(kept, joint(model, data.domain.attributes, data.domain.shape, merged))
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""Private boosted trees of a federation, as a peer.

Maddock, Cormode, Wang, Maple and Jha, "Federated Boosted Decision Trees with Differential Privacy", CCS 2022, arXiv
2210.02910. Our own small implementation of the variants that the paper finds best: totally random splits, which cost no
privacy; Newton updates from sums of gradients and Hessians in the leaves; split candidates that are refined by noisy
histograms of Hessians in the first rounds ("IH"); trees of all features, or of one feature each in turn ("EBM"). Rows
are summed in one place here: the sums, and so the errors, are those of a secure aggregation with the same noise.

Depth, candidates, rate, ridge, largest weight and rounds of refinement are those of the paper's comparisons and of the
authors' code. Batches of trees on the same gradients are left out: they save rounds, not privacy.

**Accounting.** A replaced record, all queries in composition: with Gaussian noise of a multiplier k times the
sensitivity, n queries have mu = sqrt(n) / k (Dong, Roth, Su, JRSS B 2022), so k = sqrt(n) / mu(epsilon, delta).
A record is in one leaf of a tree and adds (g, h) = (p - y, p (1 - p)) there, y in {0, 1}. Replacing it changes the
sums, which all have the same noise, by 2 at most in L2. In one leaf and with y = y', (p - p')^2 + (h - h')^2 <= 2. In
one leaf and with y = 0, y' = 1, the change of g is 1 + a with a = p - p', |h - h'| = |a| |1 - p - p'| <= |a| (1 - |a|),
and (1 + a)^2 + a^2 (1 - |a|)^2 is at most 4, at a = 1. In two leaves, g^2 + h^2 <= 1 for each record. In a histogram of
Hessians of one feature, two cells change by 1/4 at most: sqrt(2) / 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import gaussian_mu

Floats = NDArray[np.float64]

DEPTH, CANDIDATES, RATE, RIDGE, LARGEST_WEIGHT, REFINED = 4, 32, 0.3, 1.0, 2.0, 5
LEAF_SENSITIVITY, HISTOGRAM_SENSITIVITY = 2.0, np.sqrt(2.0) / 4.0


@dataclass(frozen=True)
class TreesSetting:
    """trees: how many. one_feature: whether each tree has splits of one feature only, in turn."""

    trees: int
    one_feature: bool


# The paper has 25 to 300 trees. With few rows, or a stronger relation of neighbours, fewer are better.
SETTINGS = tuple(TreesSetting(trees, one_feature) for trees in (25, 100, 200) for one_feature in (False, True))


@dataclass(frozen=True, eq=False)
class _Node:
    feature: int
    threshold: float
    left: "_Node | int"
    right: "_Node | int"


def trees_margins(
    train: Floats,
    positive: NDArray[np.bool_],
    test: Floats,
    epsilon: float,
    delta: float,
    setting: TreesSetting,
    random: np.random.Generator,
) -> Floats:
    """Log-odds of the test rows. train, test: (rows, features) in [-1, 1], the public bounds; positive: (rows,)."""
    features = train.shape[1]
    refined = min(REFINED, setting.trees)
    noise = np.sqrt(setting.trees + refined * features) / gaussian_mu(epsilon, delta)
    candidates = [np.linspace(-1, 1, CANDIDATES, endpoint=False)[1:] for _ in range(features)]
    margins, found = np.zeros(len(train)), np.zeros(len(test))
    for number in range(setting.trees):
        shares = 1 / (1 + np.exp(-margins))
        slopes, curvatures = shares - positive, shares * (1 - shares)
        if number < refined:
            for feature in range(features):
                edges = candidates[feature]
                places = np.searchsorted(edges, train[:, feature], "right")
                cells: Floats = np.bincount(places, curvatures, len(edges) + 1).astype(np.float64)
                cells += noise * HISTOGRAM_SENSITIVITY * random.standard_normal(len(cells))
                candidates[feature] = _refined(edges, cells)
        allowed = np.array([number % features]) if setting.one_feature else np.arange(features)
        bounds = np.tile([-1.0, 1.0], (features, 1))
        counter: list[int] = []
        root = _grown(DEPTH, bounds, candidates, allowed, counter, random)
        leaves = _leaves(root, train)
        sums = [np.bincount(leaves, values, len(counter)) for values in (slopes, curvatures)]
        slope, curvature = (one + noise * LEAF_SENSITIVITY * random.standard_normal(len(one)) for one in sums)
        weights = np.clip(-slope / (np.maximum(curvature, 0) + RIDGE), -LARGEST_WEIGHT, LARGEST_WEIGHT)
        margins += RATE * weights[leaves]
        found += RATE * weights[_leaves(root, test)]
    return found


def _refined(edges: Floats, cells: Floats) -> Floats:
    """Candidates between which the cells have about the same sum, with linear interpolation inside a cell."""
    cumulative = np.concatenate([[0.0], np.cumsum(np.maximum(cells, 0.0))])
    if cumulative[-1] <= 0:
        return edges
    levels = np.arange(1, CANDIDATES) / CANDIDATES * cumulative[-1]
    # Equal sums in a row of empty cells: the smallest step keeps the levels' order.
    rising = cumulative + np.arange(len(cumulative)) * 1e-9
    return np.unique(np.interp(levels, rising, np.concatenate([[-1.0], edges, [1.0]])))


def _grown(
    depth: int,
    bounds: Floats,
    candidates: list[Floats],
    allowed: NDArray[np.int64],
    counter: list[int],
    random: np.random.Generator,
) -> _Node | int:
    """A tree whose splits are random candidates inside a node's bounds; leaves are numbered in `counter`."""
    feature = int(random.choice(allowed))
    low, high = bounds[feature]
    inside = candidates[feature][(candidates[feature] > low) & (candidates[feature] < high)]
    if depth == 0 or not len(inside):
        counter.append(len(counter))
        return counter[-1]
    threshold = float(random.choice(inside))
    below, above = bounds.copy(), bounds.copy()
    below[feature, 1], above[feature, 0] = threshold, threshold
    left = _grown(depth - 1, below, candidates, allowed, counter, random)
    return _Node(feature, threshold, left, _grown(depth - 1, above, candidates, allowed, counter, random))


def _leaves(root: _Node | int, rows: Floats) -> NDArray[np.int64]:
    """The leaf of each row."""
    found = np.empty(len(rows), dtype=np.int64)
    waiting: list[tuple[_Node | int, NDArray[np.intp]]] = [(root, np.arange(len(rows)))]
    while waiting:
        node, places = waiting.pop()
        if isinstance(node, int):
            found[places] = node
            continue
        below = rows[places, node.feature] < node.threshold
        waiting += [(node.left, places[below]), (node.right, places[~below])]
    return found

"""Short vectors of a lattice, for attacks that solve an equation modulo a prime in small numbers."""

from fractions import Fraction

Vector = list[int]


def reduced(basis: list[Vector]) -> list[Vector]:
    """An LLL-reduced basis of the same lattice, delta = 3/4, in exact arithmetic. basis: independent rows.

    Lenstra, Lenstra and Lovasz 1982; Cohen, "A Course in Computational Algebraic Number Theory", algorithm 2.6.3.
    """
    rows = [list(row) for row in basis]
    # Row i is its orthogonal part, of squared length norms[i], and mu[i][j] times that of each row j before it.
    mu, norms = _orthogonalised(rows)
    place = 1
    while place < len(rows):
        _shorten(rows, mu, place, place - 1)
        factor, above = mu[place][place - 1], norms[place - 1]
        if norms[place] < (Fraction(3, 4) - factor**2) * above:
            rows[place - 1 : place + 1] = rows[place], rows[place - 1]
            _exchange(mu, norms, place)
            place = max(place - 1, 1)
            continue
        for other in range(place - 2, -1, -1):
            _shorten(rows, mu, place, other)
        place += 1
    return rows


def _orthogonalised(rows: list[Vector]) -> tuple[list[list[Fraction]], list[Fraction]]:
    """The coefficients and squared lengths of Gram and Schmidt."""
    parts: list[list[Fraction]] = []
    mu = [[Fraction(0)] * len(rows) for _ in rows]
    norms: list[Fraction] = []
    for i, row in enumerate(rows):
        part = [Fraction(value) for value in row]
        for j, earlier in enumerate(parts):
            mu[i][j] = sum((a * b for a, b in zip(row, earlier, strict=True)), Fraction(0)) / norms[j]
            part = [a - mu[i][j] * b for a, b in zip(part, earlier, strict=True)]
        parts.append(part)
        norms.append(sum((a * a for a in part), Fraction(0)))
    return mu, norms


def _shorten(rows: list[Vector], mu: list[list[Fraction]], place: int, other: int) -> None:
    """Subtract the multiple of an earlier row that leaves the least of it."""
    times = round(mu[place][other])
    if times:
        rows[place] = [a - times * b for a, b in zip(rows[place], rows[other], strict=True)]
        mu[place][other] -= times
        for j in range(other):
            mu[place][j] -= times * mu[other][j]


def _exchange(mu: list[list[Fraction]], norms: list[Fraction], place: int) -> None:
    """What changes if a row and the one before it change places."""
    before, factor = norms[place - 1], mu[place][place - 1]
    now = norms[place] + factor**2 * before
    mu[place][place - 1] = factor * before / now
    norms[place - 1 : place + 1] = now, norms[place] * before / now
    mu[place - 1][: place - 1], mu[place][: place - 1] = mu[place][: place - 1], mu[place - 1][: place - 1]
    for row in mu[place + 1 :]:
        old = row[place]
        row[place] = row[place - 1] - factor * old
        row[place - 1] = old + mu[place][place - 1] * row[place]

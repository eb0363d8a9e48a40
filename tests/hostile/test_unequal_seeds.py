"""A learner that gives each party another seed of the tag's coefficient, and solves the total's tag for their sums.

With a coefficient alpha_i for each party i, what the learner knows of the total and of the pads leaves it with

    sum over parties i and values j of (alpha_i^j - alpha_r^j) x_ij      (mod p),   r the last party

which determines small x_ij: they are the short vector of a lattice. Real encryption, an honest coordinator, and honest
parties, which refuse such a query: `check_seed` compares the seed with the commitment in the signed query.
"""

from itertools import product

import pytest

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.paillier.masks import PRIME, CohortAttempt, coefficient, pad
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import open_total
from dpcore.predicates.notation import parse
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SystemRandom
from tests.federation.cohort import ROWS, CohortInMemory
from tests.federation.material import SMALL
from tests.hostile.lattices import reduced
from wire import binding
from wire.binding import Binding, OpeningSecret, montgomery_key
from wire.errors import Code, WireError

PREDICATES = ("y == 1", 'x["s"] & (y == 1)', 'x["x0"] >= 0.5')
SIGMA_OF_A_SHARE = 30
NAMES = tuple(ROWS)
RUNS = 20


@pytest.fixture(scope="module")
def obfuscator(secret_key):
    return Obfuscator(secret_key.public_key, SystemRandom(), short_exponent_bits=512, teeth=4, tables=2)


def asked(secret_key, obfuscator, predicates=PREDICATES) -> CohortInMemory:
    kind = StatisticQuery(tuple(map(parse, predicates)), SMALL, GaussianShares(SIGMA_OF_A_SHARE))
    return CohortInMemory(kind, secret_key, obfuscator, fraction_bits=0)


@pytest.fixture
def seeds(monkeypatch):
    """The learner's seed for each party, every one another. The query commits to the first party's."""
    given: dict[str, bytes] = {}
    real = Binding.seal

    def seal(secret: OpeningSecret, parties, nonce: bytes) -> Binding:
        honest = real(secret, parties, nonce)
        sealed = {}
        for party in parties:
            given[party.name] = SystemRandom().bytes(32)
            key = binding._pad(secret.key, montgomery_key(party.signing_key), nonce, party.name)
            sealed[party.name] = binding._xored(given[party.name], key)
        commitment = binding.seed_commitment(given[parties[0].name], nonce=nonce)
        return Binding(honest.opening_key, tuple(sorted(sealed.items())), commitment)

    monkeypatch.setattr(Binding, "seal", seal)
    return given


@pytest.fixture
def nobody_checks(monkeypatch):
    """Parties as those of version 0.2.0: whatever seed they find, they use."""
    monkeypatch.setattr(binding, "seed_commitment", lambda *_arguments, **_named: bytes(32))


def solved(cohort: CohortInMemory, seeds: dict[str, bytes]) -> tuple[int, dict[str, list[int]]]:
    """What the learner makes of a total that it may open, with the seeds that it gave.

    Returns what the tag leaves of the parties' own values, modulo the prime, and the sums that it takes for theirs.
    """
    opened, query = cohort.opened, cohort.opened.query
    (ciphertexts,) = cohort.product(cohort.chunks.values())
    *slots, tag = cohort.secret.decrypt_many(opened.public_key.from_wire(ciphertexts))
    total = [
        int(value)
        for value in open_total(
            slots, query.length, len(NAMES), query.encoding, opened.public_key.bits, rows=sum(ROWS.values())
        )
    ]
    attempt = CohortAttempt(opened.query_id, cohort.attempt, cohort.cohort.digest)
    pads = sum(pad(cohort.opening.key, said.mask_key, said.party, attempt) for said in cohort.acceptances)
    alphas = {name: coefficient(seeds[name], query_id=opened.query_id, attempt=cohort.attempt) for name in NAMES}
    *others, last = NAMES
    places = list(product(others, range(len(total))))
    weights = [(pow(alphas[name], j + 1, PRIME) - pow(alphas[last], j + 1, PRIME)) % PRIME for name, j in places]
    known = sum(pow(alphas[last], j + 1, PRIME) * value for j, value in enumerate(total))
    left = (int(tag) - pads - known) % PRIME
    values = dict(zip(places, _small_solution(weights, left), strict=True))
    found = {name: [values[name, j] for j in range(len(total))] for name in others}
    found[last] = [value - sum(found[name][j] for name in others) for j, value in enumerate(total)]
    return left, found


def _small_solution(weights: list[int], left: int) -> list[int]:
    """Small x with sum of weights x = left modulo the prime: the short vector (x, 1) of a lattice; else zeros."""
    count, heavy, usual = len(weights), 1 << 200, 1 << 12
    rows = [[int(i == j) for j in range(count)] + [0, heavy * weight] for i, weight in enumerate(weights)]
    rows += [[0] * count + [0, heavy * PRIME], [0] * count + [usual, -heavy * left]]
    for row in reduced(rows):
        if abs(row[-2]) == usual and row[-1] == 0:
            return [value * row[-2] // usual for value in row[:count]]
    return [0] * count


def own_sums(cohort: CohortInMemory) -> dict[str, list[int]]:
    return {name: [int(value) for value in cohort.vectors[name]] for name in NAMES}


@pytest.mark.parametrize("count", range(1, len(PREDICATES) + 1))
def test_where_nobody_checks_the_learner_opens_every_party_s_own_sums(
    secret_key, obfuscator, seeds, nobody_checks, count
):
    cohort = asked(secret_key, obfuscator, PREDICATES[:count])
    _, found = solved(cohort, seeds)
    assert found == own_sums(cohort)


def test_a_party_refuses_another_seed_than_the_query_commits_to(secret_key, obfuscator, seeds):
    """The party whose seed is the committed one cannot tell. It is alone with it: the others refuse, so no cohort."""
    for _ in range(RUNS):
        with pytest.raises(WireError) as caught:
            asked(secret_key, obfuscator)
        assert caught.value.code is Code.SEED_MISMATCH


def test_with_one_seed_the_tag_tells_nothing_but_the_total(secret_key, obfuscator):
    for _ in range(RUNS):
        cohort = asked(secret_key, obfuscator)
        left, found = solved(cohort, dict.fromkeys(NAMES, cohort.opening.seed))
        assert left == 0
        assert found != own_sums(cohort)

"""Opening a total: verify every signature and count, decrypt, and verify the tag and the check slots.

Guarantee: the values are the sum that the cohort's members sent for this query, attempt and cohort. Any other total
opens with a probability below 2^-101 (dpcore.paillier.masks; promise P2).

A member that colludes with the coordinator can shift the values, as it could by sending others. The check slots name
the ciphertext that was lost, duplicated or damaged.

Where `phe` is installed, one ciphertext of every total, chosen at random once all are here, is opened with `phe` as
well. A decryption of ours that is wrong for k of N ciphertexts is noticed with probability k / N, whatever a sender
chose.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, TotalError
from dpcore.numbers.processors import Progress
from dpcore.paillier import packing
from dpcore.paillier.masks import CohortAttempt, check_tag, coefficient, pad
from dpcore.paillier.public import InvalidCiphertextError
from dpcore.paillier.secret import SecretKey, phe_is_installed
from dpcore.randomness.sources import RandomSource, SystemRandom, require_system
from learner.keys import note_that_phe_is_missing
from radobase.printing import listed
from wire.binding import OpeningSecret
from wire.cohort import Acceptance, Cohort, check_receipts, check_roster_version
from wire.query import OpenedQuery
from wire.roster import Role, Roster
from wire.status import Total
from wire.upload import chunk_ranges


class CohortError(TotalError):
    """The query does not allow the total's cohort."""


class OpeningsDifferError(TotalError):
    """Our decryption and phe's give different plaintexts for one ciphertext of a total."""

    def __init__(self, *, ciphertext: int) -> None:
        self.ciphertext = ciphertext
        super().__init__(
            f"radofed and phe open ciphertext {ciphertext} of the total differently, so one of them or this machine is "
            "faulty: do not use the total, install radofed[learner] again, fetch it again, and report this"
        )


@dataclass(frozen=True, eq=False)
class OpenedTotal:
    """A total whose cohort, receipts and check slots are verified."""

    acceptances: tuple[Acceptance, ...]
    """The cohort's, in order."""
    values: NDArray[np.int64]
    """(length,) int64, in units of 2^-fraction_bits."""

    @property
    def rows(self) -> int:
        """The cohort's row count."""
        return sum(acceptance.rows for acceptance in self.acceptances)


def check_cohort(cohort: Cohort, opened: OpenedQuery, roster: Roster) -> tuple[Acceptance, ...]:
    """The cohort's acceptances, after verifying every signature and the query's limits.

    Raises CohortError if the cohort is another query's, too small or too large, or has a member that was not asked;
    WireError if a signature is invalid, a member is not a party of the roster, or an acceptance is for another attempt.
    """
    query = opened.query
    if cohort.query_id != opened.query_id:
        raise CohortError("the total is another query's: discard it and fetch the total again")
    acceptances = cohort.open(roster)
    if strangers := [each.party for each in acceptances if not query.asks(each.party)]:
        raise CohortError(
            f"the total's cohort has members that the query does not ask ({listed(strangers)}): discard it and ask the "
            "operator why"
        )
    rows = sum(acceptance.rows for acceptance in acceptances)
    for what, value, least, most in (
        ("parties", len(acceptances), query.cohort_min, query.max_parties),
        ("rows", rows, 1, query.max_rows),
        ("as its attempt's number", cohort.attempt, 1, query.max_attempts),
    ):
        if not least <= value <= most:
            sentence = f"the total's cohort has {value} {what} and the query allows {least} to {most}"
            raise CohortError(f"{sentence}: discard it and ask the operator why")
    return acceptances


def check_fresh(acceptances: Iterable[Acceptance], newest_version: int) -> None:
    """Raise WireError(ROSTER_STALE) if a member of the cohort has a newer roster than this learner.

    newest_version: the newest that this learner has seen. A coordinator that withholds the next version from a learner
    is noticed here, as soon as one member of a cohort has it. Raises what `check_roster_version` raises.
    """
    for acceptance in acceptances:
        check_roster_version(acceptance, newest_version)


def open_total(
    total: Total,
    chunks: Iterable[bytes],
    opened: OpenedQuery,
    roster: Roster,
    secret: SecretKey,
    progress: Progress | None = None,
    *,
    opening: OpeningSecret | None,
    random: RandomSource | None = None,
) -> OpenedTotal:
    """The decrypted total of a cohort.

    - chunks: each chunk's ciphertexts, in order. They are read after all signatures are verified, and all of them
      before the first is decrypted, so that their sender cannot time a decryption.
    - roster: verifies the cohort's signatures. progress: callback `(chunks decrypted, total)`. opening: the secret of
      the query's binding.
    - random: chooses the ciphertext that phe opens too; None for the operating system's source, and any other is
      refused.

    Raises, besides what `check_cohort` and `check_receipts` raise:

    Raises:
        ConfigurationError: a key is not the query's.
        WireError(PARTY_NOT_ASKED): the roster's key of a member is not the one that was asked.
        TotalError: chunks or ciphertexts are malformed, or a check slot fails; the error names the ciphertext.
        OpeningsDifferError: phe opens the chosen ciphertext differently.
        TagError: the tag does not match.
    """
    random = SystemRandom() if random is None else random
    require_system(random)
    if secret.public_key != opened.public_key:
        raise ConfigurationError(
            f"the query is under the Paillier key {opened.public_key.fingerprint()} and the key file holds "
            f"{secret.public_key.fingerprint()}: give the file of the key that the query was sent with"
        )
    acceptances = check_cohort(total.cohort, opened, roster)
    if (total.chunks, total.ciphertexts) != (opened.chunks, opened.ciphertexts):
        raise TotalError(
            f"the total has {total.ciphertexts} ciphertexts in {total.chunks} chunks and the query has "
            f"{opened.ciphertexts} in {opened.chunks}: discard it and ask the operator why"
        )
    query = opened.query
    sizes = {"chunks": total.chunks, "ciphertexts": total.ciphertexts}
    check_receipts(total.receipts, total.cohort, roster, **sizes)
    if opening is None or opening.public_bytes != query.binding.opening_key:
        raise ConfigurationError(
            "the query's total is bound to an opening key that is not here: open it with the state directory that sent "
            "the query; the key is erased once its total was opened"
        )
    attempt = CohortAttempt(opened.query_id, total.cohort.attempt, total.cohort.digest)
    pads = [pad(opening.key, acceptance.mask_key, acceptance.party, attempt) for acceptance in acceptances]
    _check_asked(opened, acceptances, roster, opening)
    plaintexts = _decrypted(_drawn(chunks, opened), opened, secret, random, progress)
    values = packing.open_total(
        plaintexts[: opened.value_ciphertexts],
        query.length,
        len(acceptances),
        query.encoding,
        opened.public_key.bits,
        rows=sum(acceptance.rows for acceptance in acceptances),
    )
    alpha = coefficient(opening.seed, query_id=opened.query_id, attempt=total.cohort.attempt)
    check_tag(plaintexts[-1], values, alpha, pads)
    # Read-only from here on: a release uses it without a copy.
    values.setflags(write=False)
    return OpenedTotal(acceptances, values)


def _check_asked(
    opened: OpenedQuery, acceptances: Sequence[Acceptance], roster: Roster, opening: OpeningSecret
) -> None:
    """Check that each member signed with the key for which the learner sealed the seed: its key may have changed since.

    Raises WireError(PARTY_NOT_ASKED).
    """
    query = opened.query
    for acceptance in acceptances:
        member = roster.find(acceptance.party, Role.PARTY)
        assert member is not None, "the cohort was opened with this roster"
        query.binding.check_sealed_for(member, opening, query.nonce)


def _drawn(chunks: Iterable[bytes], opened: OpenedQuery) -> list[bytes]:
    """All chunks, with their lengths checked. Stops at the first chunk that is too short, too long or too many."""
    width = opened.public_key.ciphertext_bytes
    ranges = chunk_ranges(opened.ciphertexts, opened.ciphertexts_per_chunk)
    drawn: list[bytes] = []
    for index, chunk in enumerate(chunks):
        expected = len(next(ranges, range(0))) * width
        if len(chunk) != expected:
            raise TotalError(f"chunk {index} of the total has {len(chunk)} bytes, not {expected}: fetch it again")
        drawn.append(chunk)
    return drawn


def _decrypted(
    chunks: Sequence[bytes],
    opened: OpenedQuery,
    secret: SecretKey,
    random: RandomSource,
    progress: Progress | None,
) -> Sequence[int]:
    """All plaintexts in order, decrypted in one run, so that no processor waits at the end of a chunk."""
    per_chunk = opened.ciphertexts_per_chunk
    reported = 0

    def report(done: int, count: int) -> None:
        nonlocal reported
        chunks_done = len(chunks) if done == count else done // per_chunk
        for index in range(reported, chunks_done):
            if progress is not None:
                progress(index + 1, len(chunks))
        reported = chunks_done

    try:
        ciphertexts = [ciphertext for chunk in chunks for ciphertext in opened.public_key.from_wire(chunk)]
        with ThreadPoolExecutor(1, "phe") as beside:
            second = _opened_with_phe(ciphertexts, secret, random, beside)
            plaintexts = secret.decrypt_many(ciphertexts, progress=report)
    except InvalidCiphertextError as error:
        raise TotalError(
            f"ciphertext {error.index} of the total {error.reason}: discard the total and send the query again"
        ) from error
    if second is not None:
        _check_one(second, plaintexts)
    return plaintexts


@dataclass(frozen=True)
class _SecondOpening:
    """One ciphertext of a total, which phe opens while our decryption runs."""

    ciphertext: int
    plaintext: Future[int]


def _opened_with_phe(
    ciphertexts: Sequence[int], secret: SecretKey, random: RandomSource, beside: ThreadPoolExecutor
) -> _SecondOpening | None:
    """Open one ciphertext, each with the same probability, with phe too, in another thread. None without phe."""
    if not ciphertexts:
        return None  # a total without ciphertexts is refused by the caller
    if not phe_is_installed():
        note_that_phe_is_missing()
        return None
    index = random.below(len(ciphertexts))
    return _SecondOpening(index, beside.submit(secret.decrypt_with_phe, ciphertexts[index]))


def _check_one(second: _SecondOpening, plaintexts: Sequence[int]) -> None:
    """Raise OpeningsDifferError if phe's plaintext is not ours."""
    if second.plaintext.result() != plaintexts[second.ciphertext]:
        raise OpeningsDifferError(ciphertext=second.ciphertext)

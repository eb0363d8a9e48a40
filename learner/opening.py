"""Opening a total: every signature and count is checked, then it is decrypted, and its check slots are read.

What that gives: an upload that was lost, doubled or damaged, or another cohort than the one its members signed for,
makes the total fail, because the masks then do not cancel and the check slots are random (dpcore.paillier.masks; how
rarely one passes all the same: dpcore.paillier.packing.open_total). A coordinator that adds known numbers to a whole
total, which takes no key, is not noticed: it can spoil, shift or scale what the learner opens, and learns nothing by it
(promise P2).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, TotalError
from dpcore.paillier import packing
from dpcore.paillier.public import InvalidCiphertextError
from dpcore.paillier.secret import SecretKey
from dpcore.progress import Progress
from wire.cohort import Acceptance, Cohort, check_receipts
from wire.query import OpenedQuery
from wire.roster import Roster
from wire.status import Total
from wire.upload import chunk_ranges


class CohortError(TotalError):
    """A total over a cohort that the query does not allow."""


@dataclass(frozen=True, eq=False)
class OpenedTotal:
    """A total whose cohort, receipts and check slots held.

    acceptances: the cohort's, in order. values: (length,) int64, in units of 2^-fraction_bits.
    """

    acceptances: tuple[Acceptance, ...]
    values: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The cohort's rows."""
        return sum(acceptance.rows for acceptance in self.acceptances)


def check_cohort(cohort: Cohort, opened: OpenedQuery, roster: Roster) -> tuple[Acceptance, ...]:
    """The cohort's acceptances, once every signature holds and the query allows such a cohort.

    Raises CohortError where it is another query's, too small or too large; WireError where a signature fails, a member
    is not a party of the roster, or an acceptance is another attempt's.
    """
    query = opened.query
    if cohort.query_id != opened.query_id:
        raise CohortError("the total is another query's: discard it and fetch again")
    acceptances = cohort.open(roster)
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


def open_total(
    total: Total,
    chunks: Iterable[bytes],
    opened: OpenedQuery,
    roster: Roster,
    secret: SecretKey,
    progress: Progress | None = None,
) -> OpenedTotal:
    """The decrypted total of a cohort.

    chunks: each chunk's ciphertexts, in order; drawn only once everything that is signed has held, and all of them
    before the first is decrypted, so that whoever chose them cannot time what a decryption takes. roster: that against
    which the cohort's signatures are verified. progress: told of chunks as they are decrypted. What is noticed
    of a coordinator that cheats, and what is not, stands in the module's docstring.

    Raises ConfigurationError where the key is not the query's, what `check_cohort` and `check_receipts` raise, and
    TotalError where chunks or ciphertexts are malformed or a check slot fails (it names the ciphertext).
    """
    if secret.public_key != opened.public_key:
        raise ConfigurationError(
            f"the query is under the Paillier key {opened.public_key.fingerprint()} and the key file holds "
            f"{secret.public_key.fingerprint()}: give the file of the key that the query was asked with"
        )
    acceptances = check_cohort(total.cohort, opened, roster)
    if (total.chunks, total.ciphertexts) != (opened.chunks, opened.ciphertexts):
        raise TotalError(
            f"the total has {total.ciphertexts} ciphertexts in {total.chunks} chunks and the query has "
            f"{opened.ciphertexts} in {opened.chunks}: discard it and ask the operator why"
        )
    check_receipts(total.receipts, total.cohort, roster, chunks=total.chunks, ciphertexts=total.ciphertexts)
    query = opened.query
    values = packing.open_total(
        _decrypted(_drawn(chunks, opened), opened, secret, progress),
        query.length,
        len(acceptances),
        query.encoding,
        opened.public_key.bits,
        rows=sum(acceptance.rows for acceptance in acceptances),
    )
    # Nobody writes to it from here on: a release takes it as it is.
    values.setflags(write=False)
    return OpenedTotal(acceptances, values)


def _drawn(chunks: Iterable[bytes], opened: OpenedQuery) -> list[bytes]:
    """All chunks, each of the length that it must have. Stops at the first that has not, or is one too many."""
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
    chunks: Sequence[bytes], opened: OpenedQuery, secret: SecretKey, progress: Progress | None
) -> Sequence[int]:
    """All plaintexts in order, decrypted in one run, so that no processor waits where one chunk ends."""
    per_chunk = opened.ciphertexts_per_chunk
    told = 0

    def tell(done: int, count: int) -> None:
        nonlocal told
        chunks_done = len(chunks) if done == count else done // per_chunk
        for index in range(told, chunks_done):
            if progress is not None:
                progress(index + 1, len(chunks))
        told = chunks_done

    try:
        ciphertexts = [ciphertext for chunk in chunks for ciphertext in opened.public_key.from_wire(chunk)]
        return secret.decrypt_many(ciphertexts, progress=tell)
    except InvalidCiphertextError as error:
        raise TotalError(
            f"ciphertext {error.index} of the total {error.reason}: discard the total and ask again"
        ) from error

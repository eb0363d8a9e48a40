"""Opening a total: every signature and count is checked, then it is decrypted, and its check slots are read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, TotalError
from dpcore.paillier import packing
from dpcore.paillier.public import InvalidCiphertextError
from dpcore.paillier.secret import SecretKey
from wire.cohort import Acceptance, Cohort, check_receipts
from wire.query import OpenedQuery
from wire.roster import Roster
from wire.status import Total

Progress = Callable[[int, int], None]
"""Told (chunks done, of how many) after each chunk of a total."""


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

    chunks: each chunk's ciphertexts, in order; drawn one by one, and only once everything that is signed has held.
    roster: that against which the cohort's signatures are verified. Assumes nothing about the coordinator: a part of
    the cohort, or a contribution counted twice, shows other rows in the check slots than the cohort signed.

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
        _decrypt(chunks, opened, secret, progress),
        query.length,
        len(acceptances),
        query.encoding,
        opened.public_key.bits,
        rows=sum(acceptance.rows for acceptance in acceptances),
    )
    return OpenedTotal(acceptances, values)


def _decrypt(chunks: Iterable[bytes], opened: OpenedQuery, secret: SecretKey, progress: Progress | None) -> list[int]:
    plaintexts: list[int] = []
    width = opened.public_key.ciphertext_bytes
    for done, chunk in enumerate(chunks, start=1):
        expected = min(opened.ciphertexts_per_chunk, opened.ciphertexts - len(plaintexts)) * width
        if len(chunk) != expected:
            raise TotalError(f"chunk {done - 1} of the total has {len(chunk)} bytes, not {expected}: fetch it again")
        try:
            plaintexts += secret.decrypt_many(opened.public_key.from_wire(chunk))
        except InvalidCiphertextError as error:
            place = len(plaintexts) + error.index
            raise TotalError(
                f"ciphertext {place} of the total {error.reason}: discard the total and ask again"
            ) from error
        if progress is not None:
            progress(done, opened.chunks)
    return plaintexts

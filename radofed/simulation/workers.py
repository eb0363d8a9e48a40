"""Run simulated parties in this process, or as Ray actors with several parties each.

Ray stays inside one machine or one organisation's cluster. A cluster that is started here listens on loopback only,
requires a token and has no dashboard; one that is running already is used as it is. Ray is imported on first use.
"""

import hmac
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from dpcore.errors import RadofedError
from dpcore.numbers.processors import one_blas_thread
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import to_residues
from dpcore.queries.rados import RadosQuery
from dpcore.randomness.sources import KEY_BYTES, SeededRandom, SystemRandom
from dpcore.records.coding import SIGNS, Coding, Labels
from dpcore.records.computation import SECRET_BYTES, Computation, PartySecret
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from dpcore.records.weight import WeightUnits
from parties.answering.contribution import encrypted_chunks, integer_vector, masked_chunks, tag_coefficient
from radobase.ray_cluster import last_line, start_on_loopback
from radofed.simulation.designs import divided_contribution
from wire.envelopes import Envelope, SigningKey, sha256
from wire.query import OpenedQuery
from wire.statements import Acceptance, Receipt, sign, upload_digest

# The computation of simulated parties, several in one process, with the code of `parties.answering.contribution`.
#
# A `Host` is plain Python; radofed.simulation.workers makes a Ray actor of it. Its draws depend only on the seed, the
# fold, the party, the purpose and, if estimators query, the question, so neither the number of hosts nor encryption
# changes a number. The randomness of encryption and masks comes from the operating system, and cancels.

FEDERATION = "simulation"
ATTEMPT = 1
"""The only attempt: a simulation loses no party."""


@dataclass(frozen=True, eq=False)
class Ask:
    """One query of a fold."""

    fold: int
    opened: OpenedQuery
    divided: RadosQuery | None
    """What parties compute if a coordinator divides the draw; None if they compute the query's kind."""
    question: str = ""
    """The label of an estimator's query; "" for the design's query, the only one of its fold."""
    members: int = 1
    """How many parties answer."""


@dataclass(frozen=True, eq=False)
class Share:
    """One party's part of a fold."""

    party: str
    rows: NDArray[np.int64]
    """Indices into the table."""
    counts: NDArray[np.int64] | None = None
    """(n,), of a divided draw, or None."""
    persons: NDArray[np.int64] | None = None
    """The code of each row's person, if rows have ids."""

    @property
    def stated(self) -> int:
        """What the party states of its size: persons, if rows have ids, or else rows."""
        return len(self.rows) if self.persons is None else len(np.unique(self.persons))


@dataclass(frozen=True, eq=False)
class Upload:
    """The upload of one party: its masked chunks, in order, and its signed receipt."""

    chunks: tuple[bytes, ...]
    receipt: Envelope


def seeded(seed: int, fold: int, who: str, purpose: str, question: str = "") -> SeededRandom:
    """The random source of one party (or the coordinator) for one fold, purpose and question."""
    place = f"{purpose}/{question}" if question else purpose
    return SeededRandom(f"radofed/simulation/{seed}/{fold}/{who}/{place}".encode())


class Host:
    """Some parties of a simulation. features, labels, usable, coding, weights: of the whole table's `Records`.

    key_seed: 32 bytes from the operating system, for one simulation, from which all parties' keys derive. So a lost
    host can be made again, as the same parties.
    """

    def __init__(
        self,
        features: NDArray[np.int32],
        labels: Labels,
        usable: NDArray[np.bool_],
        seed: int,
        parties: Sequence[str],
        key_seed: bytes,
        coding: Coding = SIGNS,
        weights: WeightUnits | None = None,
    ) -> None:
        self._coding, self._weights = coding, weights
        self._features, self._labels, self._usable, self._seed = features, labels, usable, seed
        self._key_seed = key_seed
        self._keys = {
            party: SigningKey(Ed25519PrivateKey.from_private_bytes(self._key(b"sign", party)), FEDERATION)
            for party in parties
        }
        self._obfuscator: Obfuscator | None = None

    def signing_keys(self) -> dict[str, bytes]:
        """The public half of each party's key, for the roster."""
        return {party: key.public_bytes for party, key in self._keys.items()}

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """The sum of the shares' travel forms mod 2^64, a multiple of 2^w: uint64 (length,)."""
        encoding = ask.opened.query.encoding
        total = np.zeros(ask.opened.query.length, dtype=np.uint64)
        for share in shares:
            total += to_residues(self._values(ask, share), encoding)
        return total

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """Each party's signed acceptance, with the query's mask key."""
        query_id = ask.opened.query_id
        said = [
            Acceptance(
                query_id,
                ATTEMPT,
                share.party,
                share.stated,
                self._mask_key(query_id, share.party).public_key().public_bytes_raw(),
                ask.opened.query.roster_version,
            )
            for share in shares
        ]
        return [sign(acceptance, self._keys[acceptance.party]) for acceptance in said]

    def upload(self, ask: Ask, share: Share, acceptances: Sequence[Acceptance], cohort_digest: bytes) -> Upload:
        """One party's encrypted and masked contribution."""
        opened = ask.opened
        if self._obfuscator is None or self._obfuscator.public_key != opened.public_key:
            # Shared by all parties of this host: its table takes a third of a second and 27 MB.
            self._obfuscator = Obfuscator(opened.public_key, SystemRandom())
        values = self._values(ask, share)
        alpha = tag_coefficient(opened, ATTEMPT, share.party, self._keys[share.party])
        bare = encrypted_chunks(opened, values, share.stated, self._obfuscator)
        masked = masked_chunks(
            opened,
            values,
            bare,
            own_name=share.party,
            own_key=self._mask_key(opened.query_id, share.party),
            acceptances=acceptances,
            cohort_digest=cohort_digest,
            alpha=alpha,
        )
        chunks = tuple(masked)
        digest = upload_digest([sha256(chunk) for chunk in chunks])
        receipt = Receipt(opened.query_id, ATTEMPT, share.party, cohort_digest, digest, len(chunks), opened.ciphertexts)
        return Upload(chunks, sign(receipt, self._keys[share.party]))

    def _mask_key(self, query_id: bytes, party: str) -> X25519PrivateKey:
        """The party's mask key, fresh for each query."""
        return X25519PrivateKey.from_private_bytes(self._key(b"mask" + query_id, party))

    def _key(self, purpose: bytes, party: str) -> bytes:
        return hmac.digest(self._key_seed, purpose + b"\0" + party.encode(), "sha256")

    def _values(self, ask: Ask, share: Share) -> NDArray[np.int64]:
        arrays = (self._features[share.rows], self._labels[share.rows], self._usable[share.rows])
        weights = None if self._weights is None else self._weights[share.rows]
        records = Records(*arrays, coding=self._coding, weights=weights)
        random = seeded(self._seed, ask.fold, share.party, "contribution", ask.question)
        query = ask.opened.query
        # A party keeps one secret for the life of its data, over all queries.
        secret = SeededRandom(f"radofed/simulation/{self._seed}/{share.party}/secret".encode()).bytes(SECRET_BYTES)
        key = RowKey(secret, query.federation, share.party, "simulation")
        numbers = RowNumbers(key, None if share.persons is None else _numbers(key, share.persons))
        computation = Computation(random, PartySecret(secret, query.schema.digest), numbers=numbers)
        if share.counts is None:
            values = integer_vector(ask.opened, records, computation)
            # Together with the share: a simulated party need not wait for the cohort.
            top_up = query.kind.top_up(query.d, ask.members, random)
            return values if top_up is None else values + top_up
        assert ask.divided is not None, "counts are of a draw that is divided"
        return divided_contribution(
            ask.divided, query.seen(records), query.encoding.fraction_bits, share.counts, computation
        )


def _numbers(key: RowKey, persons: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Those of rows of these persons."""
    each, places = np.unique(persons, return_inverse=True)
    found: NDArray[np.uint64] = key.of_ids(map(str, each.tolist()))[places]
    return found


# Errors of a simulation.


class SimulationError(RadofedError):
    """A simulation failed. exit_code: that of the cause, if a party or an estimator failed."""

    def __init__(self, sentence: str, *, exit_code: int = RadofedError.exit_code) -> None:
        super().__init__(sentence)
        self.__dict__["exit_code"] = exit_code  # the class attribute is a constant


class SimulationTimedOutError(SimulationError):
    """A worker did not answer in time."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self.what, self.timeout_s = what, timeout_s
        super().__init__(f"{what} took longer than {timeout_s:g} s: allow more time, or use fewer workers", exit_code=3)


START_TIMEOUT_S = 120.0
# How often one call may be lost with its worker.
_LOSSES = 3
# Uploads of each worker that may wait for the coordinator.
_AHEAD = 2


class LocalHosts(Host):
    """All parties in this process."""

    workers = 0

    def __init__(self, records: Records, seed: int, parties: Sequence[str]) -> None:
        arrays = (records.features, records.labels, records.usable)
        super().__init__(*arrays, seed, parties, _key_seed(), records.coding, records.weights)

    def uploads(
        self, ask: Ask, shares: Sequence[Share], acceptances: Sequence[Acceptance], cohort_digest: bytes
    ) -> Iterator[Upload]:
        """Every party's upload, one after the other."""
        return (self.upload(ask, share, acceptances, cohort_digest) for share in shares)


class _Guarded:
    """A Host that returns its errors as values: an error's class may not survive the way between processes."""

    def __init__(self, *arguments: Any) -> None:
        self._host = Host(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            # Workers share the processors.
            with one_blas_thread():
                return getattr(self._host, method)(*arguments)
        except RadofedError as error:
            return _Refused(str(error), error.exit_code)


class _Refused:
    def __init__(self, sentence: str, exit_code: int) -> None:
        self.sentence, self.exit_code = sentence, exit_code


@dataclass(frozen=True, eq=False)
class _Call:
    """A call to an actor."""

    place: int
    """The actor's number."""
    arguments: tuple[Any, ...]
    """The method's name first."""
    actor: Any
    reference: Any


class RayHosts:
    """Parties divided among Ray actors in turn. The table is in Ray's object store once, and actors read it there.

    An actor that is lost is made again on the rest of the cluster, and its unanswered calls are repeated.
    """

    def __init__(self, records: Records, seed: int, parties: Sequence[str], *, workers: int, timeout_s: float) -> None:
        self.workers, self._timeout_s, self._seed = workers, timeout_s, seed
        self._records, self._parties = records, tuple(parties)
        self._place = {party: place % workers for place, party in enumerate(parties)}
        self._key_seed = _key_seed()
        self._ray: Any = None
        self._table: list[Any] = []
        self._weights: Any = None
        self._actors: list[Any] = []
        self._started = False

    def __enter__(self) -> Self:
        records = self._records
        object_bytes = 2 * (records.features.nbytes + records.labels.nbytes + records.usable.nbytes)
        self._ray, self._started = start_on_loopback(cpus=self.workers, object_bytes=object_bytes)
        try:
            self._make_actors()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _make_actors(self) -> None:
        records = self._records
        self._table = [self._ray.put(array) for array in (records.features, records.labels, records.usable)]
        self._weights = None if records.weights is None else self._ray.put(records.weights)
        self._actors = [self._actor(place) for place in range(self.workers)]
        self._get(
            [self._call(place, "signing_keys") for place in range(self.workers)], "starting workers", START_TIMEOUT_S
        )

    def _actor(self, place: int) -> Any:
        """The host of the parties of one place. Its arguments are its whole state, so it can be made again."""
        mine = [party for party in self._parties if self._place[party] == place]
        actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Guarded)
        return actor.remote(*self._table, self._seed, mine, self._key_seed, self._records.coding, self._weights)

    def _end(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._started:
            self._ray.shutdown()
            self._started = False

    def signing_keys(self) -> dict[str, bytes]:
        """See LocalHosts."""
        keys: dict[str, bytes] = {}
        for found in self._get([self._call(place, "signing_keys") for place in range(self.workers)], "making keys"):
            keys.update(found)
        return keys

    def residues(self, ask: Ask, shares: Sequence[Share]) -> NDArray[np.uint64]:
        """See LocalHosts."""
        asked = self._ray.put(ask)
        calls = [self._call(place, "residues", asked, mine) for place, mine in self._dealt(shares)]
        return np.asarray(np.sum(self._get(calls, "drawing contributions"), axis=0, dtype=np.uint64))

    def acceptances(self, ask: Ask, shares: Sequence[Share]) -> list[Envelope]:
        """See LocalHosts."""
        dealt = self._dealt(shares)
        asked = self._ray.put(ask)
        found = self._get([self._call(place, "acceptances", asked, mine) for place, mine in dealt], "accepting")
        by_party = {
            share.party: said
            for (_, mine), part in zip(dealt, found, strict=True)
            for share, said in zip(mine, part, strict=True)
        }
        return [by_party[share.party] for share in shares]

    def uploads(
        self, ask: Ask, shares: Sequence[Share], acceptances: Sequence[Acceptance], cohort_digest: bytes
    ) -> Iterator[Upload]:
        """See LocalHosts."""
        asked, accepted = self._ray.put(ask), self._ray.put(tuple(acceptances))
        waiting: deque[_Call] = deque()
        for share in shares:
            waiting.append(self._call(self._place[share.party], "upload", asked, share, accepted, cohort_digest))
            if len(waiting) >= _AHEAD * self.workers:
                yield from self._get([waiting.popleft()], "encrypting")
        while waiting:
            yield from self._get([waiting.popleft()], "encrypting")

    def _dealt(self, shares: Sequence[Share]) -> list[tuple[int, list[Share]]]:
        dealt: list[list[Share]] = [[] for _ in range(self.workers)]
        for share in shares:
            dealt[self._place[share.party]].append(share)
        return list(enumerate(dealt))

    def _call(self, place: int, method: str, *arguments: Any) -> _Call:
        actor = self._actors[place]
        return _Call(place, (method, *arguments), actor, actor.call.remote(method, *arguments))

    def _get(self, calls: list[_Call], what: str, timeout_s: float | None = None) -> list[Any]:
        found = [self._answer(call, what, self._timeout_s if timeout_s is None else timeout_s) for call in calls]
        for answer in found:
            if isinstance(answer, _Refused):
                raise SimulationError(answer.sentence, exit_code=answer.exit_code)
        return found

    def _answer(self, call: _Call, what: str, timeout_s: float) -> Any:
        """One actor's answer. If its process or machine is lost, another actor like it answers."""
        exceptions = self._ray.exceptions
        for losses_left in reversed(range(_LOSSES + 1)):
            try:
                return self._ray.get(call.reference, timeout=timeout_s)
            except exceptions.GetTimeoutError as error:
                raise SimulationTimedOutError(what, timeout_s) from error
            except exceptions.OutOfMemoryError as error:
                raise SimulationError(
                    f"Ray ended a worker while {what}: this machine's memory is nearly full; use fewer workers, or 0"
                ) from error
            except exceptions.RayError as error:
                is_lost = isinstance(error, (exceptions.RayActorError, exceptions.ObjectLostError))
                if not is_lost or not losses_left:
                    said = last_line(error)
                    raise SimulationError(f"a worker failed while {what}: {said}; use fewer workers, or 0") from error
            if self._actors[call.place] is call.actor:
                # It may still run, out of reach.
                self._ray.kill(call.actor)
                self._actors[call.place] = self._actor(call.place)
            call = self._call(call.place, *call.arguments)
        raise AssertionError("the last loss is raised above")


def _key_seed() -> bytes:
    return SystemRandom().bytes(KEY_BYTES)


Hosts: TypeAlias = LocalHosts | RayHosts
"""Parties. Shares are in the roster's order, and so are the results."""


def start_hosts(
    records: Records, seed: int, parties: Sequence[str], *, workers: int, timeout_s: float
) -> AbstractContextManager[Hosts]:
    """Hosts for these parties over this table, as a context that ends them.

    workers: number of Ray actors; with 0 this process computes. timeout_s: for each answer of an actor. Raises
    ConfigurationError if Ray is not installed or cannot be limited to loopback, SimulationTimedOutError if an actor
    does not start.
    """
    if workers == 0:
        return nullcontext(LocalHosts(records, seed, parties))
    return RayHosts(records, seed, parties, workers=min(workers, len(parties)), timeout_s=timeout_s)

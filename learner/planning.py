"""Planning: turns a request into a query that can be answered, before anything is sent.

A request is refused here if its sums do not fit a slot, its design is empty or unbounded at the parties' stated sizes,
or too few parties are asked for its cohort. The error says what would work.
"""

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpcore.accounting.cohorts import MOST_PARTIES, Cohorts
from dpcore.accounting.protection import ReleaseCost
from dpcore.accounting.words import after_attempt, figures, theorem, within
from dpcore.errors import ConfigurationError, PlanError
from dpcore.paillier.mask_graph import is_complete
from dpcore.paillier.packing import ciphertext_count
from dpcore.paillier.public import PublicKey
from dpcore.paillier.survivors import MOST_SHARERS, is_enough
from dpcore.queries.kind import MAX_VALUES, QueryLimits, fewest_ciphertexts
from dpcore.queries.statement import cost_of_attempts, unit_of
from dpcore.randomness.sources import RandomSource, SystemRandom
from learner.requests import GROWTH, Request
from learner.studies import load_study
from learner.vanishing import Vanishing, most_that_may_vanish
from radobase.presentation.notebook import fragment
from radobase.printing import amount, json_text
from wire.binding import Binding, OpeningSecret
from wire.envelopes import KEY_BYTES, Envelope, sha256
from wire.features import OWN_FEATURES, Feature, features_of
from wire.query import MAX_QUERY_BYTES, PaillierKey, Query, setting_of
from wire.query_kinds import AnyKind, has_class_products, has_class_weights
from wire.request_fields import FEWEST_NEIGHBOURS, LARGEST_COMPLETE, AskedTerms, mask_neighbours
from wire.roster import Member, Roster
from wire.study import Study
from wire.training import Training

PERSON_WORDS = (
    "Parties count persons, and a person's rows count together as much as one record: an answer is an average over "
    "persons of the average of each one's rows."
)
EPOCH_WORDS = (
    "Parties answer as if they had no other rows, and count the cost beside that of queries about all rows only."
)
NONCE_BYTES = 32
ROWS_OF_UNSTATED_PARTY = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A query that can be sent, and its cost. A plan is one query, however often it is sent."""

    query: Query
    public_key: PublicKey
    colluders: int
    party_rows: tuple[int, ...] | None
    cost: ReleaseCost | None
    """The exact privacy cost at the parties' stated sizes; None if the design has no bound or a party states none."""
    opening: OpeningSecret
    """The secret of the query's binding."""
    chosen: str = ""
    """What was chosen about the design and its number of rados, and why, a sentence; empty if nothing was."""
    not_asked: str = ""
    """Which parties of the roster are not asked, a sentence, empty if all are."""
    masks_note: str = ""
    """With how many others each party shares masks, if that is not plain, a sentence; empty otherwise."""
    noise_note: str = ""
    """Whose noise the total has, if that depends on how many answer, a sentence; empty otherwise."""
    warnings: tuple[str, ...] = ()
    """Sentences if the roster, the learner's certificate or its Paillier key expires soon, or a party's key changed."""

    @cached_property
    def query_id(self) -> bytes:
        """The id of the query."""
        return sha256(self.query.to_bytes())

    @cached_property
    def vanishing(self) -> Vanishing | None:
        """What it costs that members may vanish; None if none may."""
        return Vanishing.of(self.query)

    @property
    def delta(self) -> Fraction:
        """At which the cost holds: 0 of a pure release, whatever the query states."""
        return Fraction(0) if self.query.kind.is_pure else self.query.delta

    @property
    def ciphertexts(self) -> int:
        """Number of ciphertexts that each party uploads."""
        return ciphertext_count(self.query.length, self.query.encoding, self.public_key.bits) + 1

    @property
    def upload_bytes_per_party(self) -> int:
        """Bytes of these ciphertexts, without envelopes."""
        return self.ciphertexts * self.public_key.ciphertext_bytes

    def sentences(self) -> list[str]:
        """The plan in words, one sentence per line."""
        query, encoding = self.query, self.query.encoding
        what = f"Over schema {query.schema.name!r}, {query.d} coordinates: {query.words}."
        part = [] if query.held_back is None else ["Other rows contribute zero, and the cost is that of all rows."]
        part += [] if query.epoch is None else [EPOCH_WORDS]
        part += [] if query.persons is None else [PERSON_WORDS]
        size = (
            f"Each party uploads {self.ciphertexts} ciphertexts under a {self.public_key.bits}-bit key, "
            f"{megabytes(self.upload_bytes_per_party)} MB: slots of {encoding.slot_bits} bits, values with "
            f"{encoding.fraction_bits} fraction bits."
        )
        cohort = (
            f"A cohort has {query.cohort_min} to {query.max_parties} parties and at most "
            f"{amount(query.max_rows, 'row' if query.persons is None else 'person')}; "
            f"{self.colluders} of the parties may collude."
        )
        times = (
            f"Parties have {query.answer_within_s} s to answer, {query.prepare_within_s} s to get ready and "
            f"{query.upload_within_s} s to upload; at most {amount(query.max_attempts, 'attempt')}, and each "
            "attempt is charged."
        )
        warnings = [f"Warning: {sentence}." for sentence in self.warnings]
        others = [f"{self.not_asked}."] if self.not_asked else []
        vanishing = [] if self.vanishing is None else self.vanishing.sentences()
        notes = (self.masks_note,) if vanishing else (self.noise_note, self.masks_note)
        noise = [f"{note}." for note in notes if note]
        costs = [*self._privacy_words(), *noise, *vanishing, times, *self._quorum_words(), *self._retry_words()]
        stated = _statements(query.purpose, query.study)
        chosen = [self.chosen] if self.chosen else []
        if query.training is not None:
            chosen += [f"It is one query of a {query.training.words}. People at a party may decide on all of it once."]
        return [what, *chosen, *stated, *part, size, cohort, *others, *costs, *warnings]

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def _repr_html_(self) -> str:
        return fragment("Plan", self.sentences())

    def _quorum_words(self) -> list[str]:
        wait_s = self.query.quorum_wait_s
        return [f"Once enough parties for a cohort are there, the others have {wait_s} s left."] if wait_s else []

    def _retry_words(self) -> list[str]:
        """What a second attempt costs, before it is made; empty if there is no figure for the first."""
        query = self.query
        if self.cost is None or self.party_rows is None or query.max_attempts == 1:
            return []
        try:
            twice = cost_of_attempts(
                query.kind,
                self.party_rows,
                query.delta,
                schema=query.schema,
                setting=setting_of(query),
                attempts=2,
            )
        except PlanError:
            figure = "With two attempts no epsilon holds"
        else:
            figure = after_attempt(twice, self.delta, "two attempts")
        sentence = (
            "Another attempt is made only if you ask for it. Under collusion every attempt counts, as its total can be "
            f"completed. {figure}. A budget for several queries covers one attempt of each."
        )
        return [sentence]

    def _privacy_words(self) -> list[str]:
        scope = self.query.kind.scope
        if scope == "none":
            return ["The release has no privacy bound: parties refuse it unless their policy allows unprotected rados."]
        if self.cost is None:
            return ["The roster does not state every party's rows, so epsilon is known only after the parties answer."]
        cost, unit = self.cost, unit_of(self.query.kind, self.query.schema)
        said = figures(cost.epsilon, cost.epsilon_if_others_collude, self.delta)
        words = f"If every party takes part, {said}, for {unit}, within {within(scope)}."
        return [words, *([] if cost.theorem_epsilon is None else [f"{theorem(cost.theorem_epsilon)}."])]


def statements(asked: AskedTerms, configured: Study | None) -> list[str]:
    """What the people who decide at a party see of purpose and study. Raises what `study_of` raises."""
    return _statements(asked.purpose, study_of(asked, configured))


def _statements(purpose: str, study: Study | None) -> list[str]:
    found = [f"Purpose, as it is shown to the parties: {json_text(purpose)}."] if purpose else []
    if study is not None:
        whose = f"{json_text(study.organisation)}, {json_text(study.person_in_charge)}"
        words = f"{study.short}, of {whose}, {study.days}, digest {study.digest.hex()}"
        found.append(f"Study, as it is shown to the parties: {words}.")
    return found


def study_of(asked: AskedTerms, configured: Study | None, now_unix_s: float | None = None) -> Study | None:
    """The study that is asked for: that of the file which is named, otherwise the configured one.

    Raises ConfigurationError if the file is no study, WireError(STUDY_DATES) if it has not begun, or has ended.
    """
    study = configured if asked.study is None else load_study(asked.study)
    if study is not None:
        study.check_day(time.time() if now_unix_s is None else now_unix_s)
    return study


def plan_query(
    request: Request,
    *,
    roster: Roster,
    asked: Sequence[Member],
    learner: str,
    certificate: Envelope,
    random: RandomSource | None = None,
    now_unix_s: float | None = None,
    question: bool = False,
    stated_rows: Mapping[str, int] | None = None,
    understood: AbstractSet[str] = frozenset(OWN_FEATURES),
    study: Study | None = None,
) -> Plan:
    """The plan of a request for parties of this roster. Nothing is sent.

    - asked: the parties that get the seed of the total's tag, and may take part. learner: the member's name.
    - certificate: its signed Paillier key (learner.decryption). random: for the nonce and the opening key; None for the
      operating system's source. question: whether parties are only asked if they would accept it.
    - stated_rows: rows that parties stated with a signature, by name. Others count with the roster's lower bound.
    - understood: the features that the coordinator and all asked parties state.
    - study: the configured one, if the request names none.

    Raises PlanError (SlotOverflowError if sums do not fit), ConfigurationError, SchemaError, WireError(QUERY_INVALID,
    STUDY_DATES).
    """
    created = int(time.time() if now_unix_s is None else now_unix_s)
    colluders, cohort_min, max_parties = _cohort_of(request, len(asked))
    honest, most = cohort_min - colluders, min(len(asked), max_parties)
    study = study_of(request, study, created)
    now = stated_rows or {}
    max_rows = request.max_rows or sum(_most_rows(member, now.get(member.name)) for member in asked)
    stated = tuple(m for each in asked if (m := now.get(each.name, each.rows_at_least)) is not None)
    known = stated if request.epoch is None and request.persons is None else ()
    _check_persons(request, most)
    kind, chosen = _checked_kind(request, honest, known)
    cohorts = Cohorts(cohort_min, honest, max_parties) if max_parties <= MOST_PARTIES else None
    kind, noise_note = _following(kind, request, cohorts, understood)
    neighbours, masks_note = _mask_neighbours(request, kind, honest, most, understood)
    training = None if question else _announced(request.training, created, understood)
    if request.epoch is not None and not kind.takes_parts:
        # What they state is about all rows, and this kind's cost depends on how many there are.
        stated = ()
    expires = created + request.expires_after_s
    key = _key(certificate, expires)
    used = {
        Feature.QUESTION: question,
        Feature.MASK_GRAPH: neighbours > 0,
        Feature.SURVIVORS: bool(request.may_vanish),
        Feature.STUDY: study is not None,
        Feature.TRAINING: training is not None,
        Feature.SHORT_OPENING: key.public_key.subgroup is not None,
        **_features_of_kind(kind),
    }
    limits, bits = QueryLimits(max_rows, max_parties, request.d), request.fraction_bits_for(kind)
    draw = SystemRandom() if random is None else random
    nonce, opening = draw.bytes(NONCE_BYTES), OpeningSecret(draw.bytes(KEY_BYTES))
    query = Query(
        federation=roster.federation,
        learner=learner,
        nonce=nonce,
        roster_version=roster.version,
        schema=request.schema,
        kind=kind,
        encoding=fewest_ciphertexts(kind, limits, bits, key.public_key.bits),
        paillier_key=certificate,
        delta=request.delta,
        max_rows=max_rows,
        max_parties=max_parties,
        cohort_min=cohort_min,
        honest_parties=honest,
        created_at_unix_s=created,
        not_after_unix_s=expires,
        binding=Binding.seal(opening, asked, nonce),
        features=features_of(request.schema, *(feature for feature, is_used in used.items() if is_used)),
        **_phases(request),
        held_back=request.held_back,
        feature_map=request.feature_map,
        purpose=request.purpose,
        epoch=request.epoch,
        persons=kind.persons,
        noise_of_cohort=kind.cohorts is not None,
        mask_neighbours=neighbours,
        may_vanish=request.may_vanish or 0,
        training=training,
        study=study,
    )
    _check_size(query)
    complete = stated if len(stated) == len(asked) else None
    return Plan(
        query,
        key.public_key,
        colluders,
        complete,
        _cost(query, stated, complete),
        opening,
        chosen,
        masks_note=masks_note,
        noise_note=noise_note,
    )


def _cohort_of(request: Request, parties: int) -> tuple[int, int, int]:
    """c, cohort_min and max_parties of a request to so many parties, of which some may vanish. Raises PlanError."""
    may_vanish = request.may_vanish or 0
    colluders, cohort_min, max_parties = cohort_sizes(
        parties,
        colluders=request.colluders,
        cohort_min=request.cohort_min,
        max_parties=request.max_parties,
        may_vanish=may_vanish,
    )
    check_may_vanish(may_vanish, parties, colluders=colluders, cohort_min=cohort_min, max_parties=max_parties)
    return colluders, cohort_min, max_parties


def _features_of_kind(kind: AnyKind) -> dict[Feature, bool]:
    """Which of the features that depend on the kind, its noise and its unit are used."""
    return {
        Feature.COHORT_NOISE: kind.cohorts is not None,
        Feature.CLASS_PRODUCTS: has_class_products(kind),
        Feature.PERSONS: kind.persons is not None,
        Feature.CLASS_WEIGHTS: has_class_weights(kind),
    }


def _announced(training: Training | None, created_unix_s: int, understood: AbstractSet[str]) -> Training | None:
    """What a query says of the training that it is a round of; a question says nothing, as it needs no decision.

    Without it people are asked at each round: where a node does not know the feature, and once the training is over.
    """
    if training is None or Feature.TRAINING.value not in understood:
        return None
    return training if training.begins_unix_s <= created_unix_s <= training.ends_unix_s else None


def _following(
    kind: AnyKind, request: Request, cohorts: Cohorts | None, understood: AbstractSet[str]
) -> tuple[AnyKind, str]:
    """The kind with the noise of the cohort that answers, if that is possible; and which noise it has, in words.

    Noise for the smallest cohort protects no less, and has no feature. So it is what is asked for if one of the nodes
    states no features, or is said to state none. It suffices for whoever is left if parties vanish.
    """
    if kind.shares is None or (cohorts is not None and cohorts.smallest == cohorts.largest):
        return kind, ""
    least = "The noise is that of the smallest cohort, also if more parties answer"
    if request.cohort_noise == "smallest" or request.may_vanish:
        return kind, least
    if Feature.COHORT_NOISE.value not in understood:
        return kind, f"{least}: not every node that is asked states the feature {Feature.COHORT_NOISE.value}"
    if cohorts is None:
        return kind, f"{least}: of more than {MOST_PARTIES} parties no other is possible"
    try:
        followed = kind.following(cohorts)
    except PlanError as error:
        return kind, f"{least}: {error}"
    return followed, "The noise is that of the cohort that answers: the more parties, the less each of them adds"


def _mask_neighbours(
    request: Request, kind: AnyKind, honest: int, most: int, understood: AbstractSet[str]
) -> tuple[int, str]:
    """With how many others each party shares masks, 0 for all others; and why, in words.

    honest: h, of the smallest cohort. most: the parties of the largest one. So many neighbours that no order of the
    members lets a party refuse, also if it has not accepted all of them (dpcore.paillier.mask_graph, claim 3).

    Masks with all others protect no less, and have no feature. Raises PlanError if too few are asked for.
    """
    wanted = mask_neighbours(request.mask_neighbours)
    if request.may_vanish:
        if wanted:
            raise PlanError(
                f"{wanted} mask neighbours: parties may only vanish if every two share masks; ask for complete, or "
                "leave may_vanish out"
            )
        wanted = 0
    if wanted == 0 or (wanted is None and most <= LARGEST_COMPLETE):
        return 0, "Every two parties share masks" if most > LARGEST_COMPLETE else ""
    may_collude = most - (honest if kind.cohorts is None else kind.cohorts.honest_of(kind.cohorts.nearest(most)))
    needed = max(FEWEST_NEIGHBOURS, 2 * (may_collude // 2 + 1))
    if wanted is not None and wanted < needed:
        raise PlanError(
            f"{wanted} mask neighbours: {may_collude} of {most} parties may collude, and could divide the rest; "
            f"ask for {needed} or complete, lower colluders, or raise cohort_min"
        )
    neighbours = wanted or needed
    if is_complete(most, neighbours):
        return 0, "Every two parties share masks"
    if Feature.MASK_GRAPH.value not in understood:
        return 0, f"Every two parties share masks: not every node that is asked states the feature {Feature.MASK_GRAPH}"
    return neighbours, (
        f"In a cohort each party shares masks with {neighbours} others: {neighbours} have to collude to divide the "
        f"rest, and {amount(may_collude, 'party')} may"
    )


def _most_rows(party: Member, now: int | None) -> int:
    """How many rows are planned for: a party with more would have to refuse, and a wider slot costs little."""
    known = max(now or 0, party.rows_at_least or 0)
    return GROWTH * known if now else max(GROWTH * known, ROWS_OF_UNSTATED_PARTY)


def _phases(request: Request) -> dict[str, int]:
    return {
        "answer_within_s": request.answer_within_s,
        "prepare_within_s": request.prepare_within_s,
        "upload_within_s": request.upload_within_s,
        "max_attempts": request.attempts,
        "quorum_wait_s": request.quorum_wait_s or 0,
    }


def _key(certificate: Envelope, expires_unix_s: int) -> PaillierKey:
    key = PaillierKey.from_bytes(certificate.payload)
    if expires_unix_s > key.not_after_unix_s:
        raise ConfigurationError(
            "the Paillier key expires before the query; make the next with `rado learner rotate-key`, which keeps the "
            "present one for its totals"
        )
    return key


def _checked_kind(request: Request, honest: int, stated: tuple[int, ...]) -> tuple[AnyKind, str]:
    kind, why = request.kind_and_why(honest, stated)
    # Of kinds that protect no persons, this says so.
    kind = kind if kind.persons == request.persons else kind.of_persons(request.persons)
    assert isinstance(kind, AnyKind), "requests are for these kinds"
    kind.check_target(request.schema.label)
    if request.held_back is not None and not kind.takes_parts:
        raise PlanError(
            f"{kind.name} answers over all rows, and rows that are held back would count in it or change its bound: "
            "ask moments, gaussian without a support, statistics or gradients, or hold no rows back"
        )
    if request.feature_map is not None and not kind.takes_maps:
        raise PlanError(
            f"{kind.name} takes no feature map, as its bound is about values of the schema's coordinates: ask moments, "
            "gaussian, fixed-support with an epsilon, statistics or gradients"
        )
    if (length := kind.length(request.d)) > MAX_VALUES:
        fewer = kind.fewer(MAX_VALUES, request.d)
        raise PlanError(f"{length} values are more than the {MAX_VALUES} of one query: {fewer}")
    return kind, why


def _check_persons(request: Request, most: int) -> None:
    """Raise PlanError if a person may be at more parties than there are in the largest cohort."""
    if request.persons is not None and request.persons.parties > most:
        raise PlanError(
            f"a person may be at {request.persons.parties} parties and the query takes {most}: lower persons_may_repeat"
        )


def _check_size(query: Query) -> None:
    size_bytes = len(query.to_bytes())
    if size_bytes <= MAX_QUERY_BYTES:
        return
    shorter = query.kind.shorter
    raise PlanError(f"the query has {size_bytes} bytes, more than the limit of {MAX_QUERY_BYTES}; {shorter}")


def check_may_vanish(may_vanish: int, parties: int, *, colluders: int, cohort_min: int, max_parties: int) -> None:
    """Refuse more parties that may vanish than leave a safe total (dpcore.paillier.survivors). Raises PlanError.

    parties: so many are asked.
    """
    if not may_vanish:
        return
    if max_parties > MOST_SHARERS:
        raise PlanError(
            f"of at most {MOST_SHARERS} parties some may vanish, and this asks {max_parties}: lower max_parties, or "
            "leave may_vanish out"
        )
    usable = min(parties, max_parties)
    most = most_that_may_vanish(usable, colluders)
    if may_vanish > most:
        instead = f"lower may_vanish to {most}, ask more parties or lower colluders" if most else "leave may_vanish out"
        raise PlanError(
            f"{may_vanish} parties may vanish, and of {usable} beside {amount(colluders, 'colluder')} at most {most} "
            f"may, so that more of the smallest cohort are honest than the square of that number: {instead}"
        )
    if may_vanish > max_parties - cohort_min:
        raise PlanError(
            f"{may_vanish} parties may vanish, and a cohort has {cohort_min} to {max_parties}: lower cohort_min to "
            f"{max_parties - may_vanish}, or lower may_vanish to {max_parties - cohort_min}"
        )
    if not is_enough(cohort_min + may_vanish, cohort_min, colluders=colluders):
        raise PlanError(
            f"{may_vanish} parties may vanish, and of the smallest cohort {cohort_min - colluders} are honest: these "
            f"have to be more than {may_vanish**2}, its square; lower may_vanish, raise cohort_min or lower colluders"
        )


def cohort_sizes(
    parties: int, *, colluders: int | None, cohort_min: int | None, max_parties: int | None, may_vanish: int = 0
) -> tuple[int, int, int]:
    """The assumed number of colluders c, cohort_min and max_parties; None lets the plan choose. Raises PlanError."""
    colluders = max(0, min(1, parties - 2)) if colluders is None else colluders
    max_parties = parties if max_parties is None else max_parties
    usable = min(parties, max_parties)
    cohort_min = max(colluders + 2, usable - max(1, may_vanish)) if cohort_min is None else cohort_min
    if cohort_min > usable:
        raise PlanError(
            f"a cohort of at least {cohort_min} parties cannot form: the query asks {parties} and takes "
            f"{max_parties}; accept more parties (`rado learner accept`), or lower cohort_min or colluders"
        )
    if cohort_min <= colluders:
        raise PlanError(
            f"{colluders} colluders in a cohort of {cohort_min} leave no honest party; raise cohort_min to "
            f"{colluders + 2} or lower colluders"
        )
    return colluders, cohort_min, max_parties


def _cost(query: Query, stated: tuple[int, ...], complete: tuple[int, ...] | None) -> ReleaseCost | None:
    """The privacy cost if all sizes are known. Otherwise checks that the smallest known one is feasible on its own."""
    if not stated:
        return None
    # The smallest one among as many as must be honest: fewer shares than that are no noise of a pure answer.
    some = (min(stated),) * query.honest_parties
    counted = query.kind.protection(setting_of(query)).cost(complete or some, query.delta)
    return counted if complete else None


def megabytes(count: int) -> str:
    """A number of bytes, in millions."""
    return f"{count / 1e6:.1f}" if count >= 100_000 else f"{count / 1e6:.4f}"

"""A made-up federation, for which a learner's requests are planned as for a real one; nothing is sent."""

import hashlib
from collections.abc import Sequence

from dpcore.errors import ConfigurationError
from dpcore.paillier.public import PublicKey
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature
from dpcore.records.schema import Feature, Schema
from learner.planning import Plan, plan_query
from learner.requests import Request
from wire.envelopes import SigningKey
from wire.query import PaillierKey
from wire.roster import Member, Role, Roster, certificate_san

SENSITIVE_FEATURE, SENSITIVE_COLUMN = "the sensitive feature", "the sensitive column"
"""What a design protects, if no schema gives it a name."""

_FEDERATION, _LEARNER, _COORDINATOR = "plan", "learner", "coordinator"
# All timestamps of a plan.
_NOW_UNIX_S = 1_000_000_000
_YEAR_S = 365 * 24 * 3600


class MadeUpFederation:
    """A roster of parties with these row counts, and a learner with a key of this size."""

    def __init__(self, party_rows: Sequence[int], key_bits: int) -> None:
        key = SigningKey.generate(_FEDERATION)
        # It encrypts nothing, and has the size of a real one.
        public = PublicKey((1 << (key_bits - 1)) | 1)
        self._certificate = PaillierKey(_LEARNER, public, _NOW_UNIX_S, _NOW_UNIX_S + _YEAR_S).sign(key)
        names = [f"party-{number:05d}" for number in range(1, len(party_rows) + 1)]
        self.party_rows = dict(zip(names, party_rows, strict=True))
        members = [
            Member(Role.COORDINATOR, _COORDINATOR, b"", certificate_san(_FEDERATION, Role.COORDINATOR, _COORDINATOR)),
            Member(Role.LEARNER, _LEARNER, key.public_bytes, certificate_san(_FEDERATION, Role.LEARNER, _LEARNER)),
        ]
        for name, rows in self.party_rows.items():
            own = hashlib.sha256(name.encode()).digest()  # signs nothing, and differs from the others'
            members.append(Member(Role.PARTY, name, own, certificate_san(_FEDERATION, Role.PARTY, name), rows))
        self._roster = Roster(_FEDERATION, 1, _NOW_UNIX_S, tuple(members))

    def plan(self, request: Request) -> Plan:
        """The plan of a request. Raises what `plan_query` raises."""
        return plan_query(
            request,
            roster=self._roster,
            asked=self._roster.parties,
            learner=_LEARNER,
            certificate=self._certificate,
            now_unix_s=_NOW_UNIX_S,
            stated_rows=self.party_rows,
        )


def cohort_terms(parties: int, honest: int | None, may_vanish: int | None = None) -> dict[str, int]:
    """The options of a query of which `honest` parties' shares count if all answer; with None a learner's query's.

    If some may vanish, `honest` are those of the smallest cohort. A real cohort has two parties. A pool, of one, is
    planned for its figures. Raises ConfigurationError if so many parties have not as many honest ones.
    """
    gone = may_vanish or 0
    vanishing = {"may_vanish": gone} if gone else {}
    if honest is None and parties > 1:
        return vanishing
    smallest = parties - gone
    if gone and smallest < max(2, honest or 1):
        raise ConfigurationError(
            f"of {parties} parties {gone} may vanish, so that the smallest cohort has {max(smallest, 0)}: give fewer "
            "parties that may vanish, or fewer honest ones"
        )
    return {"colluders": smallest - (honest or 1), "cohort_min": smallest, **vanishing}


def made_up_schema(coordinates: int, *, bias: bool = True) -> Schema:
    """A schema of so many coordinates, all real-valued but the bias. Raises ConfigurationError if it has no feature."""
    reals = coordinates - int(bias)
    if reals < 1:
        raise ConfigurationError(f"{coordinates} coordinates leave no feature beside the bias: give at least 2")
    features = tuple(RealFeature(name=f"x{place}", lower=-1.0, upper=1.0) for place in range(1, reals + 1))
    return _schema(features, bias=bias)


def short_schema(coordinates: int, *, source: str | None, bias: bool) -> Schema:
    """A schema of so many coordinates in few bytes, for designs, whose figures depend on their number alone.

    source: the type of the sensitive column, a category of which has all coordinates; None without one. Raises
    ConfigurationError if it has no feature.
    """
    name, column, others = SENSITIVE_FEATURE, SENSITIVE_COLUMN, coordinates - int(bias)
    if others < 1:
        raise ConfigurationError("one coordinate, the bias, leaves no feature: give more coordinates, or no bias")
    features: list[Feature] = []
    if source == "boolean":
        features.append(BooleanFeature(name=name, column=column, true=("1",), false=("0",)))
    elif source == "numeric":
        features.append(RealFeature(name=name, column=column, lower=-1.0, upper=1.0))
    if others > len(features):
        values = tuple(map(str, range(others - len(features))))
        features.append(CategoryFeature(name="x", column=column if source == "category" else "x", values=values))
    return _schema(tuple(features), bias=bias)


def _schema(features: tuple[Feature, ...], *, bias: bool) -> Schema:
    return Schema(name="made-up", label=Label(column="y", positive=("1",)), features=features, bias=bias)

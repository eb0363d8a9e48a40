"""A source of answers in memory: real plans and contributions, without sockets and encryption."""

from dataclasses import dataclass, field

import numpy as np

from dpcore.errors import RadofedError
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.encoding import store
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from learner.composition import Unanswered
from learner.planning import Plan
from learner.requests import Request
from tests.learner.totals import FEDERATION, World
from wire.query import Query, setting_of


@dataclass
class MemoryAnswer:
    """An opened total."""

    query: Query
    integers: np.ndarray
    party_rows: dict[str, int]
    digest: bytes
    statement: PrivacyStatement
    attempts: int = 1


@dataclass
class Memory:
    """Parties with given records. refusal: raised from the `refuse_from`-th answer on, after this many attempts."""

    world: World
    records: dict[str, Records]
    refusal: RadofedError | None = None
    refuse_from: int = 10**9
    asked: list[Query] = field(default_factory=list)
    lost_attempts: int = 1
    lost: list[Unanswered] = field(default_factory=list)
    secret: bytes = bytes(32)

    def numbers(self, name: str) -> RowNumbers:
        return RowNumbers(RowKey(self.secret, FEDERATION, name, "data.csv"))

    def part(self, name: str, query: Query) -> Records:
        records = self.records[name]
        return records if query.held_back is None else self.numbers(name).part_of(records, query.held_back)

    @property
    def rows(self) -> int:
        return sum(rows or 0 for rows in self.world.rows.values())

    def plan(self, request: Request) -> Plan:
        return self.world.plan(request)

    @property
    def unanswered(self) -> list[Unanswered]:
        return self.lost

    def answer(self, plan: Plan) -> MemoryAnswer:
        self.lost = []
        if len(self.asked) >= self.refuse_from:
            self.lost = [Unanswered(plan.query, self.lost_attempts)]
            raise self.refusal
        query, number = plan.query, len(self.asked)
        self.asked.append(query)
        parts = [
            query.kind.contribution(
                query.seen(self.part(name, query)),
                query.encoding.fraction_bits,
                Computation(SeededRandom(f"{name}/{number}".encode())),
            )
            for name in self.records
        ]
        rows = {name: part.rows for name, part in self.records.items()}
        statement = statement_for(
            query.kind, tuple(rows.values()), query.delta, schema=query.schema, setting=setting_of(query)
        )
        return MemoryAnswer(query, sum(parts), rows, plan.query_id, statement)


def patients(rows: int, seed: int, flipped: float = 0.0) -> Records:
    """Records of the schema in tests.learner.totals: age, smoker, bias; smokers over half the age range are ill."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, rows), rng.choice([-1.0, 1.0], rows), np.ones(rows)])
    labels = np.where((x[:, 0] > 0) & (x[:, 1] > 0), 1, -1)
    labels = np.where(rng.random(rows) < flipped, -labels, labels).astype(np.int8)
    return Records(store(x), labels, np.ones(rows, dtype=bool))

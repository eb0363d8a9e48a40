"""A party with a history: its own node's parts answer queries, so that ledger and history are real."""

import json
import time
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS, plan_encoding
from dpcore.predicates.expressions import AtLeast, Equals, Flag
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import dp_feat_design, plain_design
from dpcore.records.features import BooleanFeature, CategoryFeature, Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from parties.config import PartyConfig
from parties.policy import Policy
from parties.report.gathering import gather
from radofed import __version__
from tests.federation.party import FEDERATION, Ada, World, ready

HTML = "<script>alert('ward')</script>"
BACKWARDS = "left\u202etfel"
CONTROL = "bell\x07\x1b[31m"
SCHEMA = Schema(
    name="stays",
    label=Label(column="stayed", positive=("yes",), negative=("no",)),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0),
        BooleanFeature(name="smoker", true=("yes",), false=("no",)),
        CategoryFeature(name="ward", values=(HTML, BACKWARDS, CONTROL)),
    ),
)
ROWS = 120
CELL = 123_457
"""A value of a row that no report may contain."""


def records(rows: int = ROWS) -> Records:
    random = np.random.RandomState(7)
    one = 1 << STORED_FRACTION_BITS
    features = np.zeros((rows, SCHEMA.d), dtype=np.int32)
    features[:, 0] = random.randint(-one, one + 1, rows)
    features[0, 0] = CELL
    features[:, 1] = np.where(random.rand(rows) < 0.4, one, -one)
    features[np.arange(rows), 2 + random.randint(0, 3, rows)] = one
    features[:, -1] = one
    return Records(features, np.where(random.rand(rows) < 0.5, 1, -1).astype(np.int8), np.full(rows, True))


def statistic(world: World, *predicates, sigma: int = 40, **changes):
    """A signed batch of counts, with Gaussian noise on each."""
    kind = StatisticQuery(predicates or (Flag("smoker"),), SCHEMA, GaussianShares(sigma))
    encoding = plan_encoding(largest_sum=10_000, max_parties=3, fraction_bits=0)
    return world.query(schema=SCHEMA, kind=kind, encoding=encoding, **changes)


def without_noise(world: World, *sensitive: str):
    """Rados without noise: of the design dp-feat if a feature is sensitive, otherwise plain."""
    design = dp_feat_design(SCHEMA, sensitive) if sensitive else plain_design(SCHEMA)
    return world.query(schema=SCHEMA, kind=RadosQuery(20, design))


def wards() -> tuple:
    return tuple(Equals("ward", value) for value in (HTML, BACKWARDS, CONTROL))


def old() -> tuple:
    return (AtLeast("age", Fraction(65)) & Flag("smoker"),)


def policy(world: World, **changes) -> Policy:
    fields = {
        "designs": ["statistic", "dp-feat"],
        "allow_unprotected": False,
        "limits": {"epsilon": "3", "delta": "1e-5", "unbounded_queries": 0},
    }
    return world.policy(**fields | changes)


def ada_at(world: World, directory, **changes) -> Ada:
    """The party, with the files that its commands read."""
    made = policy(world, **changes)
    ada = Ada(world, directory, records=records(), limits=made.limits.of_ledger, schema=SCHEMA, policy=made)
    (directory / "policy.toml").write_text(toml(made))
    key = Ed25519PublicKey.from_public_bytes(world.federation_key.public_bytes)
    (directory / "federation.pub").write_bytes(
        key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    (directory / "party.toml").write_text(
        f'federation = "{FEDERATION}"\nname = "ada"\ncoordinator = "localhost:7443"\n'
        'federation_key = "federation.pub"\nsigning_key = "signing.key"\nstate_directory = "."\n'
        'policy = "policy.toml"\nschema = "schema.toml"\n'
        'data = "data.csv"\n[tls]\nca = "ca.pem"\ncertificate = "certificate.pem"\nkey = "tls.key"\n'
    )
    return ada


def toml(made: Policy) -> str:
    """What of a policy these tests set."""
    limits = made.limits
    lines = [
        f"accepted_members = {list(made.accepted_members)}",
        f"designs = {list(made.designs)}",
        f"allow_unprotected = {str(made.allow_unprotected).lower()}",
        f"assumed_colluders = {made.assumed_colluders}",
        *(f'[[learners]]\nname = "{each.name}"\nsigning_key = "{each.signing_key}"' for each in made.learners),
        "[limits]",
        f'epsilon = "{float(limits.epsilon)}"\ndelta = "{float(limits.delta):.10f}"',
        f"unbounded_queries = {limits.unbounded_queries}",
        "[approval]",
        f"everything = {str(made.approval.everything).lower()}",
        *(
            f"[limits.studies.{json.dumps(number)}]\n"
            f'epsilon = "{float(each.epsilon)}"\ndelta = "{float(each.delta):.10f}"'
            for number, each in limits.studies.items()
        ),
    ]
    return "\n".join(lines)


def answer(ada: Ada, query) -> bytes:
    """Let the party answer: accept, compute, charge and upload. Returns the query's id."""
    envelope, cohort = ready(ada, query)
    ada.upload(envelope, cohort)
    return envelope.payload_hash


def report_of(ada: Ada, *, since: float = 0.0, until: float = float("inf")):
    now = time.time() + 1
    return gather(
        PartyConfig.load(ada.directory / "party.toml"), since or now - 86_400, min(until, now), now, __version__
    )

"""A query of every kind and form, together with every field that a query can have."""

import time
from dataclasses import replace
from datetime import date
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.numbers.fixed_point import ONE, plan_encoding
from dpcore.predicates.expressions import Affine, Clipped, NonNegative
from dpcore.predicates.notation import parse
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import FixedSupportDesign, GaussianDesign, dp_feat_design, joint_design, plain_design
from dpcore.records.clipping import Basis, Clip
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.features import EventTime
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.persons import Persons
from dpcore.records.schema import Classes, Count, Number, Schema
from dpcore.records.weight import Weight
from tests.federation.material import short_opening_key
from tests.federation.party import World
from wire.binding import Binding, OpeningSecret
from wire.features import Feature, features_of
from wire.query import Query
from wire.study import Study
from wire.training import Training

STUDY = Study(
    purpose="Which patients come back within a month?",
    protocol_number="EK 2026/17",
    organisation="University of Chur",
    person_in_charge="Dr. Ada Meier",
    begins=date(2026, 1, 1),
    ends=date(2099, 12, 31),
)

SCHEMA = Schema.from_toml("""
schema_version = 1
name = "every query"
[label]
column = "stayed"
positive = ["yes"]
negative = ["no"]
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 120.0
missing = "impute"
impute = 50.0
[[features]]
name = "dose"
type = "real"
lower = -1.0
upper = 1.0
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
missing = "impute"
impute = true
[[features]]
name = "ward"
type = "category"
values = ["a", "b", "c"]
missing = "impute"
impute = "b"
[[features]]
name = "clinic"
type = "category"
values = ["a", "b", "c"]
[[features]]
name = "heavy"
type = "threshold"
threshold = 90.0
missing = "impute"
impute = false
[[features]]
name = "tall"
type = "boolean"
true = ["yes"]
false = ["no"]
""")
OF_CLASSES = replace(SCHEMA, label=Classes(column="stayed", values=("yes", "no", "later"), missing="zero-vector"))
OF_NUMBERS = replace(SCHEMA, label=Number(column="stayed", lower=0.5, upper=90.0, log=True))
OVER = Count(column="stayed", upper=90, exposure="years", exposure_lower=0.5, exposure_upper=4.0)
OF_COUNTS = replace(SCHEMA, label=OVER)
TIME = EventTime(column="stayed", event="died", happened=("yes",), borders=(0.5, 2.0, 7.25))
OF_TIMES = replace(SCHEMA, label=TIME)
WEIGHED = replace(SCHEMA, weight=Weight(column="counts", upper=5.0, missing="no-weight", out_of_bounds="clip"))
CLIP = Clip(Fraction(7, 3), SCHEMA.bias)
D = SCHEMA.d
NEEDLE = Hat(0, 5, 7, 9)
MAP = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, None, -ONE, 0), ONE // 3, 1),
        Term(Hat(0, -ONE, 0, None)),
        Term(Hat(1, -5, 7, ONE), 0, 8),
        Term(NEEDLE),
        Term(PointMass(0, -ONE), 9),
        Term(Column(2)),
        Term(Column(3)),
        Term(Product(1, 6), 0, 2),
        *(Term(Hat(1, 1000 * place, 1000 * place + 400, 1000 * place + 900)) for place in range(8)),
    ),
    SCHEMA.bias,
)
PREDICATES = (
    *map(
        parse,
        (
            'x["age"] >= 65.5',
            'x["dose"] > 0.25',
            'x["ward"] == "b"',
            '~x["smoker"] | (x["heavy"] & (y == 1)) | (x["age"] >= 40)',
            '(3 * z["age"] - 2 * z["ward=b"] + 5 >= 0) & (y == -1) & x["smoker"]',
            'clip((3 * z["age"] - 2 * z["smoker"] + 5) / 16)',
            "true",
        ),
    ),
)
# Of these, a node, an operand or a root can be another one, and the table still has its canonical form.
LOOSE = (
    parse('x["smoker"] & x["heavy"]'),
    parse('x["smoker"]'),
    parse('x["age"] >= 40'),
    parse('~x["smoker"]'),
    parse('x["smoker"] | x["heavy"]'),
    parse("y == 1"),
)
IN_MAP = (
    Clipped(Affine((("1: age~0", 5), ("3: dose~6.51926e-09", -7)), 3), 4),
    NonNegative(Affine((("0: age", 2),), 1)),
    parse('x["smoker"]'),
)


def kinds() -> dict[str, object]:
    """Every kind without a map, by a name for people."""
    rados = {
        "plain": plain_design(SCHEMA),
        "dp-feat": dp_feat_design(SCHEMA, ["smoker"], Fraction(7, 2)),
        "dp-feat of several": dp_feat_design(SCHEMA, ["age", "dose", "smoker"], rounded=["age", "dose"]),
        "joint": joint_design(SCHEMA, "ward", 700),
        "fixed-support": FixedSupportDesign(Fraction(1, 4), CLIP, 3000),
        "gaussian": GaussianDesign(CLIP, 9000, Fraction(2, 3)),
    }
    basis = Basis.of(np.diag(np.arange(1.0, D + 1)))
    return {
        **{name: RadosQuery(5, design) for name, design in rados.items()},
        "moments": MomentsQuery(CLIP, 77, 1 << 20),
        "statistic": StatisticQuery(PREDICATES, SCHEMA, GaussianShares(7000)),
        "statistic, pure": StatisticQuery(LOOSE, SCHEMA, LaplaceShares(Fraction(20000, 3), 2)),
        "statistic, local": StatisticQuery(LOOSE, SCHEMA, LocalResponse(Fraction(5, 4))),
        "gradient": GradientQuery("logistic", tuple(range(-3, D - 3)), Fraction(1, 2), 1 << 20),
        "gradient in a basis": GradientQuery("hinge", tuple(range(D)), Fraction(3, 2), 1 << 22, basis),
    }


def every_query(world: World) -> dict[str, Query]:
    """Queries as a learner signs them, by a name: with a binding, of all rows or of a part, mapped or not."""
    mapped = {
        "moments": MomentsQuery(CLIP, 77, 1 << 20),
        "statistic": StatisticQuery(IN_MAP, SCHEMA, GaussianShares(7000), MAP),
        "gradient": GradientQuery("logistic", tuple(range(MAP.d)), Fraction(1, 2), 1 << 20),
        "gaussian": RadosQuery(5, GaussianDesign(CLIP, 9000)),
    }
    made = {name: _query(world, kind) for name, kind in kinds().items()}
    made |= {f"{name} of mapped records": _query(world, kind, feature_map=MAP) for name, kind in mapped.items()}
    classes = {
        "moments": ClassMomentsQuery(CLIP, 77, 1 << 20, 3),
        "statistic": StatisticQuery((parse('y == "later"'),), OF_CLASSES, GaussianShares(7000)),
        "gradient": ClassGradientQuery("logistic", tuple(range(3 * D)), Fraction(1, 2), 1 << 20, None, 3),
    }
    made |= {f"{name} of classes": _query(world, kind, schema=OF_CLASSES) for name, kind in classes.items()}
    weighted = (
        (
            "two classes",
            SCHEMA,
            GradientQuery("logistic", tuple(range(D)), Fraction(1, 2), 1 << 20, class_weights=(2, 5)),
        ),
        ("classes", OF_CLASSES, replace(classes["gradient"], class_weights=(3, 1, 1000))),
    )
    for words, schema, kind in weighted:
        features = (Feature.BASE.value, Feature.CLASS_WEIGHTS.value)
        made[f"gradient with weights of {words}"] = _query(world, kind, schema=schema, features=features)
    made["moments with products of each class"] = _query(
        world,
        replace(classes["moments"], products_of_each_class=True),
        schema=OF_CLASSES,
        features=(Feature.BASE.value, Feature.CLASS_PRODUCTS.value),
    )
    about = (parse("y >= 30"), parse('(y > 2.5) & x["smoker"]'), parse("y"), parse("y < 1/3"), parse("y.square"))
    errors = ("over", "under", "squared", "beyond")
    about += tuple(parse(f'{name}((3 * z["age"] - 1) / {4 + step}, 0.5)') for step, name in enumerate(errors))
    numbers = {
        "moments": NumberMomentsQuery(CLIP, 77, 1 << 20, OF_NUMBERS.label.coding),
        "statistic": StatisticQuery(about, OF_NUMBERS, GaussianShares(7000)),
        "gradient": NumberGradientQuery("squared", tuple(range(D)), Fraction(1, 2), 1 << 20),
    }
    gains = ('gain((3 * z["age"] - 1) / 4, 0.5, 2, 9)', 'loss((3 * z["age"]) / 5, 1/3, 2, 12)')
    terms = ("y.exposure", "count(7)", "deviance(-1.5, 20)", *gains)
    counts = {
        "statistic": StatisticQuery(tuple(map(parse, terms)), OF_COUNTS, GaussianShares(7000)),
        "moments": NumberMomentsQuery(CLIP, 77, 1 << 20, OVER.coding),
        "gradient": NumberGradientQuery("poisson", tuple(range(D)), Fraction(1, 2), 1 << 20, None, OVER.coding),
    }
    times = {
        "moments": NumberMomentsQuery(CLIP, 77, 1 << 20, TIME.coding),
        "statistic": StatisticQuery((parse("y.event"), parse("y.time > 7.25")), OF_TIMES, GaussianShares(7000)),
        "gradient": HazardGradientQuery("hazards", tuple(range(3 + D)), Fraction(1, 2), 1 << 20, None, 3, 2),
    }
    of_labels = (("a number", OF_NUMBERS, numbers), ("a count", OF_COUNTS, counts), ("a time", OF_TIMES, times))
    for words, schema, of_label in of_labels:
        options = {"schema": schema, "features": features_of(schema)}
        made |= {f"{name} of {words}": _query(world, kind, **options) for name, kind in of_label.items()}
    weighed = {
        "moments": MomentsQuery(CLIP, 77, 1 << 20, weighted=True),
        "gradient": GradientQuery("logistic", tuple(range(-3, D - 3)), Fraction(1, 2), 1 << 20, weighted=True),
    }
    options = {"schema": WEIGHED, "features": features_of(WEIGHED)}
    made |= {f"{name} by weight": _query(world, kind, **options) for name, kind in weighed.items()}
    mapped_classes = {
        "moments": classes["moments"],
        "gradient": ClassGradientQuery("logistic", tuple(range(3 * MAP.d)), Fraction(1, 2), 1 << 20, None, 3),
    }
    made |= {
        f"{name} of mapped records of classes": _query(world, kind, schema=OF_CLASSES, feature_map=MAP)
        for name, kind in mapped_classes.items()
    }
    return made | {
        "moments of a part": _query(world, kinds()["moments"], held_back=HeldBack(Fraction(1, 5), Part.HELD_BACK)),
        "moments of a piece": _query(
            world, kinds()["moments"], held_back=HeldBack(Fraction(1, 5), Part.TRAINING, pieces=4, piece=1)
        ),
        "moments of an epoch": _query(world, kinds()["moments"], epoch="2026-11"),
        "moments after a quorum": _query(world, kinds()["moments"], quorum_wait_s=20),
        "moments for the cohort": _query(
            world,
            replace(kinds()["moments"], among=Cohorts(3, 2, 3)),
            noise_of_cohort=True,
            features=(Feature.BASE.value, Feature.COHORT_NOISE.value),
        ),
        "moments of parties of which one may vanish": _query(
            world,
            kinds()["moments"],
            may_vanish=1,
            max_parties=4,
            features=(Feature.BASE.value, Feature.SURVIVORS.value),
        ),
        "moments with a mask graph": _query(
            world,
            kinds()["moments"],
            mask_neighbours=22,
            features=(Feature.BASE.value, Feature.MASK_GRAPH.value),
        ),
        **{
            f"{name} of persons": _query(
                world,
                kinds()[name].of_persons(Persons(2)),
                persons=Persons(2),
                features=(Feature.BASE.value, Feature.PERSONS.value),
            )
            for name in ("moments", "gradient", "statistic")
        },
        "moments for a purpose": _query(world, kinds()["moments"], purpose="Study 17"),
        "moments of a study": _query(
            world,
            kinds()["moments"],
            study=STUDY,
            features=(Feature.BASE.value, Feature.STUDY.value),
        ),
        "moments of a training": _query(
            world,
            kinds()["moments"],
            training=training_of(SCHEMA),
            features=(Feature.BASE.value, Feature.TRAINING.value),
        ),
        "moments with short opening": _query(
            replace(world, key=short_opening_key()),
            kinds()["moments"],
            features=(Feature.BASE.value, Feature.SHORT_OPENING.value),
        ),
    }


def training_of(schema, **changes) -> Training:
    """A training of queries over this schema, from this moment on."""
    now = int(time.time())
    fields = {
        "name": bytes(range(32)),
        "estimator": "newton",
        "options": "rounds=10",
        "schema_digest": schema.unweighted.digest,
        "epsilon": Fraction(1),
        "delta": Fraction(1, 10**6),
        "queries": 10,
        "max_attempts": 3,
        "begins_unix_s": now - 60,
        "ends_unix_s": now + 7 * 24 * 3600,
    }
    return Training(**(fields | changes))


def step_and_needle(world: World) -> tuple[Query, Query]:
    """Two queries of one map but for the knots of one of its hats: thirty years, or one age."""

    def asked(hat: Hat) -> Query:
        terms = tuple(Term(hat) if term.function == NEEDLE else term for term in MAP.terms)
        return _query(world, kinds()["moments"], feature_map=FeatureMap(terms, SCHEMA.bias))

    needle, step = asked(NEEDLE), asked(Hat(0, -ONE // 4, 0, ONE // 4))
    return step, replace(step, feature_map=needle.feature_map)


def _query(world: World, kind: object, **changes) -> Query:
    nonce = bytes(range(16))
    secret = OpeningSecret(X25519PrivateKey.generate().private_bytes_raw())
    bits = 8 if isinstance(kind, MomentsQuery | GradientQuery) else 10
    if isinstance(kind, StatisticQuery) and kind.is_local:
        bits = 0
    return world.query(
        **{"schema": SCHEMA, **changes},
        kind=kind,
        encoding=plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=bits),
        binding=Binding.seal(secret, world.roster.parties, nonce),
        nonce=nonce,
    )

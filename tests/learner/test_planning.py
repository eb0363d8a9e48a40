import json
import re
import time
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.dp_feat import account
from dpcore.errors import ConfigurationError, PlanError, SchemaError, SlotOverflowError
from dpcore.numbers.fixed_point import check_fits
from dpcore.paillier.mask_graph import is_complete
from dpcore.paillier.packing import ciphertext_count
from dpcore.predicates.expressions import Flag
from dpcore.rados.designs import DpFeatDesign, PlainDesign, SensitiveFeature
from dpcore.records.features import Classes
from dpcore.records.schema import BooleanFeature, CategoryFeature, RealFeature, Schema
from learner.decryption import VALIDITY_S, LearnerKey
from learner.requests import MomentsRequest, RadosRequest, StatisticRequest
from radofed.cli.entry_point import run
from radofed.planning.design_cost import PlanRequest
from radofed.planning.designs import plan_cost
from tests.federation.learner import REQUEST, SCHEMA, World
from wire.envelopes import MessageType
from wire.features import Feature
from wire.query import PaillierKey, Query, open_query, setting_of

PLAIN = RadosRequest(schema=SCHEMA, rados=40, design="plain")


def named(count, rows=1000):
    return {f"party-{i}": rows for i in range(count)}


def test_every_receiver_opens_what_is_planned(world):
    plan = world.plan()
    envelope = world.learner_key.sign(MessageType.QUERY, plan.query.to_bytes())
    opened = open_query(envelope, world.roster, now_unix_s=time.time())
    assert opened.query == plan.query
    assert opened.ciphertexts == plan.ciphertexts
    assert plan.upload_bytes_per_party == opened.ciphertexts * opened.public_key.ciphertext_bytes
    assert plan.query.kind.design == DpFeatDesign((SensitiveFeature(1, "smoker"),))


def test_every_plan_is_another_query(world):
    assert world.plan().query.nonce != world.plan().query.nonce


@pytest.mark.parametrize(
    ("parties", "colluders", "cohort_min", "honest"),
    [(2, 0, 2, 2), (3, 1, 3, 2), (4, 1, 3, 2), (5, 1, 4, 3), (10, 1, 9, 8)],
)
def test_default_cohorts(learner_key, parties, colluders, cohort_min, honest):
    plan = World(learner_key, named(parties)).plan(PLAIN)
    found = (plan.colluders, plan.query.cohort_min, plan.query.honest_parties, plan.query.max_parties)
    assert found == (colluders, cohort_min, honest, parties)


MANY = named(60)
NOISY = MomentsRequest(SCHEMA, epsilon=Fraction(1))


@pytest.mark.parametrize(
    ("changes", "neighbours"),
    [
        ({}, 20),
        ({"cohort_noise": "smallest"}, 20),
        # 20 of any cohort may collude, or of all 60 parties 20 beside the 40 whose noise counts.
        ({"colluders": 20, "cohort_min": 60}, 22),
        ({"colluders": 20, "cohort_min": 40}, 22),
        ({"colluders": 1, "cohort_min": 40, "cohort_noise": "smallest"}, 22),
        # So many that it would be all others.
        ({"colluders": 58, "cohort_min": 60}, 0),
        ({"mask_neighbours": "complete"}, 0),
        ({"mask_neighbours": "30"}, 30),
        ({"mask_neighbours": 30}, 30),
        ({"mask_neighbours": "60"}, 0),
        ({"max_parties": 40}, 0),
    ],
)
def test_of_many_parties_each_shares_masks_with_as_many_as_colluders_require(learner_key, changes, neighbours):
    query = (plan := World(learner_key, MANY).plan(replace(NOISY, **changes))).query
    assert query.mask_neighbours == neighbours
    assert (Feature.MASK_GRAPH.value in query.features) == (neighbours > 0)
    assert not neighbours or f"each party shares masks with {neighbours} others" in plan.masks_note
    # No party that accepts at least those that it must refuses, in any order (dpcore.paillier.mask_graph, claim 3).
    assert all(
        neighbours > members - query.honest_of(members)
        for members in range(query.cohort_min, query.max_parties + 1)
        if not is_complete(members, neighbours)
    )


@pytest.mark.parametrize(("parties", "neighbours"), [(40, 0), (41, 20)])
def test_of_few_parties_every_two_share_masks(learner_key, parties, neighbours):
    plan = World(learner_key, named(parties)).plan(NOISY)
    assert plan.query.mask_neighbours == neighbours
    assert bool(plan.masks_note) == (neighbours > 0)
    assert any("shares masks" in sentence for sentence in plan.sentences()) == (neighbours > 0)
    whole = World(learner_key, named(parties)).plan(replace(NOISY, mask_neighbours="complete"))
    assert whole.query.mask_neighbours == 0


def test_a_node_that_knows_no_mask_graph_shares_masks_with_all(learner_key):
    plan = World(learner_key, MANY).plan(NOISY, understood=frozenset({Feature.BASE.value}))
    assert plan.query.mask_neighbours == 0
    assert "not every node that is asked states the feature mask-graph" in plan.masks_note


def test_too_few_mask_neighbours_are_refused_with_the_number_that_suffices(learner_key):
    with pytest.raises(PlanError, match="20 of 60 parties may collude, and could divide the rest; ask for 22 or"):
        World(learner_key, MANY).plan(replace(NOISY, colluders=20, cohort_min=60, mask_neighbours="20"))


@pytest.mark.parametrize("wrong", ["18", "21", "-20", "20.0", "some", "", "\u0662\u0660"])
def test_a_number_of_mask_neighbours_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="give an even number, at least 20, or complete"):
        replace(NOISY, mask_neighbours=wrong)


def test_more_colluders_ask_for_a_larger_cohort(learner_key):
    plan = World(learner_key, named(6)).plan(replace(PLAIN, colluders=4))
    assert (plan.query.cohort_min, plan.query.honest_parties) == (6, 2)


@pytest.mark.parametrize(
    ("parties", "change", "says"),
    [
        (1, {}, "at least 2 parties cannot form: the query asks 1 and takes 1"),
        (3, {"cohort_min": 4}, "at least 4 parties cannot form: the query asks 3 and takes 3"),
        (5, {"max_parties": 2, "colluders": 1}, "the query asks 5 and takes 2"),
        (3, {"colluders": 2, "cohort_min": 2}, "raise cohort_min to 4 or lower colluders"),
    ],
)
def test_impossible_cohorts_are_refused(learner_key, parties, change, says):
    with pytest.raises(PlanError, match=says):
        World(learner_key, named(parties)).plan(replace(PLAIN, **change))


def test_slots_are_planned_for_growth(learner_key):
    """The roster's number is a lower bound, and may be old: a party with more rows would have to refuse."""
    world = World(learner_key, {"a": 10, "b": None})
    assert world.plan(PLAIN).query.max_rows == 2 * 1_000_000
    assert world.plan(PLAIN, stated_rows={"a": 3000, "b": 20}).query.max_rows == 4 * 3020
    assert world.plan(PLAIN, stated_rows={"a": 5}).query.max_rows == 4 * 10 + 1_000_000
    assert World(learner_key, {"a": 300_000, "b": 10}).plan(PLAIN).query.max_rows == 4 * 300_000 + 1_000_000


def test_a_pure_answer_is_planned_where_only_some_parties_state_their_rows(learner_key):
    """It was refused for want of honest parties: one share of its noise counted where the query has two."""
    pure = StatisticRequest(SCHEMA, (Flag("smoker"),), epsilon=Fraction(1), pure=True)
    plan = World(learner_key, {"a": 10, "b": None, "c": None}).plan(pure)
    assert plan.cost is None
    assert plan.query.honest_parties == 2
    assert World(learner_key, {"a": 10, "b": 20, "c": 30}).plan(pure).cost.epsilon_if_others_collude <= 1


@given(max_rows=st.integers(1, 1 << 26), fraction_bits=st.integers(0, 30), parties=st.integers(2, 40))
def test_the_encoding_holds_what_it_was_planned_for(learner_key, max_rows, fraction_bits, parties):
    request = replace(PLAIN, max_rows=max_rows, fraction_bits=fraction_bits)
    encoding = World(learner_key, named(parties)).plan(request).query.encoding
    check_fits(encoding, largest_sum=max(max_rows << fraction_bits, max_rows), max_parties=parties)
    assert encoding.fraction_bits == fraction_bits


def test_overflow_names_the_number_to_change(world):
    # 2^41 rows in units of 2^-20 need 61 + 1 bits and one more for the sign: two more than three parties have.
    request = replace(PLAIN, max_rows=1 << 41, fraction_bits=20)
    assert world.plan(replace(request, fraction_bits=19)).query.encoding.slot_bits == 64
    with pytest.raises(SlotOverflowError, match="lower fraction_bits by 1"):
        world.plan(request)


@pytest.mark.parametrize(
    ("rows", "rados", "bits", "fewer"),
    [(10_000, 7000, None, True), (50_000, 1000, None, True), (1000, 10, None, False), (50_000, 1000, 14, False)],
)
def test_a_session_chooses_the_bits_that_rado_plan_names(learner_key, rows, rados, bits, fewer):
    """Fewer than 16 bits if that saves ciphertexts, else 16, or the requested number."""
    request = replace(PLAIN, rados=rados, fraction_bits=bits)
    world = World(learner_key, named(4, rows))
    plan = world.plan(request, stated_rows=world.rows)
    encoding = plan.query.encoding
    sizes = plan_cost(
        PlanRequest(
            design="plain",
            party_rows=(rows,) * 4,
            rados=rados,
            fraction_bits=bits,
            coordinates=SCHEMA.d,
            key_bits=plan.public_key.bits,
        )
    ).sizes
    assert (sizes.fraction_bits, sizes.slot_bits) == (encoding.fraction_bits, encoding.slot_bits)
    assert sizes.ciphertexts == plan.ciphertexts
    words = f"slots of {encoding.slot_bits} bits, values with {encoding.fraction_bits} fraction bits"
    assert words in plan.sentences()[1]
    usual = world.plan(replace(request, fraction_bits=16), stated_rows=world.rows)
    assert encoding.fraction_bits == bits if bits else (encoding.fraction_bits < 16) is fewer
    assert (plan.ciphertexts < usual.ciphertexts) is fewer


SENT = {
    "plain": ("--rados", "40"),
    "dp-feat": ("--rados", "40", "--sensitive", "smoker"),
    "dp-feat, within an epsilon": ("--epsilon", "1", "--sensitive", "smoker"),
    "dp-feat, truncated": ("--rados", "4", "--sensitive", "smoker", "--epsilon-per-rado", "4"),
    "dp-feat, joint": ("--rados", "40", "--sensitive", "smoker", "--joint", "--epsilon", "1"),
    "fixed-support": ("--rados", "40"),
    "fixed-support, noised": ("--rados", "40", "--epsilon", "1"),
    "gaussian": ("--rados", "40", "--epsilon", "1", "--support", "1/4"),
    "moments": ("--epsilon", "1"),
}


@pytest.mark.parametrize("name", SENT)
def test_the_query_that_is_sent_has_the_figures_of_rado_plan(setting, capsys, tmp_path, name):
    file = tmp_path / "schema.toml"
    file.write_text(SCHEMA.to_toml())
    options = ("--schema", str(file), "--design", name.partition(",")[0], *SENT[name])
    asks = ("learner", "query", "--config", str(setting.config_file))
    # From its answer on it is known how many rows the parties have, as a plan knows it.
    assert run([*asks, "--schema", str(file), "--design", "plain", "--rados", "1"]) == 0
    assert run([*asks, *options]) == 0
    query = Query.from_bytes(setting.stub.submitted[-1].payload)
    capsys.readouterr()
    key = PaillierKey.from_bytes(query.paillier_key.payload).public_key
    rows = tuple(setting.rows.values())
    planned = ("plan", *options, "--party-rows", ",".join(map(str, rows)), "--key-bits", str(key.bits))
    assert run([*planned, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    # One ciphertext more binds the total to its query.
    ciphertexts = ciphertext_count(query.length, query.encoding, key.bits) + 1
    assert (found["ciphertexts"], found["upload_bytes_per_party"]) == (ciphertexts, ciphertexts * key.ciphertext_bytes)
    assert (found["slot_bits"], found["fraction_bits"]) == (query.encoding.slot_bits, query.encoding.fraction_bits)
    cost = query.kind.protection(setting_of(query)).cost(rows, query.delta)
    told = "marginal_epsilon" if name == "plain" else "epsilon"
    figures = (None, None) if cost is None else (cost.epsilon, cost.epsilon_if_others_collude)
    assert (found[told], found[f"{told}_if_others_collude"]) == figures
    assert (cost is None) is (name == "fixed-support")
    assert found["rados"] == query.kind.amounts.get("rados")


def test_moments_of_too_many_coordinates_are_refused_with_what_fits(learner_key):
    """A category of so many values is a schema of few bytes."""
    many = CategoryFeature(name="x", values=tuple(map(str, range(24_000))))
    request = MomentsRequest(replace(SCHEMA, features=(many,)), epsilon=Fraction(1))
    with pytest.raises(PlanError, match="values are more than the 268435456 of one query: use fewer coordinates"):
        World(learner_key, named(3)).plan(request)


def test_products_of_each_class_are_planned_with_their_feature_or_refused(learner_key):
    """Of 3,000 values and 100 classes the products of all are a query, and those of each class are too many values."""
    world, label = World(learner_key, named(3)), Classes(column="y", values=tuple(map(str, range(100))))
    schema = replace(SCHEMA, label=label)
    asked = MomentsRequest(schema, epsilon=Fraction(1), products_of_each_class=True)
    query, of_all = world.plan(asked).query, world.plan(replace(asked, products_of_each_class=False)).query
    assert Feature.CLASS_PRODUCTS.value in query.features
    assert Feature.CLASS_PRODUCTS.value not in of_all.features
    products = schema.d * (schema.d + 1) // 2 - 1
    assert query.length - of_all.length == 99 * products
    # The noise is that of products of all, but for the slack of more values.
    assert of_all.kind.share_sigma <= query.kind.share_sigma <= 1.0001 * of_all.kind.share_sigma
    many = CategoryFeature(name="x", values=tuple(map(str, range(3_000))))
    with pytest.raises(PlanError, match="of one query: leave out products_of_each_class, which ask for 100 sums"):
        world.plan(replace(asked, schema=replace(schema, features=(many,))))
    with pytest.raises(ConfigurationError, match="only a label of several classes has products of each class"):
        MomentsRequest(SCHEMA, epsilon=Fraction(1), products_of_each_class=True)


def test_rados_within_an_epsilon_are_as_many_as_the_smallest_party_can_charge(learner_key):
    """A pool of 3000 rows would allow more than a party of 22 has a figure for, which refused the query."""
    request = replace(PLAIN, design="dp-feat", sensitive="smoker", rados=None, epsilon=Fraction(2))
    world = World(learner_key, {"ada": 22, "bo": 2978})
    plan = world.plan(request, stated_rows=world.rows)
    assert 0 < plan.query.kind.rados < 1000
    assert plan.cost.epsilon < 2
    with pytest.raises(PlanError):
        world.plan(replace(request, rados=plan.query.kind.rados + 1, epsilon=None), stated_rows=world.rows)


@pytest.mark.parametrize(
    "change",
    [{"design": "gaussian", "epsilon": Fraction(3)}, {"design": "fixed-support"}],
)
def test_fraction_bits_of_noise_and_clipping_are_fixed(learner_key, change):
    rows = named(4, 200_000)
    assert World(learner_key, rows).plan(replace(PLAIN, rados=1000, **change)).query.encoding.fraction_bits == 16
    assert World(learner_key, rows).plan(replace(PLAIN, rados=1000)).query.encoding.fraction_bits < 16


def test_an_empty_design_says_what_would_work(world):
    with pytest.raises(PlanError, match=r"raise epsilon per rado to at least .* or draw without truncation"):
        world.plan(replace(REQUEST, epsilon_per_rado=Fraction(1, 1000)))


def test_an_infinite_epsilon_is_refused(world):
    with pytest.raises(PlanError):
        world.plan(replace(REQUEST, epsilon_per_rado=Fraction(1, 10)))


def test_an_unstated_party_does_not_hide_an_empty_design(learner_key):
    some = World(learner_key, {"a": 100, "b": None, "c": None})
    with pytest.raises(PlanError, match="without truncation"):
        some.plan(replace(REQUEST, epsilon_per_rado=Fraction(1, 1000)))
    plan = some.plan()
    assert plan.cost is None
    assert plan.party_rows is None
    assert any("does not state every party's rows" in line for line in plan.sentences())


def test_the_figures_are_the_accountants(world):
    plan = world.plan()
    assert plan.party_rows == (100, 200, 300)
    counted = account((100, 200, 300), 40, None, Fraction(1, 1_000_000))
    assert (plan.cost.epsilon, plan.cost.epsilon_lower) == (counted.epsilon, counted.epsilon_lower)
    assert plan.cost.epsilon_if_others_collude == counted.epsilon_if_others_collude
    text = " ".join(plan.sentences())
    printed = [float(figure) for figure in re.findall(r"at most (\d+\.\d+)", text)]
    figures = [counted.epsilon, counted.epsilon_if_others_collude]
    assert all(0 <= p - c < 0.01 for p, c in zip(printed, figures, strict=True))
    assert f"{plan.ciphertexts} ciphertexts" in text
    assert "without truncation" in text


def test_plain_protects_only_boolean_marginals(world):
    plan = world.plan(PLAIN)
    assert plan.query.kind.design == PlainDesign((1,))
    assert plan.cost.epsilon == account((100, 200, 300), 40, None, Fraction(1, 1_000_000)).epsilon
    assert any(
        "one record's value of 'smoker', within that coordinate's own values" in line for line in plan.sentences()
    )


def test_plain_without_booleans_claims_nothing(world):
    plan = world.plan(replace(PLAIN, schema=replace(SCHEMA, features=SCHEMA.features[:1])))
    assert plan.query.kind.design == PlainDesign()
    assert plan.cost is None
    assert any("has no privacy bound" in line for line in plan.sentences())


def test_truncated_rados_name_theorem_6(learner_key):
    large = World(learner_key, named(3, 20_000))
    lines = large.plan(replace(REQUEST, epsilon_per_rado=Fraction(1, 2), max_rows=None)).sentences()
    assert any("Theorem 6 of Nock, Patrini and Friedman (2015) alone would say 20." in line for line in lines)
    assert any("epsilon 0.5 per rado" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"design": "laplace"}, "choose one of plain, dp-feat, fixed-support, gaussian"),
        ({"design": "gaussian"}, "gaussian takes no sensitive"),
        ({"design": "gaussian", "sensitive": None}, "give the epsilon"),
        ({"design": "plain"}, "plain takes no sensitive"),
        ({"joint": True}, "give the epsilon"),
        ({"joint": True, "epsilon": Fraction(1), "rounded": ("smoker",)}, "joint takes no rounded"),
        ({"rados": None}, "dp-feat needs the number of rados"),
        ({"rados": None, "joint": True, "epsilon": Fraction(1)}, "dp-feat with joint needs the number of rados"),
        ({"design": "plain", "sensitive": None, "rados": None}, "plain needs the number of rados"),
        ({"sensitive": None}, "those of the schema: smoker"),
        ({"delta": Fraction(0)}, "between 0 and 1"),
        ({"delta": Fraction(1)}, "between 0 and 1"),
        ({"rados": 0}, "rados is 0; it must be at least 1"),
    ],
)
def test_invalid_requests_are_refused(change, says):
    with pytest.raises(ConfigurationError, match=says):
        replace(REQUEST, **change)


def test_the_sensitive_feature_must_be_one(world):
    with pytest.raises(PlanError, match=r"'age' is a number.*--rounded age"):
        world.plan(replace(REQUEST, sensitive="age"))
    with pytest.raises(SchemaError, match="did you mean 'smoker'"):
        world.plan(replace(REQUEST, sensitive="smokre"))


def test_a_second_feature_of_the_sensitive_column_is_refused(world):
    one_hot = CategoryFeature(name="smoking", column="smoker", values=("yes", "no"))
    schema = replace(SCHEMA, features=(*SCHEMA.features, one_hot))
    with pytest.raises(PlanError, match="smoking=yes, smoking=no derives from 'smoker' too"):
        world.plan(replace(REQUEST, schema=schema))


def test_a_key_that_expires_before_the_query_is_refused(learner_key, world):
    old = LearnerKey(learner_key.secret, int(time.time()) - VALIDITY_S)
    with pytest.raises(ConfigurationError, match="rado learner rotate-key"):
        World(old, dict(world.rows)).plan()


def test_more_values_than_a_query_may_have(world):
    with pytest.raises(PlanError, match="ask for at most 89478485 rados"):
        world.plan(replace(PLAIN, rados=89_478_486))


def test_2000_rados_of_500_features_are_planned(world):
    features = tuple(RealFeature(name=f"x{i}", lower=0.0, upper=1.0) for i in range(499))
    flag = BooleanFeature(name="flag", true=("1",), false=("0",))
    schema = Schema(name="wide", label=SCHEMA.label, features=(*features, flag))
    plan = world.plan(RadosRequest(schema=schema, rados=2000, design="plain"))
    assert plan.query.length == 2000 * 501
    assert plan.upload_bytes_per_party < 20_000_000


def test_a_schema_too_long_to_send(world):
    values = tuple(f"{i:01000d}" for i in range(600))
    schema = replace(SCHEMA, features=(CategoryFeature(name="c", values=values),))
    with pytest.raises(PlanError, match="shorten the schema"):
        world.plan(RadosRequest(schema=schema, rados=2, design="plain"))


def test_a_plan_says_what_a_second_attempt_costs(learner_key):
    large = World(learner_key, named(3, 20_000))
    plan = large.plan(REQUEST)
    said = plan.sentences()[-1]
    assert "is made only if you ask for it" in said
    twice = float(said.split("collusion becomes ")[1].split()[0])
    assert 1.2 * plan.cost.epsilon_if_others_collude < twice < 2 * plan.cost.epsilon_if_others_collude
    once = large.plan(replace(REQUEST, attempts=1))
    assert not any("Another attempt" in sentence for sentence in once.sentences())


VANISHING = replace(NOISY, may_vanish=1)


def test_parties_may_vanish_with_the_noise_of_the_smallest_cohort(learner_key):
    plan = World(learner_key, named(5)).plan(VANISHING)
    query = plan.query
    assert (query.may_vanish, query.cohort_min, query.noise_of_cohort) == (1, 4, False)
    assert Feature.SURVIVORS.value in query.features
    assert any("If up to 1 of the parties that accept vanish" in sentence for sentence in plan.sentences())
    assert any("The noise is always that of the smallest cohort, 4 parties" in each for each in plan.sentences())
    # The smallest cohort has room for them.
    assert World(learner_key, named(12)).plan(replace(NOISY, may_vanish=2)).query.cohort_min == 10
    none = World(learner_key, named(5)).plan(replace(NOISY, may_vanish=0)).query
    assert (none.may_vanish, Feature.SURVIVORS.value in none.features) == (0, False)


def test_of_many_parties_that_may_vanish_every_two_share_masks(learner_key):
    world = World(learner_key, named(50))
    assert world.plan(VANISHING).query.mask_neighbours == 0
    with pytest.raises(PlanError, match="20 mask neighbours: parties may only vanish if every two share masks"):
        world.plan(replace(VANISHING, mask_neighbours="20"))


@pytest.mark.parametrize(
    ("parties", "changes", "sentence"),
    [
        (3, {}, "of 3 beside 1 colluder at most 0 may, .*: leave may_vanish out"),
        (8, {"may_vanish": 3}, "of 8 beside 1 colluder at most 2 may, .*: lower may_vanish to 2"),
        (120, {}, "of at most 100 parties some may vanish, and this asks 120"),
    ],
)
def test_more_that_may_vanish_than_is_safe_are_refused_with_what_helps(learner_key, parties, changes, sentence):
    with pytest.raises(PlanError, match=sentence):
        World(learner_key, named(parties)).plan(replace(VANISHING, **changes))


def test_a_smallest_cohort_leaves_room_for_those_that_may_vanish(learner_key):
    world = World(learner_key, named(8))
    with pytest.raises(PlanError, match="a cohort has 8 to 8: lower cohort_min to 7, or lower may_vanish to 0"):
        world.plan(replace(VANISHING, cohort_min=8))
    with pytest.raises(PlanError, match="of the smallest cohort 4 are honest: these have to be more than 4"):
        world.plan(replace(VANISHING, may_vanish=2, cohort_min=5))

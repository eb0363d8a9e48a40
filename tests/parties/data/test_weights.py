"""A party's weights: loaded beside the rows, counted where they are unusual, and left out where a query has none."""

from dataclasses import replace
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.fixed_point import plan_encoding
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.schema import Schema
from dpcore.records.weight import Weight
from parties.data.dataset import check, load
from parties.data.row_guard import RowCounts, refusing_fields
from parties.data.schema_draft import AskedLabel, infer_shared, parsed_weight
from tests.dpcore.records.test_weights import TOML
from tests.federation.party import SCHEMA, Ada, make_records
from wire.errors import Code, WireError
from wire.features import Feature, features_of
from wire.statements import Acceptance

WEIGHED = Schema.from_toml(TOML)
WEIGHT = Weight(column="w", upper=2.0, missing="no-weight", unreadable="no-weight", out_of_bounds="clip")
CLIP = Clip(Fraction(2), SCHEMA.bias)
MOMENTS = MomentsQuery(CLIP, 7, 1 << 25)


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("age,ill,w\n10,yes,1\n20,no,5\n30,yes,9\n40,no,\n50,no,-2\n60,yes,0\n")
    return file


def test_weights_are_loaded_and_counted(table):
    held = load(table, WEIGHED)
    assert held.records.weights.tolist() == [205, 1024, 1024, 0, 0, 0]
    # A row without a weight is usable: it counts where rows count alike.
    assert held.records.usable.all()
    said = "\n".join(held.report.sentences())
    assert "in column 'w' 1 of 6 cells are above" not in said
    assert 'weight.missing = "no-weight" gives its row the weight 0' in said
    assert 'weight.out_of_bounds = "clip" moves it to the nearest bound' in said
    assert held.report.changed == {"age": 0, "weight w": 3}
    assert RowCounts.of(held.report).changed["weight w"] == 3
    assert check(WEIGHED, table).digest == held.report.digest


def test_the_digest_of_the_data_covers_the_weights(table):
    before = check(WEIGHED, table).digest
    table.write_text(table.read_text().replace("10,yes,1\n", "10,yes,2\n"))
    assert check(WEIGHED, table).digest != before


def test_a_strict_weight_names_the_cell_and_no_weight_is_an_id(table):
    strict = replace(WEIGHED, weight=Weight(column="w", upper=5.0))
    assert refusing_fields(strict)[1:] == ("weight.missing", "weight.unreadable", "weight.out_of_bounds") or set(
        refusing_fields(strict)
    ) >= {"weight.missing", "weight.unreadable", "weight.out_of_bounds"}
    with pytest.raises(DataError, match="weight") as refused:
        load(table, strict)
    assert "line" in str(refused.value)
    with pytest.raises(ConfigurationError, match="is a column of the schema"):
        check(WEIGHED, table, id_column="w")


def test_a_draft_takes_a_column_as_the_weight(table):
    asked = [AskedLabel("ill", ["yes"])]
    drafted, notes = infer_shared(table, asked, weight=parsed_weight("w=5"))
    assert drafted.first.weight == replace(WEIGHED.weight)
    assert [feature.column for feature in drafted.first.features] == ["age"]
    assert any("Rows count by 'w', up to 5" in note for note in notes)
    for wrong in ("w", "w=x", "=3"):
        with pytest.raises(ConfigurationError, match="write COLUMN=UPPER"):
            parsed_weight(wrong)
    with pytest.raises(DataError, match="but there is 'w'"):
        infer_shared(table, asked, weight=("ww", 5.0))


@pytest.fixture
def ada(world, tmp_path):
    held = make_records()
    weights = (held.features[:, 0] > 0).astype("uint16") * 512
    schema = replace(SCHEMA, weight=WEIGHT)
    records = replace_weights(held, weights)
    policy = world.policy(designs=["moments"])
    return Ada(world, tmp_path, records=records, schema=schema, policy=policy)


def replace_weights(held, weights):
    from dpcore.records.records import Records

    return Records(held.features, held.labels, held.usable, weights=weights)


def asking(ada, schema, **changes):
    encoding = plan_encoding(largest_sum=1 << 40, max_parties=3, fraction_bits=10)
    kind = replace(MOMENTS, weighted=schema.weight is not None)
    options = {"kind": kind, "schema": schema, "features": features_of(schema), "max_rows": 1000, **changes}
    return ada.world.query(encoding=encoding, **options)


def test_a_party_answers_with_weights_and_without_them(ada):
    for schema in (ada.schema, SCHEMA):
        before = len(ada.hub.answers)
        ada.go(ada.world.ask(asking(ada, schema)))
        assert ada.hub.accepted[before]
        assert Acceptance.from_bytes(ada.hub.answers[before].payload).rows == 40
    under = ada.lifecycle.party.under(SCHEMA)
    assert under.records.weights is None
    assert under.secret.schema_digest == SCHEMA.digest != ada.lifecycle.party.secret.schema_digest


def test_another_bound_is_another_schema(ada):
    other = replace(SCHEMA, weight=replace(WEIGHT, upper=4.0))
    ada.go(ada.world.ask(asking(ada, other)))
    assert ada.hub.refusal_code is Code.SCHEMA_MISMATCH


def test_a_query_counts_by_weights_if_and_only_if_its_schema_has_them(ada):
    with pytest.raises(WireError, match="counts rows by the schema's weight"):
        asking(ada, SCHEMA, kind=replace(MOMENTS, weighted=True))
    with pytest.raises(WireError, match="counts rows by the schema's weight"):
        asking(ada, ada.schema, kind=MOMENTS)
    with pytest.raises(WireError, match="names the feature weights"):
        asking(ada, ada.schema, features=(Feature.BASE.value,))

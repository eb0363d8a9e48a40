"""A table that workers of a party's cluster read themselves: digests, rows and sums are those of one machine."""

import os
import pickle
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import ConfigurationError, DataError, PlanError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.notation import parse
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import dp_feat_design, plain_design
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret, sum_on_threads
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.features import Label
from dpcore.records.held_back import HeldBack, Part, RowKey
from dpcore.records.persons import Persons
from dpcore.records.records import BLOCK_ROWS
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.weight import Weight
from parties.config import PartyCluster, PartyConfig
from parties.data import part_sums
from parties.data.cluster_row_sums import ClusterRowSums
from parties.data.dataset import load
from parties.data.rows_elsewhere import RowsOnCluster
from parties.node import PartyNode
from radobase.cluster_jobs import ClusterError, _read
from radobase.logs import Log
from radobase.tables.database_source import DatabaseSource
from radobase.tables.parquet_table import FileList, file_state
from radobase.tables.recoding import load_recode
from radobase.warm_workers import WarmWorkers
from tests.federation.party import SCHEMA
from tests.ray_nodes import needs_ray, slowly_with_state
from tests.waiting import HANG_S, wait_until

KEY = RowKey(bytes(32), "f", "p", "d")
FILES = ((5000, 3), (300, 1), (9000, 4), (4096, 2))
ROWS = sum(rows for rows, _ in FILES)
SETTINGS = PartyCluster(address="auto", workers=2, timeout_s=HANG_S, reads_table=True)
MAP = FeatureMap((Term(Hat(0, None, 0, ONE)), Term(Column(1))), bias=SCHEMA.bias)


def columns(rows, seed):
    random = np.random.default_rng(seed)
    age = [
        None if missing else float(x)
        for missing, x in zip(random.random(rows) < 0.01, random.integers(0, 100, rows), strict=True)
    ]
    texts = {name: random.choice(["yes", "no"], rows).tolist() for name in ("smoker", "stayed", "late")}
    return pa.table({"age": age, **texts, "id": [f"{seed}-{row // 2}" for row in range(rows)]})


def write(directory: Path) -> Path:
    """Files of several row groups, one of them empty, in folders."""
    for number, (rows, groups) in enumerate(FILES):
        path = directory / f"year={2020 + number}" / "part.parquet"
        path.parent.mkdir(parents=True)
        table = columns(rows, number)
        with pq.ParquetWriter(path, table.schema) as writer:
            for group in range(groups):
                size = -(-rows // groups)
                writer.write_table(table.slice(group * size, size), row_group_size=rows)
                if number == 2:
                    writer.write_batch(pa.RecordBatch.from_pylist([], schema=table.schema))
    return directory


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write(tmp_path_factory.mktemp("table"))


class PlainWorkers:
    """In place of WarmWorkers: this process computes as two workers, and messages are pickled as between processes."""

    names, expected = ("here/1/a", "here/2/b"), 2

    def __init__(self):
        self.states = {name: {} for name in self.names}

    def results(self, function, shared, count, load, owner, idle):
        """Each worker what it owns, and the least busy what none does; in an order that is not the rows'."""
        function, shared = pickle.loads(pickle.dumps((function, shared)))
        owners = [owner(number) for number in range(count)]
        given = Counter({name: owners.count(name) for name in self.names})
        for number in [*range(0, count, 2), *range(1, count, 2)]:
            name = owners[number] if owners[number] in self.names else min(self.names, key=given.__getitem__)
            given[name] += owners[number] != name
            answer = function(self.states[name], shared, pickle.loads(pickle.dumps(load(number, name))))
            yield number, name, _read(pickle.dumps((number, answer)))[1]


def works(monkeypatch, results):
    """Have `results` in place of the workers'."""
    monkeypatch.setattr(PlainWorkers, "results", results)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("parties.data.rows_elsewhere.LEAST_PART_ROWS", 1)


def on_cluster(settings=SETTINGS):
    return RowsOnCluster(settings, Log("party"), PlainWorkers())


def read(table, settings=None, schema=SCHEMA):
    place = settings and on_cluster(settings)
    return load(table, schema, row_key=KEY, id_column="id", place=place)


def contribution(data, kind, feature_map=None, settings=SETTINGS):
    rows = data.records if feature_map is None else data.records.mapped(feature_map)
    rows = data.numbers.part_of(rows, HeldBack(Fraction(1, 5), Part.TRAINING))
    sums = ClusterRowSums(settings, Log("party")) if data.records.are_elsewhere else sum_on_threads
    secret = PartySecret(bytes(32), SCHEMA.digest)
    return kind.contribution(rows, 10, Computation(SeededRandom(3), secret, sums, numbers=data.numbers))


KINDS = {
    "rados": (RadosQuery(12, plain_design(SCHEMA)), None),
    "moments": (MomentsQuery(Clip(Fraction(2), bias=True), 7, 3), None),
    "gradient": (GradientQuery("logistic", (5 << 20, -(2 << 20), 1 << 19), Fraction(1), 3), None),
    "dp-feat": (RadosQuery(12, dp_feat_design(SCHEMA, ["smoker"], Fraction(1))), None),
    "statistics": (StatisticQuery((parse("y == 1"), parse('x["age"] >= 30')), SCHEMA, GaussianShares(3)), None),
    "mapped gradient": (GradientQuery("logistic", (5 << 20, 1 << 19, -(2 << 20)), Fraction(1), 3), MAP),
}


@pytest.mark.variants(1)
@pytest.mark.parametrize("kept", ["memory", "disk", "not", pytest.param("a part in memory", marks=pytest.mark.more)])
def test_all_is_as_on_one_machine(files, tmp_path, caplog, kept):
    alone = read(files)
    change = {"worker_memory_bytes": {"memory": None, "a part in memory": 60_000}.get(kept, 0)}
    change |= {"worker_disk": tmp_path} if kept == "disk" else {}
    data = read(files, SETTINGS.model_copy(update=change))
    assert data.report == alone.report
    assert data.records.rows == ROWS
    np.testing.assert_array_equal(data.records.labels, alone.records.labels)
    np.testing.assert_array_equal(data.records.usable, alone.records.usable)
    np.testing.assert_array_equal(data.numbers.by_id, alone.numbers.by_id)
    for name, (kind, feature_map) in KINDS.items():
        found = contribution(data, kind, feature_map)
        np.testing.assert_array_equal(found, contribution(alone, kind, feature_map), err_msg=name)
    said = [record.fields for record in caplog.records if record.getMessage() == "cluster read the table"]
    assert len(said) > len(KINDS)
    assert all(each["rows"] == ROWS and each["parts"] > 3 and not each["on_this_machine"] for each in said)
    assert all(sum(each["workers"].values()) == each["parts"] for each in said)
    places = {(each["in_memory"] > 0, each["on_disk"] > 0, each["in_memory"] + each["on_disk"]) for each in said}
    (found,) = {"memory": {(True, False, said[0]["parts"])}, "disk": {(False, True, said[0]["parts"])}}.get(
        kept, places
    )
    assert places == {found}
    assert found[0] == (kept in {"memory", "a part in memory"})
    again = [record.fields for record in caplog.records if record.getMessage() == "each sum reads the table again"]
    expected = [] if kept in {"memory", "disk"} else [(said[0]["parts"], found[2])]
    assert [(each["parts"], each["kept"]) for each in again] == expected
    assert all("took 3.8 times as long" in each["reason"] and "set worker_disk" in each["reason"] for each in again)
    # What is kept is not read again.
    assert [each["kept"] for each in said] == [0, *[found[2]] * (len(said) - 1)]


def warnings(caplog):
    return [record.fields["reason"] for record in caplog.records if record.getMessage().startswith("cluster failed")]


def damaged(change):
    """Results of workers whose answers `change` alters: change(number, answer)."""
    real = PlainWorkers.results

    def results(self, *about):
        for number, name, answer in real(self, *about):
            yield number, name, change(number, answer)

    return results


MOST = (1 << 63) - 1
SWAPPED: dict[int, tuple] = {}


def another(number, answer):
    """The answer of a part before."""
    SWAPPED[number] = answer
    return SWAPPED.get(number - 2, answer)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another, "another part"),
        (lambda _, answer: (*answer[:2], answer[2][:-1]), "no sum of the query's shape"),
        (
            lambda number, answer: (*answer[:2], np.full_like(answer[2], MOST)) if number else answer,
            "impossible for these rows",
        ),
    ],
)
def test_a_wrong_answer_is_noticed_and_the_part_summed_again(files, monkeypatch, caplog, change, reason):
    kind = KINDS["gradient"][0]
    alone, data = read(files), read(files, SETTINGS)
    works(monkeypatch, damaged(change))
    np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
    found = warnings(caplog)
    assert found
    assert all(reason in each for each in found)


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another, "another part"),
        (lambda _, answer: (*answer[:2], answer[2][:-32], *answer[3:]), "another part"),
        (lambda *_: 7, "no answer about a part"),
    ],
)
def test_a_wrong_reading_is_noticed_and_the_part_read_again(files, monkeypatch, caplog, change, reason):
    works(monkeypatch, damaged(change))
    assert read(files, SETTINGS).report == read(files).report
    assert warnings(caplog)
    assert all(reason in each for each in warnings(caplog))


@pytest.mark.more
def test_labels_of_another_form_are_noticed(files, monkeypatch, caplog):
    def wider(_, answer):
        return (*answer[:3], tuple((labels.astype(np.int64), usable) for labels, usable in answer[3]), *answer[4:])

    def fewer(_, answer):
        return (*answer[:3], tuple((labels, usable[:-1]) for labels, usable in answer[3]), *answer[4:])

    def shorter(_, answer):
        return (*answer[:5], answer[5][:-1], *answer[6:])

    def unknown(_, answer):
        return (*answer[:3], tuple((labels + 5, usable) for labels, usable in answer[3]), *answer[4:])

    for change in (wider, fewer, shorter, unknown, lambda _, answer: answer[:4]):
        caplog.clear()
        works(monkeypatch, damaged(change))
        assert read(files, SETTINGS).report == read(files).report
        assert len(warnings(caplog)) > 3


def test_a_worker_without_memory_says_so_and_this_machine_does_its_part(files, monkeypatch, caplog):
    data = read(files)

    def unable(*_, **__):
        raise MemoryError

    # What a worker calls. This machine calls it by a name of its own.
    monkeypatch.setattr("parties.data.part_sums.read_here", unable)
    assert read(files, SETTINGS).report == data.report
    assert all("too little memory" in each for each in warnings(caplog))
    (said,) = [record.fields for record in caplog.records if record.getMessage() == "cluster read the table"]
    assert said["on_this_machine"] == said["parts"]


@pytest.mark.more
def test_a_worker_that_keeps_too_much_keeps_less(files, monkeypatch, caplog):
    alone, data = read(files), read(files, SETTINGS)
    real, left = part_sums.sum_here, [1]

    def short_of_memory(*about, threads):
        left[0] -= 1
        if left[0] >= 0:
            raise MemoryError
        return real(*about, threads)

    monkeypatch.setattr(part_sums, "sum_here", short_of_memory)
    kind = KINDS["gradient"][0]
    np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
    assert not warnings(caplog)
    *_, said = [record.fields for record in caplog.records if record.getMessage() == "cluster read the table"]
    assert 0 < said["in_memory"] < said["parts"]


@pytest.mark.more
def test_a_cluster_that_fails_leaves_the_rest_to_this_machine(files, monkeypatch, caplog):
    real = PlainWorkers.results

    def ends(self, function, shared, count, *about):
        yield from real(self, function, shared, 2, *about)
        raise ClusterError("the cluster is gone")

    alone = read(files)
    works(monkeypatch, ends)
    data = read(files, SETTINGS)
    assert data.report == alone.report
    for kind, feature_map in KINDS.values():
        np.testing.assert_array_equal(contribution(data, kind, feature_map), contribution(alone, kind, feature_map))
    assert set(warnings(caplog)) == {"the cluster is gone"}


@pytest.mark.more
def test_what_a_lost_worker_kept_is_read_by_others(files, monkeypatch, caplog):
    alone, data, kind = read(files), read(files, SETTINGS), KINDS["gradient"][0]
    parts = len(data.records.features.table.ranges)
    monkeypatch.setattr(PlainWorkers, "names", ("here/2/b", "here/3/c"))
    data.records.features.table.place.workers.states["here/3/c"] = {}
    for _ in range(2):
        np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
    _, first, second = [each.fields for each in caplog.records if each.getMessage() == "cluster read the table"]
    assert first["kept"] == parts // 2
    assert second["kept"] == parts
    assert set(second["workers"]) == {"here/2/b", "here/3/c"}


@pytest.mark.more
def test_a_worker_that_keeps_more_than_its_share_gives_parts_away(files, monkeypatch, caplog):
    monkeypatch.setattr(PlainWorkers, "names", ("here/1/a",))
    monkeypatch.setattr(PlainWorkers, "expected", 1)
    alone, data, kind = read(files), read(files, SETTINGS), KINDS["gradient"][0]
    workers = data.records.features.table.place.workers
    assert {worker for worker, _ in data.records.features.table.kept.values()} == {"here/1/a"}
    monkeypatch.setattr(PlainWorkers, "names", ("here/2/b", "here/1/a"))
    monkeypatch.setattr(PlainWorkers, "expected", 2)
    workers.states["here/2/b"] = {}
    for _ in range(2):
        np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
    *_, said = [each.fields for each in caplog.records if each.getMessage() == "cluster read the table"]
    assert said["kept"] == said["parts"] == said["in_memory"]
    assert min(said["workers"].values()) > 1
    held = [set(state["parts"]._parts) for state in workers.states.values()]
    assert not held[0] & held[1]


def test_room_on_disk_is_used_again_once_its_part_is_not_kept(files, tmp_path):
    """Workers come and go, and each time parts move: their file would grow until the disk is full."""
    data = read(files, SETTINGS.model_copy(update={"worker_memory_bytes": 0, "worker_disk": tmp_path}))
    table, kept = data.records.features.table, part_sums.KeptParts()
    orders = [part_sums.PartOrder(bytes(16), number, rows, keep=True) for number, rows in enumerate(table.ranges)]
    sizes = []
    for _ in range(3):
        for order in orders:
            kept.found(table.reading, order)
            kept.keep(order.number, kept.begun(table.reading, order), 0)
        assert kept.begun(table.reading, orders[0]).place == "disk", "given up halfway"
        sizes.append(os.fstat(kept._file._descriptor).st_size)
        for order in orders:
            kept.found(table.reading, replace(order, number=99, release=(order.number,)))
    assert len(set(sizes)) == 1
    firsts = [kept.begun(table.reading, order) for order in orders]
    assert len({each._first for each in firsts}) == len(orders)


@pytest.mark.more
def test_workers_keep_the_reading_of_the_table_that_was_asked_for_last(files, caplog):
    """A party that finds its table unchanged goes on with the former reading."""
    place = RowsOnCluster(SETTINGS, Log("party"), PlainWorkers())
    alone, kind = read(files), KINDS["gradient"][0]
    first, second = (load(files, SCHEMA, row_key=KEY, id_column="id", place=place) for _ in range(2))
    states, parts = place.workers.states.values(), len(first.records.features.table.ranges)
    for data in (second, first, first, second, second):
        np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
        assert {state["parts"]._table for state in states} == {data.records.features.table.reading.table}
        assert sum(len(state["parts"]._parts) for state in states) == parts


@pytest.mark.more
def test_a_file_that_is_missing_at_a_worker_is_read_by_this_machine(files, tmp_path, monkeypatch, caplog):
    table = shutil.copytree(files, tmp_path / "table")
    alone = read(table)
    moved = next(table.rglob("*.parquet"))

    def without(self, function, shared, count, load, owner, idle):
        for number in range(count):
            payload = load(number, self.names[0])
            moved.rename(moved.with_suffix(".away"))
            answer = function({}, shared, payload)
            moved.with_suffix(".away").rename(moved)
            yield number, self.names[0], answer

    works(monkeypatch, without)
    data = read(table, SETTINGS)
    assert data.report == alone.report
    assert warnings(caplog)
    assert all("every machine must find it under this path" in each for each in warnings(caplog))


def rewritten(path, keep_time):
    state, found = path.stat(), pq.read_table(path)
    ages = found["age"].to_pylist()
    ages[0], ages[1] = 41.0, 17.0
    pq.write_table(found.set_column(0, "age", pa.array(ages)), path)
    if keep_time:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.variants(1)
@pytest.mark.parametrize("keep_time", [False, True])
def test_a_file_that_changed_since_it_was_read_is_refused(files, tmp_path, keep_time):
    table = shutil.copytree(files, tmp_path / "table")
    data = read(table, SETTINGS)
    rewritten(next(table.rglob("*.parquet")), keep_time)
    with pytest.raises(DataError, match="changed since its rows were counted; read the table again"):
        contribution(data, KINDS["moments"][0])


def test_rows_that_changed_in_a_file_that_looks_the_same_are_refused(files, monkeypatch):
    """By the part's digest: pages may change where the footer does not."""
    data = read(files, SETTINGS)
    data.records.features.table.blocks[-1] ^= 1
    with pytest.raises(DataError, match="rows that changed since the table was read"):
        contribution(data, KINDS["moments"][0])


def test_a_file_that_changes_while_it_is_read_is_refused(files, tmp_path, monkeypatch):
    table = shutil.copytree(files, tmp_path / "table")
    last = max(table.rglob("*.parquet"))

    real = PlainWorkers.results

    def meanwhile(self, function, shared, count, *about):
        for number, name, answer in real(self, function, shared, count - 1, *about):
            if number == 0:
                rewritten(last, keep_time=False)
            yield number, name, answer
        raise ClusterError("ended")

    works(monkeypatch, meanwhile)
    with pytest.raises(DataError, match="changed since its rows were counted"):
        read(table, SETTINGS)


def test_a_file_that_changes_while_a_part_of_it_is_read_is_refused(files, tmp_path):
    table = shutil.copytree(files, tmp_path / "table")
    part = read(table, SETTINGS).records.features.table.ranges[0]
    batches = part.batches(["age"])
    next(batches)
    rewritten(Path(part.files[0].path), keep_time=True)
    with pytest.raises(DataError, match="changed since its rows were counted"):
        list(batches)


def test_a_part_whose_worker_was_lost_is_not_kept_by_the_next(files, monkeypatch):
    """Its machine may have had no memory for it."""
    orders, real = [], PlainWorkers.results

    def lost(self, function, shared, count, load, owner, idle):
        def twice(number, name):
            orders.append((load(number, name), load(number, name)))
            return orders[-1][1]

        yield from real(self, function, shared, count, twice, owner, idle)

    works(monkeypatch, lost)
    assert read(files, SETTINGS).report == read(files).report
    assert orders
    assert all(first.keep and not again.keep for first, again in orders)


def test_a_cell_that_is_refused_is_named_as_on_one_machine(files, tmp_path):
    table = shutil.copytree(files, tmp_path / "table")
    path = sorted(table.rglob("*.parquet"))[2]
    found = pq.read_table(path)
    smoker = found["smoker"].to_pylist()
    smoker[4321] = "perhaps"
    pq.write_table(found.set_column(1, "smoker", pa.array(smoker)), path, row_group_size=3000)
    with pytest.raises(DataError) as alone:
        read(table)
    with pytest.raises(DataError) as spread:
        read(table, SETTINGS)
    assert str(spread.value) == str(alone.value)
    assert "row 4322" in str(spread.value)


def test_files_of_other_columns_and_other_tables_are_refused(files, tmp_path):
    table = shutil.copytree(files, tmp_path / "table")
    pq.write_table(columns(10, 9).drop_columns(["age"]), table / "year=2020" / "short.parquet")
    with pytest.raises(DataError, match=r"has this column and .* does not; write all files with the same columns"):
        read(table, SETTINGS)
    one = tmp_path / "one.parquet"
    pq.write_table(columns(10, 9).slice(0, 0), one)
    with pytest.raises(DataError, match="no rows"):
        read(one, SETTINGS)
    text = tmp_path / "table.csv"
    text.write_text("age,smoker,stayed,id\n1,yes,no,a\n")
    with pytest.raises(ConfigurationError, match="neither Parquet nor a database"):
        read(text, SETTINGS)
    with pytest.raises(ConfigurationError, match="need the rows on this machine"):
        place = on_cluster()
        load(files, SCHEMA, row_key=KEY, id_column="id", epoch_column="year", place=place)
    with pytest.raises(ConfigurationError, match="need the rows on this machine"):
        load(files, replace(SCHEMA, weight=Weight(column="late", upper=2.0)), row_key=KEY, place=on_cluster())


def test_several_labels_and_recoded_cells_are_as_on_one_machine(files, tmp_path):
    late = Label(column="late", positive=("yes",), negative=("no",))
    schema = SharedSchema({"stayed": SCHEMA, "late": replace(SCHEMA, label=late)})
    path = tmp_path / "recode.toml"
    path.write_text('[columns.smoker]\ncells = { "yes" = "no", "no" = "yes" }\n')
    recode, place = load_recode(path, schema), on_cluster()
    alone = load(files, schema, row_key=KEY, id_column="id", recode=recode)
    data = load(files, schema, row_key=KEY, id_column="id", recode=recode, place=place)
    assert data.report == alone.report
    kind, sums = KINDS["gradient"][0], ClusterRowSums(SETTINGS, Log("party"))
    for (_, own), (_, other) in zip(data.others, alone.others, strict=True):
        found = kind.contribution(own, 10, Computation(SeededRandom(3), row_sums=sums))
        np.testing.assert_array_equal(found, kind.contribution(other, 10, Computation(SeededRandom(3))))


@pytest.mark.more
def test_one_file_is_read_in_parts_too(files, tmp_path):
    one = tmp_path / "one.parquet"
    pq.write_table(columns(3 * BLOCK_ROWS + 5, 4), one, row_group_size=BLOCK_ROWS - 100)
    data, alone = read(one, SETTINGS), read(one)
    assert data.report == alone.report
    assert len(data.records.features.table.ranges) == 4
    kind = KINDS["gradient"][0]
    np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))


def test_features_that_are_elsewhere_cannot_be_read_here(files):
    features = read(files, SETTINGS).records.features
    for look in (np.asarray, np.abs, iter, lambda f: f[:, 0], lambda f: f[[1, 2]], lambda f: f[::2]):
        with pytest.raises(PlanError, match="needs the values of rows"):
            look(features)
    with pytest.raises(PlanError, match="begins with the first row"):
        data = read(files, SETTINGS)
        ClusterRowSums(SETTINGS, Log("party"))(None, data.records.between(5, 10))


@pytest.mark.more
def test_averages_over_persons_are_the_same_in_one_pass(files, caplog):
    data, alone = read(files, SETTINGS), read(files)
    for name in ("moments", "statistics"):
        kind = replace(KINDS[name][0], persons=Persons(1))
        caplog.clear()
        np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))
        assert [record.getMessage() for record in caplog.records] == ["cluster read the table"]


def test_a_damaged_footer_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + b"\xff" * 4 + b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        file_state(str(path))


@pytest.mark.more
@pytest.mark.slow
@needs_ray
def test_a_lost_worker_costs_its_parts_only(nodes, tmp_path, monkeypatch, caplog):
    """One is killed while it reads, and one, or the same, while it sums what it kept."""
    table = tmp_path / "one.parquet"
    pq.write_table(columns(12 * BLOCK_ROWS, 4), table, row_group_size=BLOCK_ROWS)
    nodes.fill(2)

    class Slow(WarmWorkers):
        def results(self, function, *about):
            return super().results(partial(slowly_with_state, function), *about)

    settings = SETTINGS.model_copy(update={"address": nodes.address, "token_file": nodes.token_file, "workers": 2})
    killed = []

    def progress(*_):
        if not killed:
            killed.append(nodes.kill_busy_warm_worker())

    alone, kind = read(table), KINDS["gradient"][0]
    with closing(Slow(settings)) as workers:
        place = RowsOnCluster(settings, Log("party"), workers)
        data = load(table, SCHEMA, progress, row_key=KEY, id_column="id", place=place)
        assert data.report == alone.report
        for again in (True, False):
            if again:
                killed.clear()
            computation = Computation(SeededRandom(3), None, ClusterRowSums(settings, Log("party")), progress)
            found = kind.contribution(data.records, 10, computation)
            np.testing.assert_array_equal(found, kind.contribution(alone.records, 10, Computation(SeededRandom(3))))
    said = [record.fields for record in caplog.records if record.getMessage() == "cluster read the table"]
    assert all(each["on_this_machine"] == 0 and sum(each["workers"].values()) == each["parts"] for each in said)
    assert [1 <= each["again"] <= 6 for each in said] == [True, True, False]
    assert said[1]["kept"] < said[0]["parts"]
    assert not warnings(caplog)


def test_a_configuration_says_that_sums_may_read_the_table_again(tmp_path):
    million = 10**6
    for change, expected in (
        ({}, "of 3 MB of records (half of its machine's for each of 2)"),
        ({"worker_memory_bytes": million}, "of 3 MB of records (1 MB for each of 2)"),
        ({"worker_memory_bytes": 2 * million}, ""),
        ({"worker_disk": tmp_path}, ""),
        ({"reads_table": False}, ""),
    ):
        said = SETTINGS.model_copy(update=change).reading_again(3 * million)
        assert (expected in said) if expected else not said


@pytest.mark.parametrize("change", [{"epoch_column": "month", "id_column": "id"}, {"rows_on_disk": True}])
def test_a_configuration_that_cannot_be_is_refused(offline, change):
    config = PartyConfig.load(offline.directory("ada") / "party.toml").model_dump(by_alias=True)
    cluster = {"cluster": {"address": "auto", "reads_table": True}}
    assert PartyConfig.model_validate(config | cluster).cluster.reads_table
    with pytest.raises(ValueError, match="leave out epoch_column and rows_on_disk"):
        PartyConfig.model_validate(config | cluster | change)
    database = {"data": None, "source": "sqlite:t", "query": "SELECT 1"}
    with pytest.raises(ValueError, match="needs data, Parquet files that workers find, or a key_column"):
        PartyConfig.model_validate(config | cluster | database)
    assert PartyConfig.model_validate(config | cluster | database | {"key_column": "id"}).table.key == "id"
    with pytest.raises(ValueError, match="write the whole path"):
        PartyConfig.model_validate(config | {"cluster": {"address": "auto", "worker_disk": "rows"}})


@pytest.mark.more
def test_a_node_starts_its_workers_once_and_ends_them(offline, monkeypatch):
    """Also when it reads its table again."""
    made = []

    class Noted(PlainWorkers):
        def __init__(self, _settings):
            super().__init__()
            made.append(self)
            self.closed = False

        def close(self):
            self.closed = True

    monkeypatch.setattr("parties.node.WarmWorkers", Noted)
    config = PartyConfig.load(offline.directory("ada") / "party.toml")
    table = offline.directory("ada") / "rows.parquet"
    pq.write_table(pyarrow.csv.read_csv(config.data), table)
    with PartyNode(config.model_copy(update={"data": table, "cluster": SETTINGS})) as node:
        assert isinstance(node._lifecycle.party.records.features, FeaturesElsewhere)
        # With the same rows and another time of writing.
        os.utime(table, ns=(0, 0))
        node.data.ask()
        wait_until(lambda: node.data.status()["reloads"], what="the load")
        (workers,) = made
        features = node._lifecycle.party.records.features
        for rows in features.table.ranges:
            rows.check()
        assert features.table.place.workers is workers
        kept = [len(state["parts"]._parts) for state in workers.states.values() if state]
        assert sum(kept) == len(features.table.ranges)
        assert not workers.closed
    assert workers.closed


def test_several_files_need_a_name_in_the_ledger(offline, tmp_path):
    config = PartyConfig.load(offline.directory("ada") / "party.toml").model_dump(by_alias=True)
    for data in (["a.parquet", "b.parquet"], str(tmp_path / "*.parquet")):
        with pytest.raises(ValueError, match="set data_source"):
            PartyConfig.model_validate(config | {"data": data, "data_source": None})
        found = PartyConfig.model_validate(config | {"data": data, "data_source": "stays"})
        assert found.source == "stays"
    with pytest.raises(ValueError, match="name at least one file"):
        PartyConfig.model_validate(config | {"data": [], "data_source": "stays"})
    with pytest.raises(ValueError, match="key_column and password_file are for a database"):
        PartyConfig.model_validate(config | {"key_column": "id"})


@pytest.mark.more
def test_a_list_of_files_is_read_as_on_one_machine(files):
    paths = FileList(tuple(sorted(files.rglob("*.parquet"), reverse=True)))
    data, alone = read(paths, SETTINGS), read(paths)
    assert data.report == alone.report
    assert alone.report.digest != read(files).report.digest
    kind = KINDS["gradient"][0]
    np.testing.assert_array_equal(contribution(data, kind), contribution(alone, kind))


def in_database(path, kind, rows):
    """A table whose rows are not in the order of their key, and the source that reads them by it."""
    database = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
    database.execute("CREATE TABLE patients (number BIGINT, age DOUBLE, smoker TEXT, stayed TEXT, id TEXT)")
    found = rows.to_pylist()
    for place in [*range(0, len(found), 2), *range(1, len(found), 2)]:
        found[place]["number"] = 7 * place - 1000
    listed = sorted(found, key=lambda row: -row["number"] % 17)
    names = ("number", "age", "smoker", "stayed", "id")
    if kind == "duckdb":
        written = pa.Table.from_pylist(listed).select(names)
        database.register("written", written)
        database.execute("INSERT INTO patients SELECT * FROM written")
    else:
        database.executemany(
            "INSERT INTO patients VALUES (?, ?, ?, ?, ?)", [[row[name] for name in names] for row in listed]
        )
    database.commit()
    database.close()
    return DatabaseSource.of(f"{kind}:{path}", "SELECT * FROM patients", key="number")


@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_is_read_by_ranges_of_its_key(tmp_path, caplog, kind):
    """And on one machine in the order of the key."""
    rows, path = columns(2 * BLOCK_ROWS + 500, 4), tmp_path / "one.parquet"
    pq.write_table(rows, path)
    source = in_database(tmp_path / f"t.{kind}", kind, rows)
    data, alone = read(source, SETTINGS), read(source)
    assert data.report == alone.report
    assert alone.report.digest == read(path).report.digest
    assert [each.rows for each in data.records.features.table.ranges] == [BLOCK_ROWS, BLOCK_ROWS, 500]
    for settings in (SETTINGS, SETTINGS.model_copy(update={"worker_memory_bytes": 0})):
        found = read(source, settings)
        np.testing.assert_array_equal(
            contribution(found, KINDS["gradient"][0]), contribution(alone, KINDS["gradient"][0])
        )
    assert not warnings(caplog)


def changed(path, kind, *statements):
    with closing(sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_that_changed_since_it_was_read_is_refused(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    source = in_database(path, kind, columns(BLOCK_ROWS + 500, 4))
    data = read(source, SETTINGS.model_copy(update={"worker_memory_bytes": 0}))
    changed(path, kind, "UPDATE patients SET age = 41.5 WHERE number = -1000")
    with pytest.raises(DataError, match="rows that changed since the table was read"):
        contribution(data, KINDS["gradient"][0])
    part = data.records.features.table.ranges[0]
    changed(path, kind, "UPDATE patients SET number = -999 WHERE number = (SELECT max(number) FROM patients)")
    rows = 0
    with pytest.raises(DataError, match="changed since its rows were counted; read the table again"):
        for batch in part.batches(["age"]):
            rows += batch.num_rows
    assert rows <= part.rows, "a worker has room for no more"
    changed(path, kind, "DELETE FROM patients WHERE number < -990")
    with pytest.raises(DataError, match="changed since its rows were counted; read the table again"):
        contribution(data, KINDS["gradient"][0])


@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_key_that_does_not_order_the_rows_is_refused(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    source = in_database(path, kind, columns(50, 4))
    for settings in (None, SETTINGS):
        for key in ("age", "smoker"):
            with pytest.raises(DataError, match="a key needs a whole number in every row, each once"):
                read(replace(source, key=key), settings)
        with pytest.raises(DataError, match="there is no such column; check key_column"):
            read(replace(source, key="numbr"), settings)
    with pytest.raises(ConfigurationError, match="neither Parquet nor a database with a key_column"):
        read(replace(source, key=None), SETTINGS)
    for change in ("number = -993 WHERE number = -1000", "number = NULL WHERE age = (SELECT max(age) FROM patients)"):
        changed(path, kind, f"UPDATE patients SET {change}")
        with pytest.raises(DataError, match="a key needs a whole number in every row, each once"):
            read(source, SETTINGS)
    changed(path, kind, "DELETE FROM patients")
    with pytest.raises(DataError, match="the query returns no row"):
        read(source, SETTINGS)

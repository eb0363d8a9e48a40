"""Of the intervals of inquiries about public tables, at least 95 of 100 hold; the table is the population.

docs/how-to/describe.md has the figures. A table takes some minutes on a quiet core.
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from benchmarks.datasets import SHARED
from dpcore.evaluation.descriptive import crosstab
from dpcore.evaluation.descriptive.comparison import Compare
from dpcore.evaluation.descriptive.correlation import Correlate
from dpcore.evaluation.descriptive.crosstab import Crosstab
from dpcore.evaluation.descriptive.description import Describe
from radobase.tables.tables import as_source
from radofed.simulation.table import read_table
from tests.statistical.descriptive_trials import Population, held_by_quantity

TOLERANCE = 0.02
ADULT = (
    20_000,
    (
        (Describe(columns=("age", "education_num", "hours_per_week", "capital_gain"), levels=()), 300),
        (Describe(columns=("age", "hours_per_week"), levels=(), by="sex"), 300),
        (Compare(column="hours_per_week", by="sex"), 300),
        (Correlate(columns=("age", "education_num", "hours_per_week", "capital_gain", "label")), 300),
        (Crosstab(down="sex", across="label"), 150),
        (Compare(column="label", by="race", reference="White"), 60),
        (Describe(columns=("age", "sex", "marital_status")), 60),
    ),
)
FLCHAIN = (
    6000,
    (
        (Describe(columns=("age", "kappa", "lambda", "creatinine"), levels=()), 300),
        (Describe(columns=("age", "creatinine"), levels=(), by="sex"), 300),
        (Compare(column="age", by="death"), 300),
        (Correlate(columns=("age", "kappa", "lambda", "creatinine", "death")), 300),
        (Crosstab(down="sex", across="death"), 150),
        (Compare(column="sex", by="death"), 100),
        (Describe(columns=("age", "kappa", "sex")), 60),
    ),
)
TABLES = {"adult_train": ("label", ">50K", ADULT), "flchain": ("death", "1", FLCHAIN)}


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TABLES)
def test_what_is_stated_holds(name, monkeypatch):
    file = SHARED / f"{name}.csv.gz"
    if not file.is_file():
        pytest.skip(f"the directory {SHARED} does not have {name}")
    monkeypatch.setattr(crosstab, "independence", lambda *_: None)
    label, positive, (rows, inquiries) = TABLES[name]
    table = read_table(as_source(file), label=label, positive=positive, schema=None, group_column=None)
    usable = table.records.usable
    records = replace(
        table.records,
        features=table.records.features[usable],
        labels=table.records.labels[usable],
        usable=usable[usable],
    )
    population = Population(table.schema, records)
    for inquiry, runs in inquiries:
        found = held_by_quantity(population.truth(inquiry), population.trials(inquiry, rows, Fraction(1), runs))
        for quantity, each in found.items():
            assert not each.stated or each.held / each.stated >= 0.95 - TOLERANCE, (inquiry.name, quantity, each)

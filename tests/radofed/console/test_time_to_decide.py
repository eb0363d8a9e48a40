"""Every form that asks has a field for the time that people have to decide."""

from radofed.console.learner.evaluations import EVALUATE
from radofed.console.learner.queries import INQUIRIES, STATISTIC, TRAIN, fields_of
from wire.design_options import DESIGNS


def test_each_form_that_asks_gives_people_days():
    for what in (*DESIGNS, STATISTIC, "newton", "additive", "naive-bayes", *INQUIRIES):
        assert "answer_within" in {field.name for field in fields_of(what).first}, what
    assert "answer_within" in {field.name for field in EVALUATE.fields}
    options = TRAIN.parse({"answer_within": "3d", "answer_within_s": "600"}, to="model.json", estimator="newton")
    assert options.answer_within_s == 3 * 24 * 3600

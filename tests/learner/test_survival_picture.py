"""The picture of a release of survival: a line and a band of each group that was measured, and none of others."""

import re

from dpcore.evaluation.descriptive.result import Figure, Result
from learner.survival_picture import survival_plot


def result(inquiry="survival", known=("yes", "no")) -> Result:
    figures = []
    for group in ("yes", "no", "<b>"):
        for level, share in (("1", 0.8), ("2.5", 0.5)):
            found = (share, share - 0.1, share + 0.1) if group in known else (None, None, None)
            figures.append(Figure("survival", "years", group, level, "share", *found))
    facts = {"time": "years", "borders": [1.0, 2.5], "groups": ["yes", "no", "<b>"]}
    return Result(
        inquiry=inquiry,
        figures=tuple(figures),
        rows=100,
        confidence=0.95,
        deviation=1.0,
        sentences=(),
        tables=(),
        facts=facts,
    )


def test_each_measured_group_has_a_line_that_begins_at_one():
    plot, words = survival_plot(result())
    drawn = plot.__html__()
    lines = re.findall(r'<polyline[^>]*points="([^"]*)"', drawn)
    assert len(lines) == len(re.findall("<polygon", drawn)) == 2
    assert lines[0].split()[0] == f"{plot.x(0.0):g},{plot.y(1.0):g}"
    assert lines[0].split()[-1] == f"{plot.x(2.5):g},{plot.y(0.5):g}"
    assert "on a line" in words


def test_what_was_not_measured_is_not_drawn():
    assert survival_plot(result(known=())) is None
    assert survival_plot(result(inquiry="describe")) is None
    assert "<b>" not in survival_plot(result(known=("<b>",)))[0].__html__()

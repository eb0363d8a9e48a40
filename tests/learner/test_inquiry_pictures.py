"""Pictures of inquiries: survival has a line and a band of each group that was measured, others have intervals."""

import re
from dataclasses import replace

from dpcore.evaluation.descriptive.result import Figure, Result
from learner.inquiry_pictures import MOST_INTERVALS, inquiry_picture, survival_plot


def drawn_of(*figures, inquiry="describe", **facts) -> str:
    found = replace(result(inquiry=inquiry), figures=figures, facts=facts)
    picture = inquiry_picture(found)
    return "" if picture is None else picture.file()


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


def test_an_inquiry_has_a_mark_on_its_interval_for_each_figure_that_was_measured():
    drawn = drawn_of(
        Figure("mean", "age", "<b>", "", "value", 50.0, 49.0, 51.0),
        Figure("median", "age", "<b>", "", "value", 48.0, 40.0, 60.0),
        Figure("mean", "age", "no", "", "value", None),
        Figure("rows", "", "<b>", "", "rows", 100.0, 90.0, 110.0),
        Figure("share", "ill", "<b>", "yes", "share", 0.25, 0.2, 0.3),
        by="smoker",
    )
    assert drawn.count("<circle") == drawn.count('class="whisker s0"') == 3
    assert "smoker &lt;b&gt;, mean" in drawn
    assert "25.00 % (20.00 % to 30.00 %)" in drawn
    middle, low, high = (float(x) for x in re.search(r'M([\d.]+) 52.5 H([\d.]+).*?cx="([\d.]+)"', drawn).group(3, 1, 2))
    assert low < middle < high


def test_differences_have_a_line_at_none_and_ratios_at_one():
    odds = drawn_of(
        Figure("odds ratio", "smoker, ill", "", "true", "ratio", 2.0, 1.5, 4.0),
        inquiry="crosstab",
        down={"name": "smoker"},
    )
    assert odds.count('class="zero"') == 1
    assert drawn_of(Figure("correlation", "a", "", "b", "ratio", 0.1, -0.1, 0.3), inquiry="correlate").count("zero") > 0
    assert 'class="zero"' not in drawn_of(Figure("mean", "age", "", "", "value", 50.0, 49.0, 51.0))


def test_a_picture_is_refused_where_nothing_was_measured_and_says_what_it_leaves_out():
    assert drawn_of(Figure("mean", "age", "", "", "value", None)) == ""
    open_ends = Figure("median", "age", "", "", "value", 50.0, 40.0, float("inf"))
    assert drawn_of(open_ends).count("<circle") == 1
    many = [Figure("share", "age", "", str(n), "share", 0.1, 0.0, 0.2) for n in range(MOST_INTERVALS + 3)]
    assert "age, share, 3 left out" in drawn_of(*many)

"""The plot of a budget: where its line runs, and when there is none."""

import math
from dataclasses import replace

import pytest

from parties.report.budgets import Period, ScopeBudget
from parties.report.plots import budget_plot

PERIOD = Period(1_000_000.0, 11_000_000.0)
BUDGET = ScopeBudget(
    scope="whole records",
    limit_epsilon=4.0,
    limit_delta=1e-5,
    before=1.0,
    spent=3.0,
    remaining=2.0,
    remaining_pure=1.5,
    remaining_gaussian=2.0,
    unbounded=0,
    steps=((6_000_000.0, 2.0), (8_500_000.0, 3.0)),
)


def points(plot):
    return [tuple(map(float, point.split(","))) for point in plot.line.split()]


def test_the_line_steps_up_at_each_charge():
    plot = budget_plot(BUDGET, PERIOD, 11_000_000.0)
    width, height = plot.frame.right - plot.frame.left, plot.frame.bottom - plot.frame.top
    shares = [((x - plot.frame.left) / width, (plot.frame.bottom - y) / height * 4.2) for x, y in points(plot)]
    expected = [(0, 1), (0.5, 1), (0.5, 2), (0.75, 2), (0.75, 3), (1, 3)]
    for found, wanted in zip(shares, expected, strict=True):
        assert found == pytest.approx(wanted, abs=0.001)
    assert (plot.frame.bottom - plot.limit_y) / height * 4.2 == pytest.approx(4, abs=0.001)
    assert [tick.label for tick in plot.frame.y_ticks] == ["0", "2", "4"]
    assert plot.frame.y_ticks[2].at == plot.limit_y
    assert "1 on 1970-01-12, 3 on 1970-05-08. The limit is 4." in plot.words


def test_the_line_ends_where_the_figures_do():
    plot = budget_plot(BUDGET, PERIOD, 9_000_000.0)
    assert plot.end_x == pytest.approx(plot.frame.left + 0.8 * (plot.frame.right - plot.frame.left), abs=0.01)
    assert points(plot)[-1] == (plot.end_x, plot.end_y)


def test_a_total_above_a_lowered_limit_stays_in_the_picture():
    plot = budget_plot(replace(BUDGET, limit_epsilon=0.5), PERIOD, 11_000_000.0)
    assert min(y for _, y in points(plot)) >= plot.frame.top
    assert plot.limit_y > points(plot)[-1][1]


@pytest.mark.parametrize("changes", [{"before": math.inf}, {"steps": ((6_000_000.0, math.inf),)}])
def test_there_is_no_line_of_infinite_figures(changes):
    assert budget_plot(replace(BUDGET, **changes), PERIOD, 11_000_000.0) is None


def test_a_budget_of_nothing_has_a_plot():
    plot = budget_plot(replace(BUDGET, limit_epsilon=0.0, before=0.0, spent=0.0, steps=()), PERIOD, 11_000_000.0)
    assert {y for _, y in points(plot)} == {plot.frame.bottom}

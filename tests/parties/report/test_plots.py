"""The plot of a budget: where its line runs, and when there is none."""

import math
import re
from dataclasses import replace

import pytest

from parties.ledger.budgets import Period, ScopeBudget
from parties.report.page import budget_plots

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


def plot_of(budget, as_of_unix_s=11_000_000.0):
    ((plot, words),) = budget_plots([budget], PERIOD, as_of_unix_s)
    return plot, words


def points(plot):
    (line,) = re.findall('<polyline points="([^"]*)"', plot.__html__())
    return [tuple(map(float, point.split(","))) for point in line.split()]


def test_the_line_steps_up_at_each_charge():
    plot, words = plot_of(BUDGET)
    at = [(1e6, 1), (6e6, 1), (6e6, 2), (8.5e6, 2), (8.5e6, 3), (11e6, 3)]
    assert points(plot) == [(plot.x(x), plot.y(y)) for x, y in at]
    assert "1 on 1970-01-12, 3 on 1970-05-08. The limit is 4." in words
    assert f'<path d="M{plot.left} {plot.y(4.0):g} H{plot.right}" class="limit"/>' in plot.__html__()


def test_the_line_ends_where_the_figures_do():
    plot, _ = plot_of(BUDGET, 9_000_000.0)
    assert points(plot)[-1] == (plot.x(9_000_000.0), plot.y(3.0))


def test_a_total_above_a_lowered_limit_stays_in_the_picture():
    plot, _ = plot_of(replace(BUDGET, limit_epsilon=0.5))
    assert plot.top <= min(y for _, y in points(plot)) < plot.y(0.5)


@pytest.mark.parametrize("changes", [{"before": math.inf}, {"steps": ((6_000_000.0, math.inf),)}])
def test_there_is_no_line_of_infinite_figures(changes):
    assert budget_plots([replace(BUDGET, **changes)], PERIOD, 11_000_000.0) == []


def test_a_budget_of_nothing_has_a_plot():
    plot, _ = plot_of(replace(BUDGET, limit_epsilon=0.0, before=0.0, spent=0.0, steps=()))
    assert {y for _, y in points(plot)} == {plot.bottom}

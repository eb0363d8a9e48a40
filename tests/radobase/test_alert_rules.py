"""The evaluation of alert rules means what Prometheus means."""

import pytest

from tests.radobase.alert_rules import Moment
from tests.radobase.scraping import read_page

PAGE = """# TYPE rado_a gauge
rado_a{x="1"} 4
rado_a{x="2"} 10
# TYPE rado_b gauge
rado_b{x="1"} 8
# TYPE rado_c counter
rado_c_total{x="1"} 7
rado_c_total{x="2"} 3
"""
NOW, BEFORE = read_page(PAGE), read_page(PAGE.replace("7", "5"))


@pytest.mark.parametrize(
    ("expression", "firing"),
    [
        ("rado_a > 4", {"2": 10}),
        ("rado_a < 5 * 2", {"1": 4}),
        ('rado_a{x="2"} == 10', {"2": 10}),
        ('rado_a{x="1"} == 10', {}),
        ("rado_a / rado_b < 0.6", {"1": 0.5}),
        ("rado_a / rado_b < 0.5", {}),
        ("rado_a < rado_b", {"1": 4}),
        ("rado_a - time() < 0", {"1": -2}),
        ("increase(rado_c_total[1h]) > 0", {"1": 2}),
        ("rado_absent == 0", {}),
        ('up{job="rado"} == 1', {"": 1}),
        ("up == 0", {}),
    ],
)
def test_an_expression_keeps_the_series_for_which_it_is_true(expression, firing):
    found = Moment(NOW, BEFORE, unix_s=6.0).firing(expression)
    assert {"".join(value for _, value in labels): number for labels, number in found.items()} == firing


@pytest.mark.parametrize("expression", ["3 > 2", "rado_a and rado_b", "sum(rado_a) > 1", "rado_a >"])
def test_what_it_does_not_know_is_an_error(expression):
    with pytest.raises((AssertionError, NameError, SyntaxError, TypeError)):
        Moment(NOW).firing(expression)

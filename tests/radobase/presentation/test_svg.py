"""Plots: values stand where the axes say, sorts of lines differ without colour, and texts are texts."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from radobase.presentation.svg import SORTS, Drawing, Plot, Scale, bars, check_picture, colours, write_picture

HOSTILE = "<script>alert(1)</script> & \"'\u202e\n"


def plot(x: Scale, y: Scale) -> Plot:
    return Plot("p", "a title", "its words", x, y, heading="y", label="x")


@given(low=st.floats(1e-6, 1e6), factor=st.floats(1.001, 1e6), share=st.floats(0, 1), is_log=st.booleans())
def test_ticks_and_values_are_within_the_axes(low, factor, share, is_log):
    scale = Scale(low, low * factor, is_log)
    assert scale.ticks
    shares = [scale.share(tick.value) for tick in scale.ticks]
    assert shares == sorted(shares)
    assert 0 <= scale.share(low + share * (scale.high - low)) <= 1
    assert (scale.share(low / 2), scale.share(low), scale.share(scale.high * 2)) == (0, 0, 1)
    assert len(scale.ticks) <= 12


def test_round_numbers_mark_an_axis():
    assert [tick.label for tick in Scale(0.0, 4.2).ticks] == ["0", "2", "4"]
    assert [tick.label for tick in Scale(0.1, 10, is_log=True).ticks] == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]
    assert [tick.label for tick in Scale(1, 1e6, is_log=True).ticks][::2] == ["1", "100", "10000", "1e+06"]


def test_one_value_has_a_scale():
    assert Scale.over([3.0]) == Scale(3.0, 4.0)
    assert Scale.over([2.0], is_log=True) == Scale(1.0, 4.0, is_log=True)


def test_a_line_goes_through_its_points():
    made = plot(Scale(0, 10), Scale(0, 1))
    made.line([(0, 0), (5, 0.5), (10, 1)], 1, marks=True)
    (line,) = re.findall('<polyline points="([^"]*)" class="line s1"', made.__html__())
    middle = f"{(made.left + made.right) / 2:g},{(made.top + made.bottom) / 2:g}"
    assert line == f"{made.left},{made.bottom} {middle} {made.right},{made.top}"
    assert made.__html__().count('class="dot s1"') == 3


def test_sorts_of_lines_differ_without_colours():
    rules = dict(re.findall(r"\.line\.(s\d) \{ stroke-dasharray: ([^;]*);", colours()))
    assert len(set(rules.values())) == len(rules) == SORTS - 1


def test_bars_end_at_their_values():
    made = bars("b", "t", "w", [("up", "+2", 2.0, (1.0, 3.0)), ("down", "-1", -1.0, None)]).__html__()
    up, down = re.findall('<rect x="([^"]*)" y="[^"]*" width="([^"]*)"', made)
    zero = float(re.search(r'M(\S+) 0 V\S+" class="axis"', made)[1])
    assert float(up[0]) == pytest.approx(zero)
    assert float(down[0]) + float(down[1]) == pytest.approx(zero, abs=0.1)
    assert float(up[1]) == pytest.approx(2 * float(down[1]), abs=0.1)


def test_texts_are_texts(tmp_path):
    made = Drawing("d", HOSTILE, HOSTILE, 100, 50)
    made.text(1, 2, HOSTILE)
    write_picture(HOSTILE, [made], tmp_path / "a.svg")
    for text in (made.__html__(), (tmp_path / "a.svg").read_text()):
        parts = [part.tag.rpartition("}")[2] for part in ET.fromstring(text).iter()]
        assert "script" not in parts
        assert "\u202e" not in text
    (words,) = [part.text for part in ET.fromstring(made.__html__()) if part.tag == "text"]
    assert words == HOSTILE.replace("\u202e", "\\u202e").replace("\n", "\\n")


def test_a_file_loads_nothing(tmp_path):
    write_picture("a picture", [plot(Scale(0, 1), Scale(0, 1))] * 4, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text.count("http") == text.count("http://www.w3.org/2000/svg") == 1
    assert "href" not in text
    assert len(list(ET.fromstring(text).iter("{http://www.w3.org/2000/svg}svg"))) == 5


@pytest.mark.parametrize(("name", "says"), [("a.png", "ends in .svg"), ("away/a.svg", "not a directory")])
def test_what_cannot_be_drawn_is_refused(tmp_path, name, says):
    with pytest.raises(ConfigurationError, match=says):
        check_picture(tmp_path / name)

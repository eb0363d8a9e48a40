"""Units of columns: which ones are known, how one is converted into another, and what a header says of them.

A number in one unit becomes one in another by a factor and an offset, in this order. Nothing is converted by itself:
what is known here checks what people write, and words proposals.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

_RATIO_TOLERANCE = 1e-6
"""Of a factor or an offset that a person writes, such as 0.453592 for a pound in kilograms."""


@dataclass(frozen=True)
class _Unit:
    """What a number in the unit times `factor` plus `offset` is of: the first unit of its quantity."""

    quantity: str
    factor: Fraction
    offset: Fraction = Fraction(0)


def _scaled(quantity: str, **factors: str) -> dict[str, _Unit]:
    return {name: _Unit(quantity, Fraction(factor)) for name, factor in factors.items()}


_POUND, _OUNCE = "0.45359237", "0.028349523125"
_UNITS: dict[str, _Unit] = {
    **_scaled("mass", kg="1", g="1e-3", mg="1e-6", ug="1e-9", mcg="1e-9", ng="1e-12", lb=_POUND, lbs=_POUND, oz=_OUNCE),
    **_scaled("length", m="1", cm="1e-2", mm="1e-3", km="1e3", inch="0.0254", inches="0.0254", ft="0.3048"),
    **_scaled("volume", l="1", dl="1e-1", cl="1e-2", ml="1e-3", ul="1e-6"),
    **_scaled("time", s="1", ms="1e-3", min="60", h="3600", hours="3600", days="86400", weeks="604800"),
    **_scaled("pressure", Pa="1", hPa="100", kPa="1000", mmHg="133.322387415"),
    **_scaled("energy", J="1", kJ="1000", cal="4.184", kcal="4184"),
    **{
        f"{mass}/{volume}": _Unit("mass in a volume", Fraction(of_mass) / Fraction(of_volume))
        for mass, of_mass in (("g", "1"), ("mg", "1e-3"), ("ug", "1e-6"), ("ng", "1e-9"))
        for volume, of_volume in (("l", "1"), ("dl", "1e-1"), ("ml", "1e-3"))
    },
    **{
        f"{amount}/l": _Unit("amount in a volume", Fraction(factor))
        for amount, factor in (("mol", "1"), ("mmol", "1e-3"), ("umol", "1e-6"), ("nmol", "1e-9"))
    },
    "degC": _Unit("temperature", Fraction(1)),
    "degF": _Unit("temperature", Fraction(5, 9), Fraction(-160, 9)),
    "K": _Unit("temperature", Fraction(1), Fraction("-273.15")),
}
_SPELLED = {"°C": "degC", "℃": "degC", "celsius": "degC", "°F": "degF", "℉": "degF", "fahrenheit": "degF"}

# In brackets any text may be a unit; after an underscore or a blank only one that is hardly another word.
_IN_BRACKETS = re.compile(r"(?P<stem>.*\S)[\s_]*[(\[]\s*(?P<unit>[^()\[\]]{1,20}?)\s*[)\]]")
_AT_THE_END = re.compile(r"(?P<stem>.*[^\s_.])[\s_.]+(?P<unit>[^\s_.]+)")
_OTHER_WORDS = frozenset(["min", "ms", "cal", "ft", "inches", "lbs", "Pa"])


@dataclass(frozen=True)
class Conversion:
    """Value in the second unit = value in the first * factor + offset."""

    factor: float
    offset: float

    @property
    def words(self) -> str:
        """As a recode file has it."""
        return f"factor = {self.factor:.9g}{f', offset = {self.offset:.9g}' if self.offset else ''}"

    def agrees(self, factor: float, offset: float) -> bool:
        """Whether these are the same, as far as people write digits."""
        near = math.isclose(factor, self.factor, rel_tol=_RATIO_TOLERANCE)
        return near and math.isclose(offset, self.offset, rel_tol=_RATIO_TOLERANCE, abs_tol=1e-9)


def conversion(first: str, second: str) -> Conversion | None:
    """From the first unit into the second; None if one is not known, or they are of different quantities."""
    start, end = _known(first), _known(second)
    if start is None or end is None or start.quantity != end.quantity:
        return None
    return Conversion(float(start.factor / end.factor), float((start.offset - end.offset) / end.factor))


def are_same(first: str, second: str) -> bool:
    """Whether two texts mean one unit."""
    return _plain(first) == _plain(second)


def unit_in_header(header: str) -> tuple[str, str] | None:
    """What a header says of the unit, as in "weight_kg" or "weight (kg)": the rest, and the unit; None if nothing."""
    found = _IN_BRACKETS.fullmatch(header)
    if found is not None and _known(found["unit"]) is not None:
        return found["stem"], found["unit"]
    found = _AT_THE_END.fullmatch(header)
    if found is None or len(found["unit"]) < 2 or found["unit"] in _OTHER_WORDS or _known(found["unit"]) is None:
        return None
    return found["stem"], found["unit"]


def _known(unit: str) -> _Unit | None:
    return _UNITS.get(_plain(unit))


def _plain(unit: str) -> str:
    """One spelling of a unit: µ and μ as u, L as l."""
    text = unit.strip().replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    text = _SPELLED.get(text, text)
    litres = text.replace("L", "l")
    return litres if litres in _UNITS else text

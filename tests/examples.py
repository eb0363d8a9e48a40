"""How many examples a test of a property tries, where the profile's own number is too few to notice a break."""

from hypothesis import settings


def examples(quick: int, thorough: int) -> int:
    """`quick` in `make test` and in the second tier, `thorough` in `make test-all`."""
    return thorough if settings.get_current_profile_name() == "thorough" else quick

"""For all tests: no test fails because the machine is busy."""

from hypothesis import settings

# Hypothesis fails an example that takes longer than 0.2 s by default, and so would a first call that compiles.
settings.register_profile("radofed", deadline=None)
settings.load_profile("radofed")

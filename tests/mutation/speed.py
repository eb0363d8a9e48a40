"""mutmut's trampolines, which every call of a mutated function goes through, made cheaper.

Which function called which is not noted: nothing here uses it, and its context variable could not be reset in tests of
several modules (LookupError). The mutant under test is read from the environment only in processes that tests start.
"""

import os

from mutmut.core import MutmutCallStack
from mutmut.mutation import trampoline


def _mutant_under_test() -> str:
    local = trampoline._mutant_under_test
    return os.environ.get("MUTANT_UNDER_TEST", "") if local is None else local


def install() -> None:
    """From now on, in this process and its forks."""
    MutmutCallStack.get = lambda: (None, 0)
    MutmutCallStack.set = lambda value: None
    MutmutCallStack.reset = lambda token: None
    trampoline.get_mutant_under_test = _mutant_under_test

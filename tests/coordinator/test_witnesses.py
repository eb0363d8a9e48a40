"""The coordinator's relay of challenges and witnesses: each member's own, the newest, and nothing foreign."""

import pytest

from tests.coordinator.bench import Bench
from wire.envelopes import Envelope, SigningKey
from wire.errors import Code, WireError
from wire.roster import Role
from wire.witness import Challenge, Witness

NONCE, OTHER = b"n" * 32, b"o" * 32


@pytest.fixture
def bench(tmp_path):
    return make_bench(tmp_path)

import pytest

from tests.federation.learner import World
from tests.federation.setting import Setting


@pytest.fixture
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.fixture
def setting(tmp_path, learner_key):
    setting = Setting(tmp_path, learner_key)
    yield setting
    setting.stub.stop()


@pytest.fixture
def small_chunks(monkeypatch):
    """Two ciphertexts of a 2048-bit key per chunk, so that a small total has several chunks."""
    monkeypatch.setattr("wire.statements.CHUNK_BYTES", 1024)

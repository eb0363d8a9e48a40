"""Where a report finds a model's releases, and that their signatures are verified."""

import json
import shutil
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpcore.errors import ConfigurationError
from learner.config import LearnerConfig
from learner.history import RELEASE_NAME_DIGITS
from learner.release import Release
from learner.report.gathering import _members
from wire.envelopes import SigningKey
from wire.roster import Roster


def configured(directory, key: SigningKey) -> LearnerConfig:
    """What of a learner's configuration a report reads. directory: of the releases."""
    file = directory.parent / "federation.pub"
    public = Ed25519PublicKey.from_public_bytes(key.public_bytes)
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    file.write_bytes(public.public_bytes(*form))
    return LearnerConfig.model_construct(releases_directory=directory, federation_key=file)


@pytest.fixture
def kept(reported, tmp_path):
    """The learner's directory of releases, with those of both models, under the names of their queries."""
    directory = tmp_path / "releases"
    for place in (*reported.answers, *reported.releases):
        name = Release.load(place).query_id.hex()[:RELEASE_NAME_DIGITS]
        shutil.copytree(place, directory / name)
    (directory / "no release").mkdir()
    return directory


@pytest.fixture
def newton(reported, tmp_path):
    """The model of three answers, with the journal of its training."""
    model = tmp_path / "newton.json"
    shutil.copy(reported.newton, model)
    rounds = [{"asked": "00" * 32, "query_id": Release.load(place).query_id.hex()} for place in reported.answers]
    journal = {"format": "radofed-journal", "format_version": 1, "rounds": rounds}
    (tmp_path / "newton.json.journal").write_text(json.dumps(journal))
    return model


@pytest.mark.more
def test_releases_are_found_by_the_journal_and_by_the_digest(reported, kept, newton):
    config = configured(kept, reported.world.federation_key)
    found = reported.report(newton, config=config)
    assert [answer.asked.kind for answer in found.answers] == ["moments", "gradient", "gradient"]
    (answer,) = reported.report(reported.model, config=config).answers
    assert answer.digest == reported.loaded().release_digest.hex()
    assert found.is_verified is True
    assert reported.report(newton, releases=tuple(reported.answers)).is_verified is None


def test_a_journal_of_another_name_is_found_by_what_it_names(reported, kept, newton):
    """The model was renamed, and its journal was not, among those of other trainings."""
    config = configured(kept, reported.world.federation_key)
    renamed = newton.rename(newton.with_name("final.json"))
    (newton.with_name("a.json.journal")).write_text("{}")
    content = json.loads(newton.with_name("newton.json.journal").read_text())
    content["rounds"] = content["rounds"][:2]
    (newton.with_name("b.json.journal")).write_text(json.dumps(content))
    found = reported.report(renamed, config=config)
    assert [answer.asked.kind for answer in found.answers] == ["moments", "gradient", "gradient"]
    assert found.is_verified is True


def test_releases_that_are_gone_or_of_another_run_are_not_taken_for_the_model_s(reported, kept, newton):
    config = configured(kept, reported.world.federation_key)
    journal = newton.with_name("newton.json.journal")
    content = json.loads(journal.read_text())
    content["rounds"].reverse()
    journal.write_text(json.dumps(content))
    assert reported.report(newton, config=config).answers == ()
    content["rounds"].reverse()
    journal.write_text(json.dumps(content))
    shutil.rmtree(kept / content["rounds"][1]["query_id"][:RELEASE_NAME_DIGITS])
    found = reported.report(newton, config=config)
    assert (found.answers, found.is_verified) == ((), None)
    assert "does not have them, or not all" in found.without_releases
    shutil.rmtree(kept)
    assert reported.report(reported.model, config=config).answers == ()


def test_members_that_left_are_listed_after_the_others(reported):
    """Their rows may be in an earlier release of the same model."""
    releases = [Release.load(place) for place in reported.answers]
    before = Roster.from_bytes(releases[0].roster_envelope.payload)
    after = replace(
        before, version=before.version + 3, members=tuple(each for each in before.members if each.name != "bo")
    )
    rows = _members(after, [before, before, after], releases)
    assert [(row.name, row.left_after) for row in rows if row.role == "party"] == [
        ("ada", None),
        ("cy", None),
        ("bo", before.version),
    ]
    assert (rows[-1].answered, rows[-1].rows) == (3, 3000)
    assert all(row.left_after is None for row in _members(before, [before], releases))


def test_signatures_of_another_federation_are_refused(reported, kept):
    with pytest.raises(ConfigurationError, match="signatures are not those of this federation"):
        reported.report(reported.model, config=configured(kept, SigningKey.generate("clinics")))
    with pytest.raises(ConfigurationError, match="signatures are not those of this federation"):
        reported.report(reported.releases[0], config=configured(kept, SigningKey.generate("clinics")))

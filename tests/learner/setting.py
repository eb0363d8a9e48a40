"""A learner's environment: a provisioned federation on disk, and a coordinator with answers set by a test."""

import json
import time
from dataclasses import replace

from learner.config import LearnerConfig
from learner.reaching import warn
from learner.session import Session
from radobase.files.writing import create_durably
from radofed.provision import provision
from tests.learner.coordinator_stub import CoordinatorStub
from tests.learner.totals import World, encrypt, random_values, to_chunks
from wire.envelopes import Envelope, SigningKey
from wire.query import open_query
from wire.roster import Roster

ROWS = {"ada": 100, "bo": 200, "cy": 300}


class Setting:
    """A provisioned federation, a coordinator stub that serves it, and the learner's configuration."""

    def __init__(self, root, learner_key):
        self.made = provision(
            root / "federation",
            federation="clinics",
            coordinator_address="127.0.0.1:1",
            parties=list(ROWS),
            rows_at_least=ROWS,
        )
        directories = {m.name: m.directory for m in self.made.members}
        offline = self.made.directory / "federation"
        signed = Envelope.from_bytes((offline / "roster.signed").read_bytes())
        self.world = World(
            learner_key,
            dict(ROWS),
            federation_key=SigningKey.load(offline / "federation.key", "clinics"),
            learner_key=SigningKey.load(directories["learner"] / "signing.key", "clinics"),
            party_keys={name: SigningKey.load(directories[name] / "signing.key", "clinics") for name in ROWS},
            fixed_roster=Roster.from_bytes(signed.payload),
        )
        jwk = {**learner_key.secret.to_jwk(), "not_before_unix_s": learner_key.not_before_unix_s}
        create_durably(directories["learner"] / "paillier.jwk", json.dumps(jwk).encode())
        self.stub = CoordinatorStub(signed)
        config = LearnerConfig.load(directories["learner"] / "learner.toml")
        coordinator = LearnerConfig.load(directories["learner"] / "learner.toml").tls.model_copy(
            update={
                "certificate": directories["coordinator"] / "certificate.pem",
                "key": directories["coordinator"] / "tls.key",
            }
        )
        self.stub.features = [self.world.features(name) for name in ROWS]
        address = self.stub.start(coordinator.files)
        self.config = config.model_copy(update={"coordinator": address})
        self.config_file = directories["learner"] / "learner.toml"
        self.config_file.write_text(self.config_file.read_text().replace("127.0.0.1:1", address))
        self.stub.on_submit = self.answer
        self.attempt = 1
        self.rows = dict(ROWS)

    def answer(self, envelope):
        """The total of an honest cohort for a query."""
        opened = open_query(envelope, self.world.roster, now_unix_s=time.time())
        # Sums that wrap fail the tag.
        largest = min(1 << 20, opened.query.encoding.largest_sum // len(self.rows))
        contributions = [(random_values(opened, seed, largest), m) for seed, m in enumerate(self.rows.values())]
        self.expected = sum(values for values, _ in contributions)
        total = self.world.total(opened, self.rows, attempt=self.attempt)
        tag = self.world.tag(opened, total.cohort, self.expected)
        self.stub.totals[opened.query_id] = (total, to_chunks(opened, encrypt(opened, contributions, tag)))

    def session(self, *, give_up_after_s=1.0, note=warn, progress=True, **changes):
        config = self.config.model_copy(update=changes)
        return Session(config, give_up_after_s=give_up_after_s, note=note, progress=progress)

    def issue(self, version, change=lambda members: members):
        roster = self.world.roster
        newer = replace(roster, version=version, members=change(roster.members))
        self.stub.roster = newer.sign(self.world.federation_key)
        return newer

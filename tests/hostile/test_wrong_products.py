"""A worker of the coordinator's cluster that returns valid ciphertexts of another total: the learner's tag refuses it.

That the coordinator itself cannot notice is shown in tests/coordinator/test_cluster_totals.py.
"""

import numpy as np
import pytest

from coordinator.totals import check_chunk, product_of_run
from dpcore.paillier.masks import TagError
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import plain_design
from dpcore.randomness.sources import SystemRandom
from tests.federation.cohort import CohortInMemory
from tests.federation.material import SMALL
from tests.ray_nodes import another_product
from wire.upload import Chunk


def test_a_plausible_wrong_product_is_refused_by_the_tag(secret_key):
    obfuscator = Obfuscator(secret_key.public_key, SystemRandom())
    cohort = CohortInMemory(RadosQuery(5, plain_design(SMALL)), secret_key, obfuscator)
    key = cohort.opened.public_key
    (uploads,) = [list(each) for each in zip(*cohort.chunks.values(), strict=True)]
    slot_bits = cohort.opened.query.encoding.slot_bits
    honest, wrong = product_of_run(key, uploads), another_product(slot_bits, product_of_run, key, uploads)
    assert len(wrong) == len(honest)
    assert wrong != honest
    # What the coordinator checks.
    check_chunk(cohort.opened, Chunk.of(0, wrong))
    expected = sum(cohort.vectors.values())
    assert np.array_equal(cohort.open_products([honest]).values, expected)
    with pytest.raises(TagError):
        cohort.open_products([wrong])

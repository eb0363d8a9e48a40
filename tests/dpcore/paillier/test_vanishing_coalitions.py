"""What a coalition opens with real shares and masks is what the model of who learns what says, with any rule left out.

Every honest party is told who accepted, who is in its cohort and who survived, as the coalition likes. It uploads a
number under real masks and gives its real shares. The coalition takes off what it can, and tries every sum.
"""

import hashlib
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt, cohort_mask
from dpcore.paillier.sharing import Recovery
from dpcore.paillier.survivors import SealError, Secret, deal_keys, open_share, self_mask
from dpcore.randomness.sources import SystemRandom
from dpcore.research.who_learns_what.vanishing import ALL, LIES, Told, Vanishing, seen

BITS, SHAPE = 40, (1, 1)
MODULUS = 1 << BITS


def about(names) -> CohortAttempt:
    return CohortAttempt(bytes(32), 1, hashlib.sha256(" ".join(sorted(names)).encode()).digest())


def public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


class Attempt:
    """The keys of all, what the honest ones deal, give and send, and what the coalition makes of it."""

    def __init__(self, setting, choice, rules) -> None:
        admitted = {name: told for name, told in choice.items() if setting.is_admitted(told.sharing, rules)}
        self.setting, self.told, self.rules, names = setting, admitted, rules, setting.honest | setting.dishonest
        self.masks = {name: X25519PrivateKey.generate() for name in names}
        self.shares = {name: X25519PrivateKey.generate() for name in names} if rules.has_share_keys else self.masks
        self.seeds = {name: SystemRandom().bytes(32) for name in names}
        self.dealt = {name: self._deal(name, told) for name, told in admitted.items()}

    def _deal(self, name, told):
        return deal_keys(
            name,
            seed=self.seeds[name],
            mask_key=self.masks[name].private_bytes_raw(),
            share_key=self.shares[name],
            members={each: public(self.shares[each]) for each in sorted(told.sharing)},
            needed=len(told.sharing) - self.setting.may_vanish,
            attempt=about(told.sharing),
            random=SystemRandom(),
        )

    def share(self, of, dealer, name, key, sharing) -> bytes | None:
        """What a dealer sealed for a member, opened with a key; None if it does not open."""
        order = sorted(self.told[dealer].sharing)
        if name not in order:
            return None
        sealed, dealers = self.dealt[dealer].sealed[order.index(name)], public(self.shares[dealer])
        try:
            return open_share(sealed, of, dealer, dealers, name, key, about(sharing))
        except SealError:
            return None

    def opened(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Seeds and mask keys of honest parties that the shares give back."""
        found = {Secret.SELF_MASK: {}, Secret.MASK_KEY: {}}
        while True:
            before = [len(each) for each in found.values()]
            for of, dealer in itertools.product(Secret, self.told):
                given = dict(self._given(of, dealer, found[Secret.MASK_KEY]))
                needed = len(self.told[dealer].sharing) - self.setting.may_vanish
                if len(given) >= needed:
                    used = dict(list(given.items())[:needed])
                    found[of][dealer] = Recovery(list(used)).secret(used)
            if before == [len(each) for each in found.values()]:
                return found[Secret.SELF_MASK], found[Secret.MASK_KEY]

    def _given(self, of, dealer, mask_keys):
        sharing = self.told[dealer].sharing
        for place, name in enumerate(sorted(sharing), start=1):
            told = self.told.get(name)
            sets = () if told is None else told.survivors if not self.rules.unmasks_once else told.survivors[:1]
            gives = name in self.setting.dishonest or any(
                dealer in (survivors if of is Secret.SELF_MASK else told.cohort - survivors) for survivors in sets
            )
            key, of_which = self.shares[name], sharing if told is None else told.sharing
            if not gives and not self.rules.has_share_keys and name in mask_keys:
                gives, key = True, X25519PrivateKey.from_private_bytes(mask_keys[name])
            share = self.share(of, dealer, name, key, of_which) if gives else None
            if share is None and not self.rules.has_share_keys and dealer in mask_keys:
                share = self._by_dealer(of, dealer, name, mask_keys)
            if share is not None:
                yield place, share

    def _by_dealer(self, of, dealer, name, mask_keys) -> bytes:
        """What a dealer whose mask key is known sealed with it."""
        key = X25519PrivateKey.from_private_bytes(mask_keys[dealer])
        sealed = self.dealt[dealer].sealed[sorted(self.told[dealer].sharing).index(name)]
        about_it = about(self.told[dealer].sharing)
        # The agreement is that of the recipient, whose name is in the key's derivation.
        return open_share(sealed, of, dealer, public(self.shares[name]), name, key, about_it)

    def fewest(self) -> int:
        """Over how many honest parties the smallest sum is that opens; 0 if none does."""
        seeds, keys = self.opened()
        known = {name: X25519PrivateKey.from_private_bytes(key) for name, key in keys.items()}
        known |= {name: self.masks[name] for name in self.setting.dishonest}
        left = {name: self._left(name, told, seeds, known) for name, told in self.told.items() if self._uploads(told)}
        for size in range(1, len(left) + 1):
            if any(sum(left[name] for name in some) % MODULUS == 0 for some in itertools.combinations(left, size)):
                return size
        return 0

    def _uploads(self, told) -> bool:
        others = [self.told[each].sharing for each in told.cohort if each in self.told]
        return not self.rules.names_sharing or all(sharing == told.sharing for sharing in others)

    def _left(self, name, told, seeds, known) -> int:
        """What stays of the masks of an upload."""
        attempt = about(told.cohort)

        def masks(names) -> int:
            peers = {peer: public(self.masks[peer]) for peer in names}
            return int(cohort_mask(name, self.masks[name], peers, attempt, shape=SHAPE, value_bits=BITS)[0, 0])

        others = told.cohort - {name}
        left = masks(others) - masks(others if name in known else others & known.keys())
        if self.rules.has_self_masks:
            own = self_mask(self.seeds[name], name, attempt, shape=SHAPE, value_bits=BITS)
            if name in seeds:
                own = own - self_mask(seeds[name], name, attempt, shape=SHAPE, value_bits=BITS)
            left += int(np.asarray(own)[0, 0])
        return left


@pytest.mark.parametrize("name", sorted(LIES))
def test_a_lie_opens_a_sum_over_few_where_its_rule_is_left_out_and_nowhere_else(name):
    lie = LIES[name]
    without = Attempt(lie.setting, lie.choice, lie.rules).fewest()
    assert without == seen(lie.setting, lie.choice, lie.rules).fewest
    assert 0 < without < seen(lie.setting, lie.choice, lie.rules).counted
    with_all = seen(lie.setting, lie.choice, ALL)
    assert Attempt(lie.setting, lie.choice, ALL).fewest() == with_all.fewest
    assert not with_all.is_too_much


def test_what_random_lies_open_is_what_the_model_says():
    order, opened = random.Random(0), set()
    setting = Vanishing(frozenset("abcd"), frozenset("z"), 1)

    def part(names: str, member: str, least: int) -> frozenset[str]:
        others = sorted(set(names) - {member})
        return frozenset((member, *order.sample(others, order.randint(least - 1, len(others)))))

    for number in range(40):
        rules = replace(ALL, has_self_masks=number % 4 != 3)
        choice = {}
        cohort = part("abcdz", order.choice("abcd"), 4)
        for name in sorted(setting.honest & cohort):
            shown = cohort if order.random() < 0.8 else part("abcdz", name, 4)
            survivors = part("".join(shown), name, 4)
            choice[name] = Told(frozenset("abcdz"), shown, (survivors,))
        expected = seen(setting, choice, rules)
        assert Attempt(setting, choice, rules).fewest() == expected.fewest, (choice, rules)
        assert not (rules == ALL and expected.is_too_much)
        opened.add(expected.fewest)
    assert {0, 3, 4} <= opened

"""A total from which one member vanished before it uploaded, and what could be made of its keys."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt
from dpcore.paillier.sharing import SHARE_BYTES
from dpcore.paillier.survivors import Secret, open_share, seal_unmasking, survivors_digest
from dpcore.randomness.sources import SystemRandom
from radofed.conformance.dealing import Member
from radofed.conformance.total import BadTotal, MadeTotal, Shown
from wire.envelopes import Envelope
from wire.statements import Acceptance, Cohort, KeyShares, Unmasking, sign

SharesOf = Callable[[str, str, bytes], bytes | None]
"""What a member gives of another's share: (who gives, whose, the right one); None for nothing."""


@dataclass
class VanishingTotal(MadeTotal):
    """All members accepted and dealt; the last one did not upload, and the others gave their shares."""

    @property
    def survivors(self) -> tuple[str, ...]:
        """All but the last member."""
        return self.members[:-1]

    @property
    def sharing(self) -> Cohort:
        """All that accepted."""
        return Cohort(self.opened.query_id, self.attempt, tuple(self.acceptances[name] for name in self.members))

    @property
    def cohort(self) -> Cohort:
        """The same members, of this sharing."""
        return replace(self.sharing, sharing_digest=self.sharing.digest)

    def counts(self, name: str) -> bool:
        """Those of the survivors are."""
        return name in self.survivors

    def seed_of(self, member: Member) -> bytes | None:
        """The member's own."""
        return member.seed

    def _accepted(self, name: str) -> Envelope:
        said = Acceptance.from_bytes(super()._accepted(name).payload)
        return sign(replace(said, share_key=self.people[name].share_public), self.kit.signing_key(name))

    @property
    def receipts(self) -> list[Envelope]:
        """Of every survivor, in order."""
        return [self.receipt(name) for name in self.survivors]

    def product(self, members: Sequence[str] | None = None) -> list[bytes]:
        """The chunks of the product of these members' uploads, of the survivors by default."""
        return super().product(self.survivors if members is None else members)

    @property
    def keys(self) -> dict[str, Any]:
        """The sharing, the survivors, and what members dealt and gave."""
        return self.keys_with()

    def keys_with(
        self, shares: SharesOf = lambda _, __, right: right, unmasked: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """shares: what each survivor gives. unmasked: the survivors that they unmask, the right ones by default."""
        dealt = {name: self._dealt(name) for name in self.members}
        names = self.survivors if unmasked is None else tuple(unmasked)
        unmaskings = [self._unmasking(name, dealt, names, shares) for name in self.survivors]
        return {
            "sharing": self.sharing,
            "survivors": self.survivors,
            "key_shares": tuple(sign(each, self.kit.signing_key(each.party)) for each in dealt.values()),
            "unmaskings": tuple(sign(each, self.kit.signing_key(each.party)) for each in unmaskings),
        }

    @property
    def _about_sharing(self) -> CohortAttempt:
        return CohortAttempt(self.opened.query_id, self.attempt, self.sharing.digest)

    def _dealt(self, name: str) -> KeyShares:
        keys = {each: self.people[each].share_public for each in self.members}
        return self.people[name].deal(keys, self.opened.query.threshold(len(self.members)), self._about_sharing)

    def _unmasking(
        self, name: str, dealt: dict[str, KeyShares], survivors: tuple[str, ...], shares: SharesOf
    ) -> Unmasking:
        about = CohortAttempt(self.opened.query_id, self.attempt, self.cohort.digest)
        own, place = self.people[name].share_key, self.members.index(name)
        given = []
        for dealer in self.members:
            of = Secret.SELF_MASK if dealer in survivors else Secret.MASK_KEY
            sealed, key = dealt[dealer].sealed[place], self.people[dealer].share_public
            right = open_share(sealed, of, dealer, key, name, own, self._about_sharing)
            given.append(shares(name, dealer, right))
        digest = survivors_digest(survivors, about)
        opening_key = self.opened.query.binding.opening_key
        sealed = seal_unmasking(given, name, own, opening_key, digest, about, SystemRandom())
        return Unmasking(self.opened.query_id, self.attempt, name, self.cohort.digest, digest, sealed)


def bad_vanishing_totals() -> list[BadTotal]:
    """Totals with a vanished member that a learner must not open: there are just as many survivors as are needed."""

    def made(change: Callable[[VanishingTotal, Shown], dict[str, Any]]) -> Callable[[MadeTotal], Shown]:
        def show(total: MadeTotal) -> Shown:
            assert isinstance(total, VanishingTotal), "members may vanish"
            good = Shown.of(total)
            return replace(good, total=replace(good.total, **change(total, good)))

        return show

    def gives(total: VanishingTotal, _: Shown, *, share: bytes | None) -> dict[str, Any]:
        first = total.survivors[0]
        return total.keys_with(lambda name, _, right: share if name == first else right)

    def others_unmasked(total: VanishingTotal, _: Shown) -> dict[str, Any]:
        return {"unmaskings": total.keys_with(unmasked=total.members)["unmaskings"]}

    def forged(_: VanishingTotal, good: Shown) -> dict[str, Any]:
        first, *rest = good.total.unmaskings
        return {"unmaskings": (replace(first, signature=os.urandom(64)), *rest)}

    def fewer(_: VanishingTotal, good: Shown) -> dict[str, Any]:
        return {"unmaskings": good.total.unmaskings[1:]}

    def few_survivors(_: VanishingTotal, good: Shown) -> dict[str, Any]:
        kept = good.total.survivors[1:]
        return {"survivors": kept, "receipts": good.total.receipts[1:], "unmaskings": good.total.unmaskings[1:]}

    def of_another_key(total: VanishingTotal, good: Shown) -> dict[str, Any]:
        """The vanished member dealt another mask key than it masked with."""
        lost = total.members[-1]
        total.people[lost].mask_key = X25519PrivateKey.generate()
        return total.keys_with() | {"survivors": good.total.survivors}

    def of_other_sharing(total: VanishingTotal, _: Shown) -> dict[str, Any]:
        return {"cohort": replace(total.cohort, sharing_digest=os.urandom(32))}

    wrong = bytes(SHARE_BYTES - 1) + b"\1"
    return [
        BadTotal("8.2", "a forged Unmasking", made(forged)),
        BadTotal("8.2", "an Unmasking too few", made(fewer)),
        BadTotal("8.2", "fewer survivors than the threshold", made(few_survivors)),
        BadTotal("8.2", "an Unmasking for other survivors", made(others_unmasked)),
        BadTotal("8.2", "a cohort of another sharing", made(of_other_sharing)),
        BadTotal("8.2", "a share that does not fit its commitment", made(partial(gives, share=wrong))),
        BadTotal("8.2", "a share too few", made(partial(gives, share=None))),
        BadTotal("8.2", "shares of another mask key than the vanished member's", made(of_another_key)),
    ]

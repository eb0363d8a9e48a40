"""Our own party with one thing broken, for processes of their own: whether the kit finds it, and names the section."""

import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np


def run_broken(name: str, config: str) -> None:
    (BREAKS | WITHOUT_LEDGER)[name]()
    from radofed.cli.entry_point import main

    sys.argv = ["rado", "party", "start", "--config", config]
    main()


def _without_masks() -> None:
    from parties.answering import contribution

    contribution.cohort_mask = lambda *_, shape, value_bits, **__: np.zeros(shape, dtype=np.uint64)


def _with_masks_of_the_wrong_sign() -> None:
    from parties.answering import contribution

    real = contribution.cohort_mask

    def negated(*arguments, value_bits, **named):
        return (~real(*arguments, value_bits=value_bits, **named) + np.uint64(1)) & np.uint64((1 << value_bits) - 1)

    contribution.cohort_mask = negated


def _with_an_unmasked_tag() -> None:
    from parties.answering import contribution

    contribution.tag_mask = lambda *_: 0


def _without_noise() -> None:
    from dpcore.accounting import noise_shares

    noise_shares.discrete_gaussian = lambda sigma, count, random: np.zeros(count, dtype=np.int64)


def _with_half_of_the_noise() -> None:
    from dpcore.accounting import noise_shares

    real = noise_shares.discrete_gaussian
    noise_shares.discrete_gaussian = lambda sigma, count, random: real(max(1, int(sigma) // 2), count, random)


def _with_labels_swapped() -> None:
    from dpcore.records import encoding

    real = encoding._labelled

    def swapped(schema, label, cells, usable, *more):
        labels, tally = real(schema, label, cells, usable, *more)
        labels[usable] *= -1
        return labels, tally

    encoding._labelled = swapped


def _that_forgets_to_trim() -> None:
    from dpcore.records import encoding

    encoding.in_form = lambda cells, form: cells


def _that_believes_every_cohort() -> None:
    """A client of the good half only: it reads cohorts, and verifies nothing in them."""
    from parties.answering import contribution
    from wire.statements import Acceptance

    def unverified(cohort, *_):
        return tuple(Acceptance.from_bytes(each.payload) for each in cohort.acceptances)

    contribution.verify_cohort = unverified


def _that_believes_every_coordinator() -> None:
    """It answers queries that no learner signed, and attempts that the learner did not sign."""
    from parties.answering import decisions, jobs, lifecycle
    from wire.query import OpenedQuery, PaillierKey, Query

    def unverified(envelope, roster, *, now_unix_s):
        query = Query.from_bytes(envelope.payload)
        return OpenedQuery(envelope, query, PaillierKey.from_bytes(query.paillier_key.payload).public_key)

    lifecycle.check_signed = jobs.check_signed = lambda *_: None
    lifecycle.open_query = unverified
    decisions.check_retry = lambda *_: None


def _that_charges_nothing() -> None:
    from parties.answering import decisions
    from wire.errors import WireError

    real = decisions.charge_for

    def little(query, *arguments):
        with suppress(AttributeError, WireError):
            query = replace(query, kind=query.kind.with_noise(8 * query.kind.share_sigma))
        return real(query, *arguments)

    decisions.charge_for = little


def _that_charges_what_it_accepts() -> None:
    """What was reserved is never released."""
    from parties.ledger.ledger import Ledger

    Ledger.release = lambda *_, **__: None


def _with_one_mask_key() -> None:
    from dpcore.randomness.sources import SystemRandom

    real = SystemRandom.bytes
    first: list[bytes] = []

    def same(self, count):
        if count != 32:
            return real(self, count)
        first.append(real(self, count))
        return first[0]

    SystemRandom.bytes = same


def _with_fresh_noise_in_a_table() -> None:
    from dataclasses import replace as replaced

    from dpcore.rados.sums import PreparedRecords
    from dpcore.randomness.sources import SystemRandom

    real = PreparedRecords.drawn_sums

    def drawn(self, rados, computation):
        if self.table is not None:
            self = replaced(self, table=replaced(self.table, key=SystemRandom().bytes(32)))
        return real(self, rados, computation)

    PreparedRecords.drawn_sums = drawn


def _with_shortened_rados() -> None:
    from dpcore.queries.rados import RadosQuery

    real = RadosQuery.contribution
    RadosQuery.contribution = lambda *arguments: real(*arguments) * 2 // 3


def _that_counts_each_row_as_a_person() -> None:
    from dpcore.records.persons import PERSON_WEIGHT, PersonRows

    PersonRows.weights = lambda _, usable: np.where(usable, PERSON_WEIGHT, 0).astype(np.int64)


def _that_answers_about_all_rows() -> None:
    """It states the rows of the epoch, and sums all."""
    from dpcore.queries.moments import MomentsQuery
    from parties.answering.decisions import Party

    whole: list = []
    real_about, real = Party.about, MomentsQuery.contribution

    def about(self, epoch):
        whole[:] = [self.records] if epoch is not None else []
        return real_about(self, epoch)

    def contribution(self, records, *more):
        return real(self, whole[0] if whole else records, *more)

    Party.about, MomentsQuery.contribution = about, contribution


def _that_approves_a_learner_once() -> None:
    """A person's one approval of a training lets everything of its learner through."""
    from parties.approval.gate import Gate, Pass

    real = Gate.passes

    def passes(self, opened, attempt, charge, policy):
        given = [each for each in self._standing.all(policy) if each.is_in_force(self._clock())]
        is_known = any(each.terms.learner == opened.query.learner for each in given)
        return Pass() if is_known else real(self, opened, attempt, charge, policy)

    Gate.passes, Gate.check = passes, lambda *_: None


def _that_unmasks_any_survivors() -> None:
    from parties.answering.sharings import Sharings

    Sharings.unmasked = lambda self, query_id, attempt, digest, make: make()


def _that_deals_its_whole_keys() -> None:
    """Each share is the secret: a polynomial of degree 0."""
    from dpcore.paillier import survivors

    real = survivors.deal
    survivors.deal = lambda secret, *, threshold, members, random: real(
        secret, threshold=1, members=members, random=random
    )


def _that_believes_its_own_ledger() -> None:
    """It answers, whatever other parties show."""
    from parties.answering.witnesses import LedgerGuard

    LedgerGuard.may_answer = True


def _that_ends_when_its_ledger_is_lost() -> None:
    """Not a break: its process ends, and has fetched work only before there was any."""
    import os

    from parties.client import CoordinatorClient

    real = CoordinatorClient.fetch_work
    fetched = []

    def fetch_work(self, cursor, wait_s):
        if fetched:
            os._exit(1)
        fetched.append(cursor)
        return real(self, cursor, 0)

    CoordinatorClient.fetch_work = fetch_work


BREAKS = {function.__name__.removeprefix("_"): function for function in (
    _without_masks,
    _with_masks_of_the_wrong_sign,
    _with_an_unmasked_tag,
    _without_noise,
    _with_half_of_the_noise,
    _with_labels_swapped,
    _that_forgets_to_trim,
    _that_believes_every_cohort,
    _that_believes_every_coordinator,
    _that_charges_nothing,
    _that_charges_what_it_accepts,
    _with_one_mask_key,
    _with_fresh_noise_in_a_table,
    _with_shortened_rados,
    _that_counts_each_row_as_a_person,
    _that_answers_about_all_rows,
    _that_approves_a_learner_once,
    _that_unmasks_any_survivors,
    _that_deals_its_whole_keys,
)}  # fmt: skip
WITHOUT_LEDGER = {function.__name__.removeprefix("_"): function for function in (
    _that_believes_its_own_ledger,
    _that_ends_when_its_ledger_is_lost,
)}  # fmt: skip
"""For parties whose ledger is lost."""

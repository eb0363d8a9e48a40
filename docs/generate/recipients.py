"""What a sender could say differently to two recipients, field by field, and why it is noticed or harmless.

docs.generate.message_fields gives every field a row.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from docs.generate.message_fields import FIELDS


@dataclass(frozen=True)
class Row:
    """Fields that are alike in this.

    what: they are. told: who could tell whom different things, and what it would gain. because: why it is noticed, or
    harmless. tests: their names, by files below tests/.
    """

    what: str
    told: str
    because: str
    tests: Mapping[str, tuple[str, ...]]


ROWS: Mapping[str, Row] = {
    "seed": Row(
        "the seed of the tag's coefficient, sealed for each party",
        "The learner to two parties: one party's values, from the total's tag (advisory of 0.2.1)",
        "Noticed. The signed query commits to one seed, and each party compares its own before it accepts and before "
        "it uploads. Only parties that the learner accepted get one",
        {
            "parties/answering/test_lifecycle.py": (
                "test_a_query_with_another_seed_for_this_party_is_refused_and_not_charged",
                "test_masking_itself_refuses_another_seed",
            ),
            "hostile/test_unequal_seeds.py": (
                "test_a_party_refuses_another_seed_than_the_query_commits_to",
                "test_with_one_seed_the_tag_tells_nothing_but_the_total",
            ),
            "learner/test_asked_parties.py": ("test_a_party_that_was_not_accepted_gets_no_seed",),
            "dpcore/research/test_who_learns_what.py": ("test_each_rule_that_is_left_out_is_found_and_nothing_else",),
        },
    ),
    "query": Row(
        "the query: what is asked, for which purpose and study, keys, phases, features",
        "The learner signs two, or the coordinator shows one to some parties only: a cohort of parties that were "
        "asked different things",
        "Noticed. A query's id is the hash of all its bytes. Acceptances name it, and masks, pads and coefficient are "
        "derived with it, so contributions to two queries are no total",
        {
            "learner/test_opening.py": ("test_a_cohort_of_another_query",),
            "parties/test_attacks.py": ("test_a_cohort_that_breaks_a_rule_receives_no_upload_and_no_charge",),
            "dpcore/paillier/test_masks.py": ("test_streams_of_other_attempts_cohorts_and_names_differ",),
            "parties/answering/test_refusals.py": ("test_what_no_learner_signed_is_neither_answered_nor_noted",),
        },
    ),
    "acceptance": Row(
        "a member's acceptance: mask key, row count, roster version",
        "A member signs two, and the coordinator shows each to some: masks that cancel for a part of the cohort",
        "Noticed. The cohort's digest has every acceptance and enters every mask and pad, so nothing cancels. A party "
        "finds its own acceptance in the cohort byte for byte, and keys of low order are refused",
        {
            "end_to_end/test_told_apart.py": (
                "test_a_member_that_shows_two_mask_keys",
                "test_a_member_that_shows_two_row_counts",
            ),
            "wire/test_refused_messages.py": ("test_a_value_out_of_range_is_refused",),
        },
    ),
    "cohort": Row(
        "the cohort of an attempt",
        "The coordinator to members or learner: a total over fewer parties than a member believes",
        "Noticed. As for acceptances, also if only the order differs; a member's receipt names its cohort to the "
        "learner, and a member uploads for one cohort of an attempt",
        {
            "end_to_end/test_told_apart.py": ("test_a_cohort_in_another_order",),
            "end_to_end/test_same_as_pooled.py": ("test_an_upload_for_another_cohort_does_not_cancel",),
            "parties/test_attacks.py": ("test_a_second_cohort_for_the_same_attempt_receives_no_upload",),
            "hostile/test_sybil_roster.py": ("test_a_cohort_full_of_sybils_gets_nothing_of_a_party",),
        },
    ),
    "sharing": Row(
        "who had accepted when parties began to prepare, and the shares of keys, if members may vanish",
        "The coordinator to two members: members that left others out, of which a party never heard. A member deals "
        "shares that give nothing back",
        "Noticed. A party deals for one sharing for ever, verified as a cohort; its cohort's digest covers the "
        "sharing, and every member of the cohort signed that it dealt for the same one. Of bad shares the learner "
        "names the dealer, or dealer and giver",
        {
            "parties/answering/test_vanishing.py": (
                "test_she_deals_once_also_after_a_restart",
                "test_a_cohort_is_refused_uncharged_unless_all_dealt_for_her_sharing",
            ),
            "learner/test_unmasking.py": (
                "test_a_member_whose_shares_are_of_no_secret_of_its_own_is_named",
                "test_a_share_that_is_not_what_its_dealer_signed_names_both",
            ),
            "dpcore/research/test_who_learns_vanishing.py": ("test_each_rule_that_is_left_out_shows_a_sum_over_few",),
        },
    ),
    "survivors": Row(
        "who uploaded, and what these reveal of keys, if members may vanish",
        "The coordinator to two members: that one vanished and that it did not, to open a sum over few",
        "Harmless. A member gives shares for one set for ever, and the threshold is so high that no mixture of sets "
        "opens a sum over fewer honest members than are counted",
        {
            "parties/answering/test_vanishing.py": (
                "test_she_unmasks_one_set_for_ever",
                "test_what_she_unmasks_is_a_part_of_the_cohort_that_she_charged_for",
            ),
            "dpcore/paillier/test_survivors.py": ("test_the_condition_is_what_no_choice_of_sets_can_go_below",),
            "learner/test_unmasking.py": ("test_statements_that_are_not_of_the_total_are_refused",),
        },
    ),
    "receipt": Row(
        "a member's receipt",
        "A member signs two, for two cohorts or uploads: the learner would open a total of another cohort",
        "Noticed. The learner takes those of the cohort that it was shown, and the tag has that cohort's pads. Which "
        "bytes a receipt names decides nothing at the learner",
        {
            "learner/test_opening.py": (
                "test_a_receipt_for_something_else",
                "test_a_receipt_that_another_signed",
                "test_a_total_with_another_tag_is_not_opened",
            ),
        },
    ),
    "upload": Row(
        "chunks of an upload",
        "A party to the coordinator alone; other bytes later",
        "Refused. One index has one content, and a receipt fits only its own bytes. A party itself sends one content "
        "for ever, so that nothing averages over its noise",
        {
            "coordinator/test_service.py": ("test_a_repeated_chunk_is_harmless_and_other_bytes_are_refused",),
            "parties/answering/test_kills.py": ("test_a_masked_spool_other_than_the_recorded_one_is_not_sent",),
        },
    ),
    "total": Row(
        "the total and its chunks",
        "The coordinator to the learner, differently in two fetches: an answer from what the learner does",
        "Noticed. Whatever is not the members' product fails the tag, whatever the values are, and nothing is "
        "decrypted before all chunks are there",
        {
            "end_to_end/test_forged_totals.py": ("test_a_number_added_to_a_value", "test_the_total_of_another_attempt"),
            "learner/test_session.py": ("test_nothing_is_decrypted_before_every_chunk_is_there",),
            "learner/test_opening.py": ("test_a_total_of_another_size",),
        },
    ),
    "attempt": Row(
        "the attempt's number, and the learner's retry",
        "The learner or the coordinator to two parties: contributions to two attempts as one total, or charges "
        "without a decision",
        "Noticed. A party takes part in a later attempt only with a retry that the learner signed for it, charges it, "
        "and draws keys and noise afresh. Acceptances of two attempts make no cohort",
        {
            "parties/test_attacks.py": (
                "test_an_attempt_that_the_learner_did_not_start_is_refused_and_costs_nothing",
                "test_an_earlier_attempt_shown_again_is_ignored",
            ),
            "parties/answering/test_lifecycle.py": ("test_the_next_attempt_is_fresh_and_charged_again",),
            "learner/test_opening.py": ("test_an_acceptance_of_another_attempt",),
        },
    ),
    "standing": Row(
        "the attempt's phase, a party's state, chunks that are held",
        "The coordinator to each party: it decides who is in time (4.1)",
        "Harmless. A party's ledger has its own state. A repeated request gets the same bytes for one charge, and an "
        "attempt ends at the party's own clock",
        {
            "parties/test_attacks.py": (
                "test_where_a_coordinator_says_that_a_party_stands_changes_nothing_that_is_charged",
            ),
            "parties/answering/test_lifecycle.py": (
                "test_a_restored_coordinator_gets_the_same_statements_and_bytes_again_for_one_charge",
                "test_queries_that_are_gone_or_expired_end",
            ),
            "hostile/test_stalling_coordinator.py": ("test_a_coordinator_that_holds_queries_in_a_phase_for_ever",),
        },
    ),
    "work": Row(
        "the work that is shown, and cursors of long polls",
        "The coordinator to each party or learner: it withholds a query, or shows it again",
        "Harmless. Who is not asked does not answer. A cursor is not believed after a failed poll, and polls have a "
        "pace",
        {
            "parties/test_hostile_coordinator.py": (
                "test_after_a_failed_poll_a_party_looks_at_all_open_queries_again",
                "test_a_coordinator_without_end_is_polled_slowly",
            ),
            "hostile/test_stalling_coordinator.py": (
                "test_a_learner_that_is_shown_a_phase_beyond_the_querys_end_gives_up",
            ),
        },
    ),
    "roster": Row(
        "the roster and its members",
        "The federation key to two members, or the coordinator an old one: members that one of them does not know of",
        "Limited. A party counts members that it accepted by fingerprint. Versions never go back, two rosters of one "
        "version are refused by who sees both, and acceptances show the version that each party has (P8)",
        {
            "parties/test_rosters.py": (
                "test_another_roster_of_the_same_version_is_refused",
                "test_a_withheld_roster_is_noticed_as_soon_as_one_member_is_ahead",
            ),
            "learner/test_session.py": ("test_two_rosters_of_one_version",),
            "learner/test_fresh_rosters.py": ("test_a_withheld_roster_is_noticed_as_soon_as_one_member_is_ahead",),
            "parties/test_attacks.py": ("test_a_stranger_in_the_cohort_does_not_count",),
        },
    ),
    "clock": Row(
        "the coordinator's clock",
        "The coordinator to each member",
        "Harmless. `rado party check` compares it for a person; nothing else reads it",
        {
            "parties/test_check.py": ("test_a_clock_that_is_off_is_a_failure",),
        },
    ),
    "features": Row(
        "features that nodes state",
        "A party, or the coordinator that withholds statements: a weaker query",
        "Harmless. A query has the base whatever is stated, and parties refuse one without it. "
        "Statements that are not the party's own count for nothing. Digests of schemas decide what a plan warns of; "
        "parties themselves refuse a label that they lack",
        {
            "learner/test_retries_and_features.py": (
                "test_statements_that_are_not_the_party_s_own_count_for_nothing",
                "test_a_query_has_the_base_whatever_parties_state",
                "test_a_coordinator_that_is_too_old_is_refused_with_a_sentence",
            ),
            "parties/answering/test_refusals.py": ("test_refusals_carry_their_code_and_reserve_nothing",),
            "wire/test_refused_messages.py": ("test_features_that_another_member_signed_are_refused",),
        },
    ),
    "head": Row(
        "ledger heads",
        "A party to the members of two cohorts: a ledger that was set back",
        "Harmless for others: a head is about its own party's ledger and is shown to this party again, which compares "
        "all that it signed (P7). The sums in it are sealed for the party itself",
        {
            "parties/answering/test_witnesses.py": (
                "test_the_evidence_with_the_most_entries_is_kept",
                "test_a_set_back_ledger_that_went_on_is_noticed_at_the_next_question",
            ),
            "wire/test_refused_messages.py": ("test_a_value_out_of_range_is_refused",),
        },
    ),
    "witness": Row(
        "challenges and witnesses' answers",
        "A member or the coordinator to the party that asks: withheld or made-up evidence about its ledger",
        "Limited. An answer has the fresh nonce and its witness's signature; withheld answers do not count, and then "
        "the party accepts nothing. Made-up names cost their maker its own answer and 16 questions a day",
        {
            "parties/answering/test_witnesses.py": (
                "test_a_coordinator_that_withholds_what_would_show_it_withholds_a_witness",
                "test_a_member_that_shows_ever_other_names_costs_a_bounded_number_of_questions_and_its_own_answer",
                "test_old_foreign_and_forged_challenges_are_not_answered",
            ),
            "coordinator/test_witness_exchange.py": ("test_an_answer_without_its_challenge_is_refused",),
            "wire/test_refused_messages.py": ("test_an_answer_that_another_signed_is_refused",),
        },
    ),
    "answer": Row(
        "refusals, pending and ready",
        "A party to the coordinator, which passes on what it likes: waiting, or an attempt that is lost",
        "Harmless. They promise nothing and carry no value. There is one answer for each attempt, but for a refusal "
        "after an acceptance",
        {
            "coordinator/test_service.py": (
                "test_a_second_answer_must_be_the_first",
                "test_statements_of_others_are_refused",
                "test_a_party_that_gives_up_is_not_waited_for",
            ),
        },
    ),
    "status": Row(
        "a query's status, for people at the learner",
        "The coordinator to the learner: a decision to retry or to ask again",
        "Harmless. Nothing in it is used for a total. A retry is the learner's own signed decision and says what it "
        "costs; each party charges it within its limits",
        {
            "learner/test_retries_and_features.py": (
                "test_a_lost_attempt_is_the_learner_s_decision",
                "test_what_another_attempt_costs_is_said_before_it_is_made",
            ),
            "hostile/test_stalling_coordinator.py": (
                "test_a_learner_that_is_shown_the_same_phase_for_ever_gives_up_when_it_said",
            ),
            "learner/test_session.py": ("test_a_failure_with_an_unknown_code",),
        },
    ),
    "name": Row(
        "the id that the coordinator gives a query",
        "The coordinator to the learner: another query's total",
        "Noticed. The learner computes the id itself",
        {
            "learner/test_session.py": ("test_a_coordinator_that_names_the_query_otherwise_is_refused",),
        },
    ),
    "cancel": Row(
        "a learner's cancellation",
        "To the coordinator alone, which may keep it back or claim one",
        "Harmless. A query that goes on costs what its attempt costs; one that ends gives no total, as if it was not "
        "served",
        {
            "learner/test_session.py": ("test_cancel_is_signed",),
            "parties/answering/test_lifecycle.py": ("test_an_attempt_that_ends_without_a_charge_releases_everything",),
        },
    ),
    "request": Row(
        "parameters of a call",
        "To the coordinator alone",
        "Harmless. Who calls is in its TLS certificate, a learner sees its own queries only, and a call repeated "
        "changes nothing",
        {
            "coordinator/test_lost_replies.py": ("test_every_reply_lost_once_changes_nothing",),
            "coordinator/test_service.py": (
                "test_a_learner_sees_only_its_own_queries",
                "test_a_cursor_from_the_future_counts_as_none",
            ),
        },
    ),
    "admission": Row(
        "admissions: a member's certificate and its first roster",
        "The operator to each member: another federation key, authority or roster",
        "Limited. The federation key has digits that members compare with the operator (4.2). A renewal is verified "
        "by the key that the member has, and brings back no older roster",
        {
            "radofed/joining/test_joining.py": (
                "test_an_answer_signed_anew_shows_other_digits",
                "test_an_older_answer_does_not_bring_back_an_older_roster",
            ),
            "radofed/joining/test_fetched_renewal.py": ("test_anything_else_is_refused_and_changes_nothing",),
        },
    ),
    "join": Row(
        "a request to join, as a file",
        "A member to the operator alone",
        "Noticed. Its fingerprint is compared with the member, and it signs itself",
        {
            "radofed/joining/test_joining.py": (
                "test_a_request_by_another_has_another_fingerprint",
                "test_a_request_that_was_changed_on_its_way_is_refused",
            ),
        },
    ),
    "signature": Row(
        "what carries a signed message",
        "Anyone: the bytes of one message as another's",
        "Noticed. The signature covers federation, type, role and the exact bytes",
        {
            "wire/test_envelopes.py": (
                "test_signed_bytes_open_and_others_do_not",
                "test_domains_separate_types_and_roles",
                "test_a_signature_is_for_one_federation",
            ),
        },
    ),
}


def recipients_list() -> str:
    """The list of the threat model, an entry for each row."""
    return "\n".join(_entry(key, row) for key, row in ROWS.items())


def _entry(key: str, row: Row) -> str:
    tests = "; ".join(f"`{file}` ({', '.join(f'`{name}`' for name in names)})" for file, names in row.tests.items())
    words = f"- **{row.what[0].upper()}{row.what[1:]}:** {_named(key)}. *{row.told}.* {row.because}. Tests: {tests}."
    return textwrap.fill(words, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _named(key: str) -> str:
    """The fields of a row: a message's name for all of its fields, except for the query, whose parts are many."""
    if key == "query":
        return "`Query` with its parts, `PaillierKey`, `query_id`"
    names = []
    for message, rows in FIELDS.items():
        if list(rows) == [key]:
            names.append(f"`{message}`")
        elif key in rows:
            names += [f"`{message}.{field}`" for field in rows[key].split()]
    return ", ".join(names)

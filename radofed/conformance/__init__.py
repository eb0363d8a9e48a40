"""A kit that tests one party or one learner that someone else wrote, without a federation.

It plays the coordinator and all other members against the one under test: first as they should behave, then as a
hostile coordinator, learner or member may. It knows the table, all other keys and the Paillier key, so it opens the
tested party's contribution alone. What it finds is sorted by the sections of docs/protocol.md.

`kit` makes the federation, `stage` is the coordinator's server, `play` plays one query, `contribution` opens one
contribution; `party_*` and `learner_*` are what is tried.
"""

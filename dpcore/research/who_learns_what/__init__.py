"""Who learns what: the protocol's values as linear forms, and what each coalition can make of them.

forms      forms over unknowns, modulo a prime, and their spaces
protocol   what an honest party sends, as forms; each rule of the protocol can be left out
learning   what a coalition learns about honest parties' inputs
forging    which changes of a total the learner accepts
choices    everything that a coalition may tell each recipient apart

The threat model's table of coalitions is made from it (docs/generate/coalitions.py).

**What it sees.** Masks and pads are uniform unknowns y, inputs are x, and a coalition observes A x + B y. Given x, that
is uniform on a coset of the image of B.

So it depends on x through z A x alone, for the vectors z with z B = 0. This space is computed by elimination: all of it
is revealed, and nothing else is.

**What it does not see.**

- That Paillier, X25519, HKDF, AES and Ed25519 are as assumed. Who lacks the Paillier key sees no plaintext, who lacks a
  key sees a uniform unknown, and a hash says nothing.
- How much a total says about a record. Noise is an unknown without a distribution (that is dpcore.accounting).
- Lattices. Values are short, so one equation may determine all of them. Every equation beyond the totals is reported.
- Two moduli. Slots count modulo 2^value_bits and tags modulo 2^130 - 5. Here both are one prime field, in which a
  coalition subtracts a slot's total from a tag, as it can where no sum wraps.
- Timing, sizes, and who answers.
"""

"""Who learns what: the protocol's values as linear forms, and what each coalition can make of them.

- `protocol`: forms over unknowns modulo a prime; what an honest party sends; each rule can be left out.
- `learning`: what a coalition learns of honest inputs, which changes of a total are accepted, and all choices.
- `vanishing`: the same of queries whose members may vanish, for one attempt.

The threat model's table of coalitions is made from it (docs/generate/coalitions.py).

Masks and pads are uniform unknowns y, inputs are x, and a coalition observes A x + B y: it depends on x through z A x
alone, for z with z B = 0. This space is computed by elimination: all of it is revealed, and nothing else is.

What it does not see:

- That Paillier, X25519, HKDF, AES and Ed25519 are as assumed: who lacks a key sees a uniform unknown.
- How much a total says about a record. Noise is an unknown without a distribution (that is dpcore.accounting).
- Lattices. Values are short, so one equation may determine all of them. Every equation beyond the totals is reported.
- Two moduli. Slots count modulo 2^value_bits and tags modulo 2^130 - 5. Here both are one prime field.
- Timing, sizes, and who answers.
"""

"""Private PAC learners for a party or a curator that sees all rows.

Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith, "What Can We Learn Privately?" (FOCS 2008; SIAM J. Comput. 40(3),
2011). dpcore.pac has the federated ones, from noisy counts.
"""

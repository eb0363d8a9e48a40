"""Private PAC learning from noisy counts: the counts to query, guarantees, and the rows that they need.

Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith, "What Can We Learn Privately?" (FOCS 2008; SIAM J. Comput. 40(3),
2011). PAC learners that take rows are in dpcore.research.pac.
"""

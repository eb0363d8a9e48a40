"""Private PAC learning from noisy counts: counts to ask for, guarantees, and the rows at which they hold.

Kasiviswanathan, Lee, Nissim, Raskhodnikova and Smith, "What Can We Learn Privately?" (FOCS 2008; SIAM J. Comput. 40(3),
2011). Learners that take rows are in dpcore.research.pac.
"""

"""The mathematics of radofed: no network, no files, no clock, no global state.

Symbols, as in Nock, Patrini and Friedman (ICML 2015), used throughout:

    m      number of records (rows); m_p at party p
    d      number of coordinates of an encoded record, the bias included
    n      number of rados
    K      number of parties in a cohort
    x, y   a record's encoded observation in [-1, 1]^d and its label in {-1, +1}
    e      edge vector, y * x
    sigma  a rado signature in {-1, +1}^m: record i enters the rado if sigma_i = y_i
    pi     a rado: the sum of the edge vectors that its rado signature selects
    theta  a linear classifier in R^d
    k      of a rado signature and a sensitive coordinate: #(selected, e = +1) + #(not selected, e = -1)
"""

"""The paper's statements, executable on rows (Nock, Patrini, Friedman, ICML 2015).

    signature_sets   the sets of signatures that designs draw from, and exact sums over them
    of_designs       the set that a design draws from
    generalisation   Theorem 3: the penalties rho, Q and q
    rejections       Theorem 7: the number of signatures that DP-FEAT draws
    edge_noise       Theorem 8: the boosting rate on the rados without noise
    reconstruction   Lemma 9: edges from rados whose signatures are known

Lemma 2 is in dpcore.estimators.boosting, Theorem 6 in dpcore.accounting.dp_feat, Lemma 4 in
dpcore.estimators.boosting. Statements that need rows must run where the rows are: nothing here protects them.
"""

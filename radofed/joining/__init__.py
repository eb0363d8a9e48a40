"""How organisations join a federation: each makes its own keys, and no private key leaves its machine.

A member makes a request. The operator compares the request's fingerprint with the member, over the telephone, signs it
and sends an admission back. The member compares the federation's fingerprint with the operator and installs it.
"""

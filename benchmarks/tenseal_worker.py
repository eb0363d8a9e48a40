"""Run by encryption in TenSEAL's own environment: `python tenseal_worker.py JOB.npz`, JSON on the last line.

The job: mine, theirs (int64 values), degree, plain_modulus, repeats. Printed: seconds of each repeat for all values
(encrypt, add, decrypt, after a warm-up), bytes (of all serialised ciphertexts), threads, and version. The sums are
compared.
"""

import json
import sys
import time

import numpy as np
import tenseal as ts


def main() -> None:
    job = np.load(sys.argv[1])
    degree, mine, theirs = int(job["degree"]), job["mine"], job["theirs"]
    context = ts.context(ts.SCHEME_TYPE.BFV, poly_modulus_degree=degree, plain_modulus=int(job["plain_modulus"]))
    runs, other_runs = ([v[i : i + degree].tolist() for i in range(0, len(v), degree)] for v in (mine, theirs))
    others = [ts.bfv_vector(context, run) for run in other_runs]
    seconds: dict[str, list[float]] = {"encrypt": [], "add": [], "decrypt": []}
    for _ in range(int(job["repeats"]) + 1):
        begun = time.perf_counter()
        ciphertexts = [ts.bfv_vector(context, run) for run in runs]
        encrypted = time.perf_counter()
        sums = [a + b for a, b in zip(ciphertexts, others, strict=True)]
        added = time.perf_counter()
        opened = [total.decrypt() for total in sums]
        decrypted = time.perf_counter()
        for step, start, end in zip(seconds, (begun, encrypted, added), (encrypted, added, decrypted), strict=True):
            seconds[step].append(end - start)
    if [value for run in opened for value in run] != (mine + theirs).tolist():
        raise SystemExit("the sums differ")
    size = sum(len(ciphertext.serialize()) for ciphertext in ciphertexts)
    after_the_first = {step: values[1:] for step, values in seconds.items()}
    print(json.dumps({**after_the_first, "bytes": size, "ciphertexts": len(ciphertexts), "version": ts.__version__}))


if __name__ == "__main__":
    main()

#!/bin/sh
# Makes an installation smaller and compiles its sums: finish.sh ENVIRONMENT
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
# Tests, headers, and the parts of Arrow for networks (Flight, S3): radofed uses none of them.
find "$packages" -type d \( -name tests -o -path '*/pyarrow/include' \) -prune -exec rm -rf {} +
rm -f "$packages"/pyarrow/*flight* "$packages"/pyarrow/*s3*
find "$packages" -type f \( -name '*.h' -o -name '*.pxd' -o -name '*.pyx' \) -delete
# Symbols for debuggers. Libraries that wheels bring along (*.libs) stay as they are: strip damages them.
find "$packages" -name '*.so*' -type f -not -path '*.libs/*' -exec strip --strip-unneeded {} +
# No start compiles anything, so no directory of code has to be writable. -I: the installed code, not the folder's.
"$1"/bin/python -I -c 'import dpcore.attacks.compiled, dpcore.paillier.compiled, dpcore.predicates.compiled, dpcore.rados.compiled, dpcore.randomness.compiled, dpcore.records.compiled'

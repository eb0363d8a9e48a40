"""The set of signatures that a design draws from, for given records."""

from collections.abc import Sequence

from dpcore.errors import ShapeError
from dpcore.rados.designs import RadoDesign
from dpcore.rados.support import check_support
from dpcore.records.records import Records, sensitive_positive
from dpcore.research.paper.signature_sets import (
    SignatureSet,
    all_signatures,
    dp_feat_signatures,
    fixed_support_signatures,
)


def signatures_of(design: RadoDesign, records: Records, party_rows: Sequence[int] | None = None) -> SignatureSet:
    """Sigma_r of a design, for Theorem 3's penalties.

    records: of all parties, one after another, as the design sums them: a sensitive feature that the design rounds must
    be rounded already. party_rows: m_p of each, if parties draw separately; None is one party, or one draw over the
    pool. A design with split "exact" draws over the pool for any party_rows.

    Raises:
        ShapeError: party_rows do not add up to the records, EmptyTruncationError or.
        SupportError: no signature can be drawn.
        SchemaError: a sensitive coordinate is not coded -1/+1.
    """
    sizes = [records.rows] if party_rows is None else list(party_rows)
    if sum(sizes) != records.rows or min(sizes, default=0) < 1:
        raise ShapeError(f"parties have {sizes} rows and there are {records.rows}: give positive counts that add up")
    if design.truncated_at is not None:
        positive = sensitive_positive(records, design.coded[0])
        return dp_feat_signatures(positive, design.truncated_at, None if design.is_pooled else sizes)
    if design.support is not None:
        drawn = [records.rows] if design.is_pooled else sizes
        return fixed_support_signatures(drawn, [check_support(rows, design.support) for rows in drawn])
    return all_signatures(records.rows)

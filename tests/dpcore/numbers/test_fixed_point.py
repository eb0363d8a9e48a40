"""Storage of features, planning of slots, and the travel form of a sum."""

from fractions import Fraction
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import DataError, PlanError, SlotOverflowError
from dpcore.numbers.fixed_point import MAX_VALUE_BITS, STORED_FRACTION_BITS, Encoding, check_fits, plan_encoding
from dpcore.paillier.packing import from_total, to_residues
from dpcore.records.encoding import store
from dpcore.records.records import Records, edges


@st.composite
def encodings(draw):
    slot_bits = 8 * draw(st.integers(1, 8))
    value_bits = draw(st.integers(2, min(MAX_VALUE_BITS, slot_bits - 1)))
    return Encoding(draw(st.integers(0, STORED_FRACTION_BITS)), value_bits, slot_bits)


class TestStore:
    @settings(deadline=None)
    @given(st.floats(-1, 1), st.integers(0, STORED_FRACTION_BITS), st.sampled_from([-1, 1]))
    def test_an_edge_is_the_label_times_the_truncated_feature_itself(self, x, fraction_bits, label):
        stored = store(np.array([[x]]))
        assert stored.dtype == np.int32
        assert int(stored[0, 0]) == int(Fraction(x) * 2**STORED_FRACTION_BITS)
        records = Records(stored, np.array([label], dtype=np.int8), np.array([True]))
        ((_, block),) = edges(records, fraction_bits)
        # int() of a Fraction truncates toward zero, exactly.
        assert block.tolist() == [[label * int(Fraction(x) * 2**fraction_bits)]]

    def test_the_ends_are_exact(self):
        stored = store(np.array([-1.0, -0.0, 1.0, 5e-324, -5e-324]))
        assert stored.tolist() == [-(2**30), 0, 2**30, 0, 0]

    @pytest.mark.parametrize("bad", [1.0000000000000002, -1.0000000000000002, np.nan, np.inf, -np.inf])
    def test_a_feature_out_of_range_is_refused(self, bad):
        with pytest.raises(DataError, match="declared bounds"):
            store(np.array([0.0, bad]))

    def test_no_features_are_fine(self):
        assert store(np.empty((0, 3))).shape == (0, 3)


class TestEncoding:
    def test_capacity(self):
        encoding = Encoding(16, 43, 48)
        assert encoding.slots_per_ciphertext(3072) == 63
        assert encoding.max_parties == 32
        assert encoding.largest_sum == 2**42 - 1

    @pytest.mark.parametrize(
        ("fraction_bits", "value_bits", "slot_bits"),
        [(16, 43, 50), (16, 43, 0), (16, 43, -8), (16, 43, 72), (16, 48, 48), (16, 63, 64), (16, 1, 8), (31, 43, 48),
         (-1, 43, 48)],
    )  # fmt: skip
    def test_an_invalid_encoding_is_refused(self, fraction_bits, value_bits, slot_bits):
        with pytest.raises(PlanError):
            Encoding(fraction_bits, value_bits, slot_bits)


class TestPlan:
    @settings(deadline=None)
    @given(st.integers(0, 2**58), st.integers(1, 1000))
    def test_the_slot_is_the_narrowest_that_holds_the_sum(self, largest_sum, max_parties):
        headroom = max(1, ceil(log2(max_parties)))
        needed = next(w for w in range(2, 80) if largest_sum < 2 ** (w - 1))
        narrowest = 8 * ceil((needed + headroom) / 8)
        if narrowest > 64:
            with pytest.raises(SlotOverflowError):
                plan_encoding(largest_sum=largest_sum, max_parties=max_parties, fraction_bits=16)
            return
        encoding = plan_encoding(largest_sum=largest_sum, max_parties=max_parties, fraction_bits=16)
        assert encoding.slot_bits == narrowest
        assert encoding.value_bits == min(62, narrowest - headroom)
        check_fits(encoding, largest_sum=largest_sum, max_parties=max_parties)

    def test_the_boundary_of_a_slot(self):
        # 48 bits less 5 of headroom for 32 parties: w = 43, sums below 2^42.
        assert plan_encoding(largest_sum=2**42 - 1, max_parties=32, fraction_bits=16) == Encoding(16, 43, 48)
        assert plan_encoding(largest_sum=2**42, max_parties=32, fraction_bits=16).slot_bits == 56
        assert plan_encoding(largest_sum=2**42 - 1, max_parties=33, fraction_bits=16).slot_bits == 56

    def test_the_boundary_of_everything(self):
        assert plan_encoding(largest_sum=2**61 - 1, max_parties=4, fraction_bits=16) == Encoding(16, 62, 64)
        with pytest.raises(SlotOverflowError, match="lower fraction_bits by 1 or ask for fewer max_rows") as refused:
            plan_encoding(largest_sum=2**61, max_parties=4, fraction_bits=16)
        assert (refused.value.needed_bits, refused.value.available_bits) == (63, 62)
        with pytest.raises(SlotOverflowError) as refused:
            plan_encoding(largest_sum=2**61 - 1, max_parties=5, fraction_bits=16)
        assert (refused.value.needed_bits, refused.value.available_bits) == (62, 61)

    def test_the_remedy_works(self):
        with pytest.raises(SlotOverflowError, match="lower fraction_bits by 5 ") as refused:
            plan_encoding(largest_sum=2**62, max_parties=32, fraction_bits=16)
        lower = refused.value.needed_bits - refused.value.available_bits
        plan_encoding(largest_sum=2**62 >> lower, max_parties=32, fraction_bits=16 - lower)

    def test_an_impossible_remedy_is_not_named(self):
        with pytest.raises(SlotOverflowError) as refused:
            plan_encoding(largest_sum=2**70, max_parties=2, fraction_bits=3)
        assert "fraction_bits" not in str(refused.value)

    def test_invalid_plans_are_refused(self):
        for arguments in ({"largest_sum": -1, "max_parties": 1}, {"largest_sum": 1, "max_parties": 0}):
            with pytest.raises(PlanError):
                plan_encoding(**arguments, fraction_bits=16)
            with pytest.raises(PlanError):
                check_fits(Encoding(16, 43, 48), **arguments)

    def test_a_party_checks_the_encoding_of_a_query(self):
        encoding = Encoding(16, 43, 48)
        check_fits(encoding, largest_sum=2**42 - 1, max_parties=32)
        with pytest.raises(SlotOverflowError) as refused:
            check_fits(encoding, largest_sum=2**42, max_parties=32)
        assert (refused.value.needed_bits, refused.value.available_bits) == (44, 43)
        with pytest.raises(SlotOverflowError, match="at most 32 parties") as refused:
            check_fits(encoding, largest_sum=2**42 - 1, max_parties=33)
        assert (refused.value.needed_bits, refused.value.available_bits) == (49, 48)


class TestTravelForm:
    @settings(deadline=None)
    @given(st.data(), encodings())
    def test_sums_come_back(self, data, encoding):
        parties = data.draw(st.integers(1, min(6, encoding.max_parties)))
        bound = encoding.largest_sum // parties
        number = st.integers(-bound, bound) if bound else st.just(0)
        values = np.array(data.draw(st.lists(st.lists(number, min_size=4, max_size=4), min_size=parties,
                                             max_size=parties)), dtype=np.int64)  # fmt: skip
        values[:, 0], values[:, 1] = bound, -bound
        w = encoding.value_bits
        mask = st.integers(0, 2**w - 1)
        masks = np.array(data.draw(st.lists(st.lists(mask, min_size=4, max_size=4), min_size=parties,
                                            max_size=parties)), dtype=np.uint64)  # fmt: skip
        others = masks[1:].astype(object).sum(axis=0) if parties > 1 else np.zeros(4, dtype=object)
        masks[0] = [-int(other) % 2**w for other in others]
        total = np.zeros(4, dtype=np.uint64)
        for value, party_mask in zip(values, masks, strict=True):
            residues = to_residues(value, encoding, party_mask)
            assert int(residues.max()) < 2**w
            total = total + residues
        assert from_total(total, parties, encoding).tolist() == values.sum(axis=0).tolist()
        unmasked = sum((to_residues(value, encoding) for value in values), np.zeros(4, dtype=np.uint64))
        assert from_total(unmasked, parties, encoding).tolist() == values.sum(axis=0).tolist()

    def test_the_form_itself(self):
        encoding = Encoding(0, 8, 16)
        residues = to_residues(np.array([0, -128, 127, 1, -1]), encoding)
        assert residues.tolist() == [128, 0, 255, 129, 127]
        masked = to_residues(np.array([0, 127, -128]), encoding, np.array([128, 255, 3], dtype=np.uint64))
        assert masked.tolist() == [0, 254, 3]

    def test_a_full_slot_of_parties_does_not_carry(self):
        encoding = Encoding(0, 6, 8)
        most = to_residues(np.array([31, -32], dtype=np.int64), encoding)
        assert (most * encoding.max_parties).tolist() == [63 * 4, 0]
        assert 63 * 4 < 2**8

    def test_a_sum_out_of_range_wraps(self):
        encoding = Encoding(0, 8, 16)
        once = to_residues(np.array([100], dtype=np.int64), encoding)
        assert from_total(once + once, 2, encoding).tolist() == [200 - 256]

    @pytest.mark.parametrize("parties", [0, -1, 257])
    def test_an_invalid_number_of_parties_is_refused(self, parties):
        with pytest.raises(PlanError, match="1 to 256"):
            from_total(np.zeros(1, dtype=np.uint64), parties, Encoding(0, 8, 16))

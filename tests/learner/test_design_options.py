"""The options of each design: what one command takes and needs, every command does."""

from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.requests import MomentsRequest, RadosRequest, release_request
from radofed.planning.design_cost import PlanRequest
from radofed.simulation.designs import DesignOptions
from tests.federation.learner import SCHEMA
from wire.design_options import check_options
from wire.request_fields import ReleaseFields, given_options

# One value for each option that all three have, and what each design needs.
VALUES = {
    "rados": 20,
    "epsilon": Fraction(1),
    "epsilon_per_rado": Fraction(1),
    "norm_bound": Fraction(2),
    "support": Fraction(1, 3),
}
NEEDED = {
    "plain": {"rados": 20},
    "dp-feat": {"rados": 20, "sensitive": ("smoker",)},
    "dp-feat with joint": {"rados": 20, "sensitive": ("smoker",), "joint": True, "epsilon": Fraction(1)},
    "fixed-support": {"rados": 20},
    "gaussian": {"rados": 20, "epsilon": Fraction(1)},
    "moments": {"epsilon": Fraction(1)},
}


def asked(design, options):
    release_request(SCHEMA, ReleaseFields(design=design, **options))


def simulated(design, options):
    DesignOptions(design=design, **options)


def planned(design, options):
    known = {name: value for name, value in options.items() if name != "sensitive"}
    PlanRequest(design=design, party_rows=(400, 300, 200), coordinates=4, **known)


WAYS = [asked, simulated, planned]


def refusal(way, name, options):
    try:
        way(name.removesuffix(" with joint"), options)
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", NEEDED)
def test_what_a_design_needs_is_enough(name):
    assert [refusal(way, name, NEEDED[name]) for way in WAYS] == [None] * 3


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("name", NEEDED)
def test_every_command_takes_the_same_options(name, option):
    options = {option: VALUES[option]} | NEEDED[name]
    refused = {refusal(way, name, options) for way in WAYS}
    assert len(refused) == 1
    (sentence,) = refused
    assert sentence is None or sentence.startswith(
        f"{name} takes no {option.replace('_', ' ')}: leave it out, or choose "
    )


@pytest.mark.parametrize(
    ("name", "missing"),
    [(name, option) for name, needed in NEEDED.items() for option in needed if option != "joint"],
)
def test_every_command_misses_the_same_options(name, missing):
    options = {option: value for option, value in NEEDED[name].items() if option != missing}
    for way in WAYS:
        # A simulation chooses the number of rados, as all do of Gaussian rados, and a plan has no features.
        if (way, missing) in {(simulated, "rados"), (planned, "sensitive")} or (name, missing) == ("gaussian", "rados"):
            assert refusal(way, name, options) is None
        else:
            assert name in refusal(way, name, options)


def test_an_epsilon_stands_for_a_number_of_rados():
    for way in WAYS:
        way("dp-feat", {"sensitive": ("smoker",), "epsilon": Fraction(1)})


def test_a_design_that_does_not_exist():
    for way in WAYS:
        with pytest.raises(ConfigurationError, match="no design is called 'gausian'; did you mean 'gaussian'"):
            way("gausian", {"rados": 20})


def test_joint_dp_feat_protects_one_column():
    with pytest.raises(ConfigurationError, match="give exactly one as sensitive"):
        check_options("dp-feat", {"rados": 20, "sensitive": ("smoker", "age"), "joint": True, "epsilon": Fraction(1)})


def test_options_that_are_not_set():
    assert given_options(ReleaseFields(sensitive=(), joint=False)) == {}
    assert given_options(ReleaseFields(sensitive="smoker", rados=3)) == {"sensitive": ("smoker",), "rados": 3}
    # 0 counts as given, and is refused.
    with pytest.raises(ConfigurationError, match="epsilon is 0: make it positive"):
        ReleaseFields(design="dp-feat", rados=20, sensitive=("smoker",), epsilon=Fraction(0))
    with pytest.raises(ConfigurationError, match="rados is 0; it must be at least 1"):
        ReleaseFields(rados=0)


def test_requests_are_of_their_design():
    rados = release_request(SCHEMA, ReleaseFields(design="gaussian", **NEEDED["gaussian"]))
    assert rados == RadosRequest(SCHEMA, 20, design="gaussian", epsilon=Fraction(1))
    moments = release_request(SCHEMA, ReleaseFields(epsilon=Fraction(1), edge_weight=Fraction(2)))
    assert moments == MomentsRequest(SCHEMA, epsilon=Fraction(1), edge_weight=Fraction(2))

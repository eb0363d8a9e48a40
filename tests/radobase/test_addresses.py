"""Addresses of the coordinator."""

import pytest

from dpcore.errors import ConfigurationError
from radobase.configuration import split_target
from radofed.provision import check_host


def test_a_dot_at_the_end_of_a_host_is_named():
    """A certificate names the host without it, so that a node could not connect."""
    assert split_target("rado.example.org:7443") == ("rado.example.org", 7443)
    assert split_target("[2001:db8::1]:7443") == ("2001:db8::1", 7443)
    with pytest.raises(ValueError, match=r"leave the dot at the end of rado\.example\.org\. out"):
        split_target("rado.example.org.:7443")
    with pytest.raises(ConfigurationError, match=r"leave the dot at the end of rado\.example\.org\. out"):
        check_host("rado.example.org.")

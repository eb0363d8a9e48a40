"""A learner asks its coordinator for a renewed certificate, and the coordinator delivers none."""

import datetime as dt

import pytest

from dpcore.errors import ConfigurationError
from radofed.joining.installing import renew
from wire.errors import Code, WireError


def test_a_coordinator_of_an_older_version_delivers_no_certificate_and_it_says_so(setting):
    """Such a coordinator knows no role that may make the call. Other refusals stay what they are."""
    now, file = dt.datetime.now(dt.UTC), setting.config.tls.certificate
    before = file.read_bytes()
    assert not renew(setting.config_file, now, before_due=True).is_new
    setting.stub.fail["FetchAdmission"] = Code.ROLE_FORBIDDEN
    with pytest.raises(ConfigurationError, match=r"version does not deliver certificates: .*`rado provision install`"):
        renew(setting.config_file, now, before_due=True)
    setting.stub.fail["FetchAdmission"] = Code.PEER_UNKNOWN
    with pytest.raises(WireError) as caught:
        renew(setting.config_file, now, before_due=True)
    assert caught.value.code is Code.PEER_UNKNOWN
    assert file.read_bytes() == before

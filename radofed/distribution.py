"""Whether all of radofed's packages come from one place: names such as `learner` exist in other distributions, too."""

from importlib.util import find_spec
from pathlib import Path

from dpcore.errors import ConfigurationError

PACKAGES = ("dpcore", "wire", "parties", "coordinator", "learner", "radofed", "rado")


def check_distribution() -> None:
    """Raise ConfigurationError where a package resolves outside the distribution that this file belongs to.

    In a checkout `rado`, the wire's messages, lies under protos/; elsewhere beside the others.
    """
    root = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ConfigurationError(f"radofed's package {name!r} is not to be found; install radofed again")
        place = Path(spec.origin).resolve().parent.parent
        if place not in (root, root / "protos"):
            raise ConfigurationError(
                f"the package {name!r} comes from {place}, not from radofed's own {root}: another package of that name "
                "stands before it; run rado from another directory or in an environment of its own"
            )

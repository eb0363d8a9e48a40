"""How many parties a simulation has. Nothing slow is imported, so that a wrong number is refused at once."""

from dpcore.errors import ConfigurationError

LEAST_PARTIES, MOST_PARTIES = 2, 1000


def check_parties(parties: int) -> None:
    """Raise ConfigurationError if no simulation has so many parties: a cohort of one would show its own sum."""
    if not LEAST_PARTIES <= parties <= MOST_PARTIES:
        raise ConfigurationError(f"parties is {parties}: choose {LEAST_PARTIES} to {MOST_PARTIES}")

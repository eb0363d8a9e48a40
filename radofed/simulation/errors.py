"""Errors of a simulation."""

from dpcore.errors import RadofedError


class SimulationError(RadofedError):
    """A simulation failed. exit_code: that of the cause, if a party or an estimator failed."""

    def __init__(self, sentence: str, *, exit_code: int = RadofedError.exit_code) -> None:
        super().__init__(sentence)
        self.__dict__["exit_code"] = exit_code  # the class attribute is a constant


class SimulationTimedOutError(SimulationError):
    """A worker did not answer in time."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self.what, self.timeout_s = what, timeout_s
        super().__init__(f"{what} took longer than {timeout_s:g} s: allow more time, or use fewer workers", exit_code=3)

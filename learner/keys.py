"""The learner's Paillier key on disk, and the certificate of its public key.

The file is a JSON Web Key as written by phe's command line, with an additional member `not_before_unix_s`: the time
when the key was created. It determines the certificate's validity, so all certificates of a key have the same bytes.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.paillier.public import DEFAULT_BITS, MINIMUM_BITS, InvalidKeyError, PublicKey
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import RandomSource, SystemRandom
from radofed.common.files.reading import FileKind, read_json, with_remedy
from radofed.common.files.writing import create_durably
from wire.envelopes import Envelope, SigningKey
from wire.query import PaillierKey

VALIDITY_S = 365 * 24 * 3600
_NOT_BEFORE = "not_before_unix_s"
_LATEST_UNIX_S = 1 << 40
_KEY = FileKind(
    with_remedy("restore the key file from its copy, or make a key with `rado learner keygen`"),
    limit_bytes=1 << 16,
    secret=True,
    private=True,
)


@dataclass(frozen=True)
class LearnerKey:
    """Held by the learner only: a Paillier secret key and its creation time in Unix seconds."""

    secret: SecretKey
    not_before_unix_s: int

    @property
    def public_key(self) -> PublicKey:
        """The public key, which is sent to parties."""
        return self.secret.public_key

    @property
    def not_after_unix_s(self) -> int:
        """The latest time at which a query under this key may end, Unix seconds. Totals can be opened at any time."""
        return self.not_before_unix_s + VALIDITY_S

    def certify(self, learner: str, signing_key: SigningKey) -> Envelope:
        """The public key, signed for a year from its creation; the same bytes every time."""
        certified = PaillierKey(learner, self.public_key, self.not_before_unix_s, self.not_after_unix_s)
        return certified.sign(signing_key)


def create_key(
    path: Path,
    bits: int = DEFAULT_BITS,
    *,
    random: RandomSource | None = None,
    now_unix_s: float | None = None,
) -> LearnerKey:
    """Create a key and write it to a new file that only its owner may read. Takes seconds for 3072 bits.

    random: None for the operating system's source; any other source is refused. Raises ConfigurationError if the file
    exists or cannot be written, or `bits` is odd or not in 2048..4096; no file is left then.
    """
    if path.exists():
        raise _exists(path)
    try:
        secret = SecretKey.generate(SystemRandom() if random is None else random, bits=bits)
    except InvalidKeyError as error:
        raise ConfigurationError(f"a key cannot have {bits} bits: use an even number from {MINIMUM_BITS} on") from error
    key = LearnerKey(secret, int(time.time() if now_unix_s is None else now_unix_s))
    content = json.dumps({**secret.to_jwk(), _NOT_BEFORE: key.not_before_unix_s}, indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_durably(path, f"{content}\n".encode())
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the key cannot be written ({error.strerror}); free space or choose another place"
        ) from error
    return key


def load_key(path: Path) -> LearnerKey:
    """Read a key file that create_key wrote. Raises ConfigurationError if it is missing, damaged or not a key."""
    jwk = read_json(path, _KEY)
    not_before = jwk.get(_NOT_BEFORE)
    if type(not_before) is not int or not 0 <= not_before < _LATEST_UNIX_S:
        sentence = (
            f"{path}: {_NOT_BEFORE} is missing or not a number; set it to the key's creation time in Unix seconds"
        )
        raise ConfigurationError(sentence)
    try:
        return LearnerKey(SecretKey.from_jwk(jwk), not_before)
    except InvalidKeyError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _exists(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: already exists, and a key is never overwritten; choose another file, and keep this one for its totals"
    )

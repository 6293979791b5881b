"""The data folder and the development signing key."""

from pathlib import Path

from gateway.adapters.identity.tokens import LocalKey
from gateway.errors import ConfigurationError
from gateway.settings import Settings


def made_data_dir(path: Path) -> Path:
    """The folder, readable by its owner alone. Raises ConfigurationError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError("data_dir_unusable", f"{path} can't be used: {error.strerror}") from error
    return path.resolve()


def local_key(settings: Settings) -> LocalKey:
    """The development signing key; touches nothing but its file."""
    return LocalKey.load(made_data_dir(settings.data_dir))

"""The settings of an installation's owner, beside those of the processes that serve."""

from pydantic import Field, SecretStr

from gateway.settings import Settings


class OwnerSettings(Settings):
    """What only ``migrate`` is told; the bounds of a password are Milvus' own."""

    milvus_account_password: SecretStr | None = Field(default=None, min_length=6, max_length=72)

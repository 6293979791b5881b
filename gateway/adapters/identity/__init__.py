"""Identity: tokens of the local key and of an issuer, and API keys."""

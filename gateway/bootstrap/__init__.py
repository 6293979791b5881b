"""Bootstrap: Settings -> Services. The only package that knows the adapters.

Apart from each other, because a command that only signs a token must not wait for every adapter to load.
"""

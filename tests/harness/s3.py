"""An S3-compatible server for tests: moto's, in threads of the test process, on a free loopback port."""

import itertools
import logging
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class S3Server:
    """A running server. Buckets live as long as it does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._numbers = itertools.count(1)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead an S3 client here."""
        return self.environment_at(self.endpoint)

    def environment_at(self, endpoint: str) -> Mapping[str, str]:
        """Likewise, with another endpoint in front of the server, such as a proxy."""
        return {
            "AWS_ACCESS_KEY_ID": "test-access-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret-key",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
        }

    def fresh_bucket(self) -> str:
        """Makes an empty bucket; returns its URL, ``s3://…``."""
        name = f"bucket-{next(self._numbers)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
        return f"s3://{name}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Starts a server and stops it in the end."""
    from moto.server import ThreadedMotoServer  # takes a second to import, and few tests need it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request otherwise
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield S3Server(port)
    finally:
        server.stop()

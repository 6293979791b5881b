"""The Milvus Lite child's own program: one folder, one loopback port, one secret; it dies with its parent.

Run as ``python -m gateway.adapters.milvus.lite_server --data-dir D``. The first line of stdin is the
secret that every call must bring; end of file on stdin means that the parent is gone. Once it listens it
writes one line to stdout, ``{"port": N}``. Milvus Lite itself knows no authentication, binds with
SO_REUSEPORT and loads collections lazily: the server is put together here to change all three.
"""

import argparse
import base64
import contextlib
import ctypes
import gc
import hmac
import json
import logging.handlers
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from milvus_lite import CollectionSchema, DataDirLockedError, DataType, FieldSchema, MilvusLite
from milvus_lite.adapter.grpc.servicer import MilvusServicer
from pymilvus.grpc_gen import milvus_pb2_grpc

if TYPE_CHECKING:
    _Interceptor = grpc.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.ServerInterceptor

#: exit code: another process holds the folder
EXIT_IN_USE = 73

_MESSAGE_BYTES = 256 * 1024 * 1024
_LOG_BYTES = 512 * 1024
_CLOSE_CAP_S = 5.0
_WARM_CAP_S = 20.0
_LOCK_POLL_S = 0.05
_PR_SET_PDEATHSIG = 1
#: more new objects than a question makes, which has one a row
_COLLECTED_AFTER = 50_000


def marker_collection(marker: str) -> str:
    """The empty collection whose presence shows that a port serves the folder with this marker."""
    return f"folder_{marker}"


class _SecretRequired(_Interceptor):
    """Refuses calls that don't bring the parent's secret: loopback is shared by every local user."""

    def __init__(self, secret: str) -> None:
        self._expected = base64.b64encode(secret.encode())
        self._refuse = grpc.unary_unary_rpc_method_handler(
            lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "a secret is required")
        )

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        brought = dict(details.invocation_metadata).get("authorization", b"")
        if isinstance(brought, str):
            brought = brought.encode()
        return continuation(details) if hmac.compare_digest(brought, self._expected) else self._refuse


def _open_store(folder: Path, lock_wait_s: float) -> MilvusLite:
    """Waits a little for the lock: the child of a killed parent needs a moment to let go of it."""
    give_up_at = time.monotonic() + lock_wait_s
    while True:
        try:
            return MilvusLite(str(folder))
        except DataDirLockedError:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_LOCK_POLL_S)


def _marker(data_dir: Path) -> str:
    """The folder's marker, made once under the store's lock."""
    file = data_dir / "marker"
    if not file.exists():
        fresh = file.with_suffix(".new")
        fresh.write_text(secrets.token_hex(16), encoding="ascii")
        fresh.replace(file)
    return file.read_text(encoding="ascii").strip()


def _prepare(store: MilvusLite, marker: str) -> None:
    """Marks the store and loads every collection before the first call can come in."""
    if not store.has_collection(marker_collection(marker)):
        fields = [
            FieldSchema(name="id", dtype=DataType.VARCHAR, is_primary=True, max_length=8),
            FieldSchema(name="vector", dtype=DataType.FLOAT_VECTOR, dim=2),
        ]
        store.create_collection(marker_collection(marker), CollectionSchema(fields=fields))
    warm_until = time.monotonic() + _WARM_CAP_S
    for name in store.list_collections():
        collection = store.get_collection(name)
        collection.load()
        if not any(field.name == "bm25" for field in collection.schema.fields):
            continue
        for partition in collection.list_partitions():  # the first BM25 search builds the index
            if time.monotonic() < warm_until:
                collection.search(["x"], top_k=1, anns_field="bm25", partition_names=[partition])


def _collect_rarely() -> None:
    """What is loaded by now stays, and a question alone begins no collection. With 10,000 rows one fetch by
    ids in five or ten met a full one: 0.1 to 0.4 s in place of 0.02, and every other call waited for it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)


def _serve(store: MilvusLite, secret: str, workers: int) -> tuple[grpc.Server, int]:
    server = grpc.server(
        ThreadPoolExecutor(max_workers=workers),
        interceptors=[_SecretRequired(secret)],
        options=[
            ("grpc.so_reuseport", 0),  # else any process of this user could take calls on our port
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_send_message_length", _MESSAGE_BYTES),
            # pymilvus pings idle connections each 10 s; without these the server hangs up on it
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ],
    )
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(MilvusServicer(store), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, int(port)


def _die_with_parent(stop: queue.SimpleQueue[None]) -> None:
    """End of file on stdin is the sign everywhere; Linux also sends a signal, should a fork hold the pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        stop.put(None)
        time.sleep(_CLOSE_CAP_S)
        os._exit(1)  # closing hangs; the write-ahead log makes this safe

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _log_to(data_dir: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(
        data_dir / "lite.log", maxBytes=_LOG_BYTES, backupCount=1, delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def main() -> int:
    """Serves until told to stop; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--lock-wait-s", type=float, default=0.0)
    options = parser.parse_args()
    # not an Event: its lock isn't re-entrant, and a signal may land while it is held
    stop: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.put(None))
    secret = sys.stdin.buffer.readline().decode().strip()
    if not secret:
        return 2
    _die_with_parent(stop)
    options.data_dir.mkdir(parents=True, exist_ok=True)
    _log_to(options.data_dir)
    try:
        store = _open_store(options.data_dir / "store", options.lock_wait_s)
    except DataDirLockedError:
        return EXIT_IN_USE
    with contextlib.closing(store):
        _prepare(store, _marker(options.data_dir))
        _collect_rarely()
        server, port = _serve(store, secret, options.workers)
        sys.stdout.write(json.dumps({"port": port}) + "\n")
        sys.stdout.flush()
        os.dup2(2, 1)  # nobody reads the pipe from here on, and a full one would stop us
        stop.get()
        server.stop(grace=1).wait(timeout=_CLOSE_CAP_S)
    return 0


if __name__ == "__main__":
    # Not sys.exit: Milvus Lite's worker threads would be waited for after the store is closed.
    os._exit(main())

"""The Milvus Lite child's program, ending at the first question for a collection when a file says so.

That is after its parent has connected, and before it has seen the marker.
"""

import os
import sys
from pathlib import Path
from typing import Any

from milvus_lite.adapter.grpc.servicer import MilvusServicer

from gateway.adapters.milvus import lite_server as milvus_lite_server

_DIE = Path(sys.argv[sys.argv.index("--data-dir") + 1]) / "die"


class _DyingServicer(MilvusServicer):  # type: ignore[misc]  # milvus_lite is not typed
    def _end_if_told(self) -> None:
        if _DIE.exists():
            _DIE.unlink()
            os._exit(1)

    def HasCollection(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        self._end_if_told()
        return super().HasCollection(request, context)

    def DescribeCollection(self, request: Any, context: Any) -> Any:  # noqa: N802 - likewise
        self._end_if_told()
        return super().DescribeCollection(request, context)


if __name__ == "__main__":
    vars(milvus_lite_server)["MilvusServicer"] = _DyingServicer
    os._exit(milvus_lite_server.main())

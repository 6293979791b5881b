"""What a load run brings along when it isn't given a server: a scripted model, and a gateway before it."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtest.open_loop_run import Target
from loadtest.overhead_parts import Stub, stub_process
from loadtest.overhead_text import DOCUMENTS
from tests.harness.process import GatewayProcess, gateway_process

#: so many that none of them reaches a rate of his own
CALLERS = 200


@dataclass(frozen=True, slots=True)
class Bench:
    """``gateway`` knows the documents that the scenarios ask about; ``target`` has callers enough that
    none of them reaches a rate of his own.
    """

    stub: Stub
    gateway: GatewayProcess
    target: Target


@contextlib.asynccontextmanager
async def bench(settings: Mapping[str, str], knowledge_base: str) -> AsyncIterator[Bench]:
    """Fresh processes in a temporary folder; all of them are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="qa-gateway-load-") as name:
        folder = Path(name)
        async with stub_process(folder / "stub") as stub:
            model = {"GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_MODEL_NAME": "stub"}
            async with gateway_process(folder / "gateway", env={**model, **settings}) as gateway:
                await gateway.learn(DOCUMENTS, knowledge_base=knowledge_base)
                tokens = [gateway.token(subject=f"caller-{number}") for number in range(CALLERS)]
                yield Bench(stub, gateway, Target(gateway.port, tokens, knowledge_base))

"""A caller of the tool ``lookup_knowledge``: one principal, verified once, as an agent's session has him."""

import uuid
from typing import Any

from gateway.access.principal import Principal
from gateway.answer.lookup_tool import LookupTool, ToolResult
from gateway.context import Deadline
from gateway.observe.trace import Trace
from tests.harness.world import World

_PATIENCE_MS = 20_000


class ToolCaller:
    """Makes calls of his own; nothing is verified between two of them but by the tool."""

    def __init__(self, world: World, principal: Principal, tool: LookupTool | None = None) -> None:
        self.principal = principal
        self._world = world
        self._tool = tool or world.services.lookup_tool

    async def send(self, arguments: object) -> ToolResult:
        """What a model sends, whatever it is."""
        trace = Trace(f"req_{uuid.uuid4().hex}", uuid.uuid4().hex, self._world.services.metrics)
        return await self._tool.call(self.principal, arguments, trace, Deadline.after(_PATIENCE_MS))

    async def look_up(self, query: str, **arguments: object) -> ToolResult:
        return await self.send({"query": query, **arguments})

    async def titles(self, query: str, **arguments: object) -> list[str]:
        """Of the passages found; the text has the same ones."""
        found = await self.look_up(query, **arguments)
        results: Any = found.content["results"]
        titles = [result["title"] for result in results]
        heads = [line for line in found.text.splitlines() if line.startswith("passage ")]
        assert [head.partition(";")[0] for head in heads] == [
            f"passage {n} (title: {title}" for n, title in enumerate(titles, start=1)
        ]
        return titles


async def tool_caller(world: World, **claims: Any) -> ToolCaller:
    """With a token of these claims."""
    return ToolCaller(world, await world.verifier.verify(world.token(**claims)))

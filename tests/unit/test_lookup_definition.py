"""What a model is told of ``lookup_knowledge``: closed, the same in every form, and as the page has it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.answer.lookup_tool import LookupTool
from tests.harness.world import World

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()


@pytest.fixture(scope="module")
def tool() -> LookupTool:
    """By the default settings."""
    return World().services.lookup_tool


def test_the_arguments_name_no_tenant_right_or_passage(tool: LookupTool) -> None:
    """A closed object of five plain values; what else is sent is refused."""
    schema: Any = tool.schema
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"query", "knowledge_base", "top_k", "mode", "category"}
    assert {one["type"] for one in schema["properties"].values()} == {"string", "integer"}
    assert schema["required"] == ["query"]


def test_every_form_says_the_same(tool: LookupTool) -> None:
    """By the names that each protocol has for it."""
    mcp, function = tool.as_mcp, tool.as_function
    assert set(mcp) == {"name", "description", "inputSchema"}
    assert function == {
        "type": "function",
        "function": {
            "name": mcp["name"],
            "description": mcp["description"],
            "parameters": mcp["inputSchema"],
        },
    }


def test_the_page_has_the_definition(tool: LookupTool) -> None:
    """To be copied from there."""
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(block) == tool.as_function

"""Asks a running gateway looked-up questions about an imported folder and prints what came back.

``python -m eval.folder --url URL --token T --kb NAME --questions FILE``. An answerable question counts when
one of its documents is among the first three citations; an off-topic one when it is refused and no model
was called.
"""

import argparse
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from gateway.client import GatewayClient

_FIRST = 3


def model_calls(url: str) -> float:
    """The sum of ``gateway_model_calls_total`` over its kinds."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        lines = response.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith("gateway_model_calls_total")
    )


def ask(gateway: GatewayClient, kb: str, question: str) -> dict[str, Any]:
    """The data of the last event."""
    events = list(gateway.ask(question, knowledge_base=kb))
    return dict(events[-1].data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "token", "kb", "questions"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    asked = json.loads(Path(options.questions).read_text())
    good = refused = 0
    with GatewayClient(options.url, options.token) as gateway:
        print("| question | first citations | found |\n|---|---|---|")
        for entry in asked["answerable"]:
            done = ask(gateway, options.kb, entry["question"])
            cited = list(dict.fromkeys(c["uri"] for c in done.get("citations", [])[:_FIRST]))
            found = any(document in cited for document in entry["documents"])
            good += found
            shown = ", ".join(cited) or ", ".join(done.get("reasons", [])) or done.get("code", "")
            print(f"| {entry['question']} | {shown} | {'yes' if found else 'no'} |")
        before = model_calls(options.url)
        print("\n| off topic | status | reasons |\n|---|---|---|")
        for question in asked["off_topic"]:
            done = ask(gateway, options.kb, question)
            refused += done.get("status") == "REFUSED_NO_EVIDENCE"
            print(f"| {question} | {done.get('status')} | {', '.join(done.get('reasons', []))} |")
        after = model_calls(options.url)
    print(
        f"\n{good} of {len(asked['answerable'])} found, {refused} of {len(asked['off_topic'])} refused, "
        f"model calls {before:g} -> {after:g}"
    )
    return 0 if refused == len(asked["off_topic"]) and after == before else 1


if __name__ == "__main__":
    sys.exit(main())

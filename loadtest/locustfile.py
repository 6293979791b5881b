"""The load scenarios for Locust: the same file and questions as the open-loop driver's.

``SCENARIO=office TOKENS_FILE=tokens.txt locust -f loadtest/locustfile.py --headless -u 100 -r 20 -H URL``

Locust's users wait for their answers, so it is a closed loop: each asks again at a steady pace, and ``-u``
users together keep the scenario's rate only while there are enough of them. It shows how a server behaves
with so many people at it; what overload does to latencies the open-loop driver shows. Locust isn't among
the locked packages: ``pip install locust``.
"""

import json
import os
import random
import time
from pathlib import Path
from typing import Any

from locust import HttpUser, constant_throughput, task  # type: ignore[import-not-found]  # see above

from loadtest.client_events import Events
from loadtest.scenarios import questions, scenario

_SCENARIO = scenario(os.environ.get("SCENARIO", "steady"))
_QUESTIONS = questions()
_TOKENS = Path(os.environ["TOKENS_FILE"]).read_text().split()
#: how often each user asks, given so many of them
_USERS = int(os.environ.get("USERS", "100"))
_PIECE_BYTES = 4096


class Asker(HttpUser):  # type: ignore[misc]  # Locust brings no types here
    """One person who asks, reads to the end or leaves in the middle, and asks again."""

    wait_time = constant_throughput(_SCENARIO.rate / _USERS)

    def on_start(self) -> None:
        self.token = random.choice(_TOKENS)

    @task  # type: ignore[untyped-decorator]  # likewise
    def ask(self) -> None:
        unanswerable = random.random() < _SCENARIO.unanswerable
        question = random.choice(_QUESTIONS.unanswerable if unanswerable else _QUESTIONS.answerable)
        began = time.perf_counter()
        with self.client.post(
            "/v1/answers",
            json={"question": question, "knowledge_base": _QUESTIONS.knowledge_base},
            headers={"Authorization": f"Bearer {self.token}", "Cache-Control": "no-store"},
            stream=True,
            catch_response=True,
            name="headers",
        ) as response:
            if response.status_code in {429, 503}:
                response.failure(f"rejected: {_code(response)}")
            elif response.status_code != 200:
                response.failure(f"{response.status_code}: {_code(response)}")
            else:
                self._read(response, began)

    def _read(self, response: Any, began: float) -> None:
        """Locust has timed the headers; the first delta and the end are told to it here."""
        leaves_after = random.randint(1, 20) if random.random() < _SCENARIO.leaving else None
        events, deltas, last = Events(), 0, ""
        for piece in response.iter_content(_PIECE_BYTES):
            for name, data in events.feed(piece):
                last = name if name != "error" else f"error: {data['code']}"
                deltas += name == "delta"
                if name == "delta" and deltas == 1:
                    self._tell("first delta", began)
            if leaves_after is not None and deltas >= leaves_after:
                response.success()
                return
        if last == "done":
            self._tell("whole answer", began)
            response.success()
        else:
            response.failure(last if last.startswith(("error", "revoked")) else "truncated")

    def _tell(self, name: str, began: float) -> None:
        self.environment.events.request.fire(
            request_type="SSE",
            name=name,
            response_time=(time.perf_counter() - began) * 1000,
            response_length=0,
            exception=None,
            context={},
        )


def _code(response: Any) -> str:
    try:
        return str(json.loads(response.content)["code"])
    except (ValueError, KeyError, TypeError):
        return "no problem of ours"

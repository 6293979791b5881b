"""The chat page in a real browser, against a small server that plays every ending of a stream.

No gateway is behind it, so there are no sides: the page knows only what comes over the wire.
"""

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, async_playwright, expect

from tests.acceptance.scripted_gateway import HOSTILE, PROBLEMS, QUOTE, TOKEN, ScriptedGateway, serving

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
pytestmark = pytest.mark.asyncio(loop_scope="module")
expect.set_options(timeout=20_000)  # a bound for a busy machine, not an expectation


def has_browser() -> bool:
    return CHROMIUM.exists()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    if not has_browser():
        message = f"no browser at {CHROMIUM}: apt-get install chromium (or set CHROMIUM)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        await browser.close()


class Chat:
    """One open page with what it complained about."""

    def __init__(self, page: Page, gateway: ScriptedGateway, base_url: str) -> None:
        self.page, self.gateway, self.base_url = page, gateway, base_url
        self.complaints: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(20_000)

    def _console(self, message: ConsoleMessage) -> None:
        # The browser itself reports each 4xx and 5xx answer; that is the case under test.
        by_browser = message.text.startswith("Failed to load resource: the server responded with a status")
        if message.type in ("error", "warning") and not by_browser:
            self.complaints.append(message.text)

    async def open(self, fragment: str = f"#token={TOKEN}&kb=handbook") -> None:
        await self.page.goto(f"{self.base_url}/{fragment}")

    async def ask(self, question: str) -> None:
        await self.page.get_by_label("Your question").fill(question)
        await self.page.get_by_role("button", name="Send").click()

    async def ended(self, state: str) -> Locator:
        turn = self.page.locator(".turn").last
        await expect(turn).to_have_attribute("data-state", state)
        return turn


@pytest_asyncio.fixture(loop_scope="module")
async def chat(browser: Browser) -> AsyncIterator[Chat]:
    gateway = ScriptedGateway()
    async with serving(gateway) as base_url:
        context = await browser.new_context()
        chat = Chat(await context.new_page(), gateway, base_url)
        yield chat
        await context.close()
        assert chat.complaints == []


async def test_an_answer_is_drawn_with_its_formatting_and_its_facts(chat: Chat) -> None:
    """Bold, table, code and the line below come from the events alone."""
    await chat.open()
    await chat.ask("answer")
    turn = await chat.ended("answered")
    await expect(turn.locator("strong")).to_have_text("25 days")
    await expect(turn.locator("td")).to_have_text(["Annual", "25"])
    await expect(turn.locator("pre")).to_have_text("x = [1]")
    facts = ["handbook", "revision 01234567", "first words after 140 ms", "2.3 s in all"]
    await expect(turn.locator(".facts span")).to_have_text(facts)
    await expect(chat.page.get_by_role("status")).to_have_text("Answer complete, 2 sources.")
    (asked,) = chat.gateway.asked
    assert re.fullmatch("[0-9a-f]{32}", asked.pop("conversation_id"))
    assert asked == {"question": "answer", "knowledge_base": "handbook"}


async def test_an_event_stream_cut_anywhere_with_crlf_gives_the_same_answer(chat: Chat) -> None:
    """Seven bytes at a time, with a heartbeat comment before the first event."""
    await chat.open()
    await chat.ask("answer")
    expected = await (await chat.ended("answered")).locator(".text").inner_html()
    await chat.ask("crlf")
    await expect(chat.page.locator(".turn")).to_have_count(2)
    turn = await chat.ended("answered")
    without_ids = re.compile(r"passage-\d+")
    got = await turn.locator(".text").inner_html()
    assert without_ids.sub("", got) == without_ids.sub("", expected)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
async def test_the_parser_finds_the_same_events_for_every_cut(chat: Chat, newline: str) -> None:
    """Each position of one cut, and one character at a time."""
    await chat.open()
    lines = [
        "\ufeff: hi",
        "event: delta",
        "id: 4",
        "data: one",
        "data:two",
        "unknown",
        "",
        "data: 三",
        "",
        "data: x",
    ]
    script = """async (text) => {
        const { EventParser } = await import("/static/sse.js");
        const whole = [...text].map((_, i) => [text.slice(0, i), text.slice(i)]).concat([[...text]]);
        return whole.map((pieces) => {
            const parser = new EventParser();
            return JSON.stringify(pieces.flatMap((piece) => parser.feed(piece)));
        });
    }"""
    found = await chat.page.evaluate(script, newline.join(lines))
    events = [{"type": "delta", "id": "4", "data": "one\ntwo"}, {"type": "message", "id": "4", "data": "三"}]
    assert [json.loads(text) for text in set(found)] == [events]


async def test_markers_become_buttons_only_for_numbers_the_server_sent(chat: Chat) -> None:
    """Groups are split, code is left alone."""
    await chat.open()
    await chat.ask("answer")
    turn = await chat.ended("answered")
    await expect(turn.locator(".text .chip")).to_have_text(["1", "2", "3", "1", "2"])
    await expect(turn.locator("pre .chip")).to_have_count(0)
    await expect(turn.locator(".sources > ul .source-title")).to_have_text(["Leave policy", "Travel rules"])
    await expect(turn.locator(".sources .unsure")).to_have_count(1)
    await expect(turn.locator("details summary")).to_have_text("Also looked at (1)")


async def test_a_citation_opens_its_passage_and_escape_gives_the_focus_back(chat: Chat) -> None:
    """The passage is fetched anew, with the quote marked inside it."""
    await chat.open()
    await chat.ask("answer")
    turn = await chat.ended("answered")
    chip = turn.get_by_role("button", name="Source 1: Leave policy").first
    await chip.focus()
    await chat.page.keyboard.press("Enter")
    passage = turn.get_by_role("region", name="Source 1: Leave policy")
    await expect(passage.locator("mark")).to_have_text(QUOTE)
    await expect(passage.locator("blockquote")).to_contain_text("They may carry over five.")
    await expect(passage.locator("dd")).to_have_text(["Leave > Annual", "3", "v7", "handbook/leave.md"])
    await expect(chip).to_have_attribute("aria-expanded", "true")
    await chat.page.keyboard.press("Escape")
    await expect(passage).to_be_hidden()
    await expect(chip).to_be_focused()


async def test_a_passage_the_server_no_longer_gives_is_not_shown_from_memory(chat: Chat) -> None:
    """404 of the source hides the quote; without a chunk id there is nothing to ask."""
    await chat.open()
    await chat.ask("answer")
    turn = await chat.ended("answered")
    await turn.locator(".source").nth(1).click()
    await expect(turn.locator(".passage-text")).to_have_text("This passage is not available to you any more.")
    await turn.locator("summary").click()
    await turn.locator(".source").nth(2).click()
    await expect(turn.locator(".passage-text")).to_have_text("No text was sent with this source.")


async def test_a_refusal_is_a_calm_sentence_with_its_reason_in_plain_words(chat: Chat) -> None:
    """A refusal is an outcome: no error colours, no answer text."""
    await chat.open()
    await chat.ask("refusal")
    turn = await chat.ended("refused")
    await expect(turn.locator(".notice-title")).to_have_text("No answer from your documents")
    await expect(turn.locator(".notice li")).to_contain_text("too far from the question")
    await expect(turn.locator(".notice li code")).to_have_text("BELOW_THRESHOLD")
    await expect(turn.locator(".text")).to_be_empty()


async def test_a_refused_token_is_said_and_asked_for_again(chat: Chat) -> None:
    """The question isn't lost; the new token is used and never stays in the field."""
    await chat.open("#token=stale")
    await chat.ask("answer")
    turn = await chat.ended("failed")
    await expect(turn.locator(".notice")).to_contain_text("The access token is not valid.")
    await expect(turn.locator(".notice-title code")).to_have_text("token_invalid")
    field = chat.page.get_by_label("Access token")
    await expect(field).to_be_focused()
    await field.fill(TOKEN)
    await chat.page.keyboard.press("Enter")
    await expect(chat.page.locator(".turn")).to_have_count(0)
    await expect(chat.page.get_by_label("Your question")).to_have_value("answer")
    await chat.page.keyboard.press("Enter")
    await chat.ended("answered")
    assert await field.input_value() == ""


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("forbidden", "This token doesn’t allow asking questions."),
        ("missing", "There is no such knowledge base, or you may not read it."),
        ("long", "The question is too long."),
        ("hurried", "You are asking faster than allowed. Try again in 7 seconds."),
        ("full", "All places are taken right now. Try again in 7 seconds."),
        ("slow", "The answer took too long."),
    ],
)
async def test_a_problem_before_the_stream_is_said_in_a_sentence_with_its_code(
    chat: Chat, question: str, sentence: str
) -> None:
    """The code stays visible for whoever is asked for help."""
    await chat.open()
    await chat.ask(question)
    turn = await chat.ended("failed")
    await expect(turn.locator(".notice")).to_contain_text(sentence)
    await expect(turn.locator(".notice-title code")).to_have_text(PROBLEMS[question][1])


async def test_several_knowledge_bases_are_offered_as_buttons(chat: Chat) -> None:
    """Choosing one asks the same question there."""
    await chat.open(f"#token={TOKEN}")
    await chat.ask("which")
    turn = await chat.ended("failed")
    await turn.get_by_role("button", name="travel").click()
    await chat.ended("answered")
    first, again = chat.gateway.asked
    assert again == {**first, "knowledge_base": "travel"}


@pytest.mark.parametrize(("question", "state"), [("error", "failed"), ("truncated", "incomplete")])
async def test_a_broken_answer_keeps_its_text_and_is_marked_incomplete(
    chat: Chat, question: str, state: str
) -> None:
    """An error event and a stream without a last event look alike to a reader: not complete."""
    await chat.open()
    await chat.ask(question)
    turn = await chat.ended(state)
    await expect(turn.locator(".text")).to_have_text("The first half")
    await expect(turn.locator(".notice-title")).to_contain_text("This answer is incomplete")
    await expect(chat.page.get_by_role("button", name="Send")).to_be_visible()


async def test_a_revoked_answer_leaves_nothing_of_the_documents_on_the_page(chat: Chat) -> None:
    """Text, sources, titles and an open passage go; the question and a notice stay."""
    await chat.open()
    await chat.ask("revoked")
    await chat.page.locator(".chip").click()
    await expect(chat.page.locator(".passage blockquote")).to_contain_text(QUOTE)
    chat.gateway.go_on.set()
    turn = await chat.ended("revoked")
    await expect(turn.locator(".notice")).to_contain_text("A document behind this answer was withdrawn.")
    html = await chat.page.content()
    assert "secret sentence" not in html
    assert "Leave policy" not in html
    assert QUOTE not in html
    await expect(turn.get_by_role("button", name="Copy")).to_be_hidden()


async def test_stop_ends_the_stream_on_the_wire_and_tells_the_server(chat: Chat) -> None:
    """The server sees both the disconnect and the DELETE; what was shown stays."""
    await chat.open()
    await chat.ask("endless")
    await expect(chat.page.locator(".text")).to_have_text("It goes on and on")
    await chat.page.get_by_role("button", name="Stop").click()
    with anyio.fail_after(20):
        await chat.gateway.left.wait()
        await chat.gateway.deleted.wait()
    assert chat.gateway.withdrawn == ["/v1/answers/req-1"]
    turn = await chat.ended("stopped")
    await expect(turn.locator(".text")).to_have_text("It goes on and on")
    await expect(turn.locator(".notice-title")).to_have_text("Stopped")
    await expect(chat.page.get_by_label("Your question")).to_be_focused()


async def test_stop_works_before_the_server_has_answered(chat: Chat) -> None:
    """Without a request id there is nothing to delete: leaving is enough."""
    await chat.open()
    await chat.ask("silent")
    with anyio.fail_after(20):
        await chat.gateway.arrived.wait()
        await chat.page.get_by_role("button", name="Stop").click()
        await chat.gateway.left.wait()
    await chat.ended("stopped")
    assert chat.gateway.withdrawn == []


async def test_hostile_text_stays_text(chat: Chat) -> None:
    """In the answer, a title, a quote and an address: no element, no script, no link. The page asks for
    nothing but the answer, and says that it saw the end.
    """
    await chat.open()
    requests: list[str] = []
    chat.page.on("request", lambda request: requests.append(request.url))
    await chat.ask("hostile")
    turn = await chat.ended("answered")
    await turn.locator(".chip").click()
    await expect(turn.locator(".passage blockquote")).to_have_text(HOSTILE)
    await expect(turn.locator(".text code")).to_have_text(HOSTILE)
    await expect(turn.locator(".text")).to_contain_text("[99]")
    await expect(turn.locator(".chip")).to_have_text(["1"])
    await expect(turn.locator("img, script, a, iframe")).to_have_count(0)
    assert await chat.page.evaluate("window.broken") is None
    answers = f"{chat.base_url}/v1/answers"
    assert [url for url in requests if "/static/" not in url] == [answers, f"{answers}/req-1/ack"]


async def test_the_token_leaves_the_address_and_stays_in_the_tab(chat: Chat) -> None:
    """A reload still knows it; the address bar and the page's text don't show it."""
    await chat.open()
    assert chat.page.url == f"{chat.base_url}/"
    await chat.page.reload()
    await chat.ask("answer")
    await chat.ended("answered")
    assert TOKEN not in await chat.page.content()
    assert await chat.page.evaluate("localStorage.length") == 0


async def test_another_token_clears_what_the_first_one_read(chat: Chat) -> None:
    """Also while an answer is still coming."""
    await chat.open()
    await chat.ask("endless")
    await expect(chat.page.locator(".text")).to_have_text("It goes on and on")
    await chat.page.locator("#access-toggle").click()
    await chat.page.get_by_role("button", name="Forget token").click()
    await expect(chat.page.locator(".turn")).to_have_count(0)
    with anyio.fail_after(20):
        await chat.gateway.left.wait()


async def test_enter_sends_and_shift_enter_starts_a_line(chat: Chat) -> None:
    """An Enter that ends an input method's choice sends nothing."""
    await chat.open()
    box = chat.page.get_by_label("Your question")
    await box.fill("answer")
    await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
    await box.press("Shift+Enter")
    await expect(box).to_have_value("answer\n")
    assert chat.gateway.asked == []
    await box.press("Enter")
    await chat.ended("answered")
    await expect(box).to_have_value("")


async def test_asking_again_skips_the_answer_cache(chat: Chat) -> None:
    """no-store is the client's word for a fresh answer."""
    await chat.open()
    await chat.ask("answer")
    turn = await chat.ended("answered")
    await turn.get_by_role("button", name="Ask again").click()
    await expect(chat.page.locator(".turn")).to_have_count(2)
    await chat.ended("answered")
    assert [headers.get("cache-control") for headers in chat.gateway.headers] == [None, "no-store"]


async def test_the_page_is_usable_at_360_pixels_and_says_its_languages(chat: Chat) -> None:
    """No sideways scrolling; roles and languages for a screen reader."""
    await chat.page.set_viewport_size({"width": 360, "height": 640})
    await chat.open()
    await chat.ask("chinese")
    turn = await chat.ended("answered")
    await turn.locator(".chip").click()
    await expect(turn.locator(".passage")).to_be_visible()
    width = await chat.page.evaluate("document.scrollingElement.scrollWidth")
    assert width == 360
    await expect(turn.locator(".text")).to_have_attribute("lang", "zh")
    await expect(chat.page.get_by_role("log")).to_have_attribute("aria-live", "off")
    await expect(chat.page.locator("html")).to_have_attribute("lang", "en")

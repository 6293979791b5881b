// The chat page: asks, reads the stream, stops it. What the wire says is in events; see sse.js.

import { Access } from "./access.js";
import { Answer } from "./answer.js";
import { eventLists } from "./sse.js";

const byId = (id) => document.getElementById(id);
const box = byId("question");
const transcript = byId("transcript");
const NEAR_END_PX = 120;

/** The question under way: {answer, control, requestId, started, ended}; at most one. */
let running = null;
let atEnd = true;
/** Follow-ups lean on the questions before them; a cleared page begins anew. */
let conversation = fresh32();

const access = new Access(clear);

function fresh32() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function clear() {
  conversation = fresh32();
  if (running) stop();
  transcript.replaceChildren();
  byId("intro").hidden = false;
  say("");
}

function say(text) {
  byId("status").textContent = text;
}

async function ask(question, { fresh = false } = {}) {
  if (running) return say("An answer is still coming: stop it first.");
  access.takeTyped();
  if (!access.token) {
    say("Paste an access token first.");
    return access.ask("token");
  }
  const answer = new Answer(question, { access, again: askAgain, choose: (name) => askIn(name, question) });
  const run = { answer, control: new AbortController(), requestId: null, started: false, ended: false };
  begin(run);
  // fetch fails only when no answer came at all: lost network, or our own stop.
  const response = await send(question, run, fresh).catch(() => null);
  if (response) await follow(run, response);
  else lost(run);
}

const askAgain = (question) => ask(question, { fresh: true });

function askIn(name, question) {
  access.knowledgeBase = name;
  return ask(question);
}

function send(question, run, fresh) {
  const body = { question, conversation_id: conversation };
  if (access.knowledgeBase) body.knowledge_base = access.knowledgeBase;
  const headers = { ...access.headers, "Content-Type": "application/json", Accept: "text/event-stream" };
  if (fresh) headers["Cache-Control"] = "no-store";
  return fetch("/v1/answers", { method: "POST", headers, body: JSON.stringify(body), signal: run.control.signal });
}

async function follow(run, response) {
  run.requestId = response.headers.get("X-Request-Id");
  if (!response.ok || !(response.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) {
    return refusedAtTheDoor(run, response);
  }
  run.started = true;
  // Read on after the last event: leaving early would look like a client that went away.
  for await (const list of eventLists(response.body)) {
    for (const event of list) if (!run.ended) take(run, event);
    toEnd();
  }
  lost(run);
}

function take(run, { type, data }) {
  const { answer } = run;
  if (type === "meta") {
    run.requestId = data.request_id ?? run.requestId;
    answer.meta(data);
  } else if (type === "delta") {
    if (typeof data.text === "string") answer.append(data.text);
  } else if (type === "done") {
    answer.done(data);
    end(run, data.status === "REFUSED_NO_EVIDENCE" ? "No answer: not enough evidence." : finished(answer.cited));
  } else if (type === "error") {
    if (data.code === "stopped") answer.stopped();
    else answer.failed(data);
    end(run, data.code === "stopped" ? "Stopped." : "The answer ended with an error.");
  } else if (type === "revoked") {
    answer.revoked(data.reason);
    end(run, "The answer was withdrawn and removed.");
  }
  if (run.ended) acknowledge(run.requestId);
}

/** Tells the server that its last event was seen: a measurement, so nobody minds when it is lost. */
function acknowledge(requestId) {
  if (!requestId) return;
  const headers = { ...access.headers, "Content-Type": "application/json" };
  const path = `/v1/answers/${encodeURIComponent(requestId)}/ack`;
  fetch(path, { method: "POST", headers, body: "{}", keepalive: true }).catch(() => null);
}

const finished = (count) => `Answer complete, ${count} source${count === 1 ? "" : "s"}.`;

async function refusedAtTheDoor(run, response) {
  const problem = await problemOf(response);
  if (run.ended) return;
  const wait = Number(response.headers.get("Retry-After"));
  run.answer.failed(problem, { status: response.status, retryAfterMs: problem.retry_after_ms ?? wait * 1000 });
  end(run, "The question was not answered.");
  // These need another token or another question: nothing typed is lost.
  if ([400, 401, 413].includes(response.status) && !box.value) box.value = run.answer.question;
  if (response.status === 401) access.ask("token");
  if (problem.code === "knowledge_base_required" && Array.isArray(problem.knowledge_bases)) access.offer(problem.knowledge_bases);
}

async function problemOf(response) {
  const problem = await response.json().catch(() => null);
  return problem && typeof problem === "object" ? problem : {};
}

/** The stream is over without a last event. */
function lost(run) {
  if (run.ended) return;
  if (run.started) run.answer.truncated();
  else run.answer.failed({ code: "unreachable" });
  end(run, run.started ? "The answer is incomplete." : "The gateway can’t be reached.");
}

function stop() {
  const run = running;
  if (!run) return;
  run.answer.stopped();
  end(run, "Stopped.");
  if (run.requestId) withdraw(run.requestId);
  run.control.abort();
}

/** Tells the server as well: behind a proxy it may not see that the connection is gone. */
function withdraw(requestId) {
  const path = `/v1/answers/${encodeURIComponent(requestId)}`;
  fetch(path, { method: "DELETE", headers: access.headers, keepalive: true }).catch(() => null);
}

function begin(run) {
  running = run;
  byId("intro").hidden = true;
  transcript.append(run.answer.element);
  byId("send").hidden = true;
  byId("stop").hidden = false;
  say("Answering…");
  box.focus();
  atEnd = true;
  toEnd();
}

function end(run, words) {
  run.ended = true;
  if (running === run) running = null;
  byId("stop").hidden = true;
  byId("send").hidden = false;
  say(words);
  if (document.activeElement === document.body) box.focus();
  toEnd();
}

/** Follows the text, unless the reader has scrolled up. */
function toEnd() {
  const page = document.scrollingElement;
  if (atEnd) page.scrollTop = page.scrollHeight;
}

window.addEventListener("scroll", () => {
  const page = document.scrollingElement;
  atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < NEAR_END_PX;
});

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = box.value.trim();
  if (!question) return say("Type a question first.");
  if (running) return say("An answer is still coming: stop it first.");
  if (access.token || byId("token").value.trim()) box.value = "";
  ask(question);
});

box.addEventListener("keydown", (event) => {
  // Enter also ends the choice in an input method for Chinese or Japanese.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  byId("ask").requestSubmit();
});

byId("stop").addEventListener("click", () => {
  stop();
  box.focus();
});

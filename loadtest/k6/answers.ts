// The load scenarios for k6: the same file, questions and rates as the open-loop driver's.
//
//   k6 run -e URL=http://127.0.0.1:8080 -e TOKENS_FILE=/abs/tokens.txt [-e SCENARIO=office] answers.ts
//
// k6 reads a whole body before it gives it out, so it can't time single events: the time to the first text
// is the server's own, from the last event (`done.timings`), and leaves out what came before the server.
// Its arrivals are evenly spaced, never by Poisson. A client that leaves is a request whose timeout is over:
// it may leave in any phase, and which one it was isn't known.

import { check } from "k6";
import http, { type RefinedResponse } from "k6/http";
import { Counter, Rate, Trend } from "k6/metrics";
import type { Options } from "k6/options";

interface Scenario {
  about: string;
  arrivals: "constant" | "poisson";
  rate: number;
  seconds: number;
  seed: number;
  unanswerable: number;
  leaving: number;
  slow: number;
  acknowledging: number;
  answer: { words: number; first_word_ms: number; word_ms: number };
}

interface ScenarioFile {
  knowledge_base: string;
  answerable: string[];
  unanswerable: string[];
  scenarios: Record<string, Scenario>;
}

interface LastEvent {
  name: string;
  data: {
    status?: string;
    code?: string;
    reason?: string;
    timings?: { retrieval_ms: number; ttft_ms: number | null; total_ms: number };
  };
}

const LAST_EVENTS = ["done", "error", "revoked"];

const file = JSON.parse(open("../scenarios.json")) as ScenarioFile;
const tokens = tokensGiven();
const scenario = chosen(__ENV.SCENARIO ?? "steady");
const url = __ENV.URL ?? "http://127.0.0.1:8080";
const knowledgeBase = __ENV.KNOWLEDGE_BASE ?? file.knowledge_base;

/** Milliseconds, as the server has them. */
const firstText = new Trend("answer_first_text", true);
/** Milliseconds from the request to its whole answer. */
const whole = new Trend("answer_whole", true);
const rejectedAfter = new Trend("answer_rejected_after", true);
const outcomes = new Counter("answer_outcomes");
/** Streams that began and came to no proper end. */
const lost = new Rate("answer_lost");

// A rate is a whole number of iterations to k6: tenths are counted over ten seconds.
export const options: Options = {
  scenarios: {
    questions: {
      executor: "constant-arrival-rate",
      rate: Math.round(scenario.rate * 10),
      timeUnit: "10s",
      duration: `${scenario.seconds}s`,
      preAllocatedVUs: Math.ceil(scenario.rate * 5),
      maxVUs: Math.ceil(scenario.rate * 60),
    },
  },
  thresholds: {
    answer_lost: ["rate==0"],
    // k6 had no client free for a question that was due: then the run says nothing of the server
    dropped_iterations: ["count==0"],
  },
};

export default function ask(): void {
  const leaves = Math.random() < scenario.leaving;
  const response = http.post(`${url}/v1/answers`, JSON.stringify(question()), {
    headers: { ...authorization(), "Content-Type": "application/json", "Cache-Control": "no-store" },
    timeout: leaves ? `${Math.ceil(Math.random() * answerMs())}ms` : "60s",
    tags: { name: "answers" },
  });
  if (leaves && response.status === 0) {
    outcomes.add(1, { outcome: "left" });
    return;
  }
  const last = response.status === 200 ? lastEvent(response) : undefined;
  const outcome = named(response.status, last);
  outcomes.add(1, { outcome, code: last?.data.code ?? last?.data.reason ?? "none" });
  if (outcome === "rejected") {
    rejectedAfter.add(response.timings.duration);
    check(response, { "a rejection says when to come back": (r) => r.headers["Retry-After"] !== undefined });
    return;
  }
  lost.add(outcome === "truncated" || (outcome === "error" && response.status === 200));
  if (outcome === "answered") {
    whole.add(response.timings.duration);
    firstText.add(last?.data.timings?.ttft_ms ?? 0);
  }
  if (last !== undefined && Math.random() < scenario.acknowledging) {
    acknowledge(response);
  }
}

function chosen(name: string): Scenario {
  const found = file.scenarios[name];
  if (found === undefined) {
    throw new Error(`SCENARIO is one of ${Object.keys(file.scenarios).join(", ")}`);
  }
  return found;
}

/** One a line in TOKENS_FILE, or TOKEN alone. Callers take turns: each has a rate of its own. */
function tokensGiven(): string[] {
  const path = __ENV.TOKENS_FILE;
  const given = path === undefined ? [__ENV.TOKEN ?? ""] : open(path).split("\n");
  const found = given.map((token) => token.trim()).filter((token) => token !== "");
  if (found.length === 0) {
    throw new Error("TOKENS_FILE or TOKEN must be given");
  }
  return found;
}

function authorization(): Record<string, string> {
  return { Authorization: `Bearer ${one(tokens)}` };
}

function question(): { question: string; knowledge_base: string } {
  const asked = Math.random() < scenario.unanswerable ? file.unanswerable : file.answerable;
  return { question: one(asked), knowledge_base: knowledgeBase };
}

function one(values: string[]): string {
  const found = values[Math.floor(Math.random() * values.length)];
  if (found === undefined) {
    throw new Error("nothing to choose from");
  }
  return found;
}

/** What an answer takes when nobody waits for anybody. */
function answerMs(): number {
  return scenario.answer.first_word_ms + scenario.answer.words * scenario.answer.word_ms;
}

/** The stream's last event, if it has one; anything else as the last thing means that it was cut off. */
function lastEvent(response: RefinedResponse<"text">): LastEvent | undefined {
  const blocks = response.body.split("\n\n").filter((block) => block.startsWith("event: "));
  const lines = (blocks[blocks.length - 1] ?? "").split("\n");
  const name = field(lines, "event");
  const data = field(lines, "data");
  if (name === undefined || data === undefined || !LAST_EVENTS.includes(name)) {
    return undefined;
  }
  return { name, data: JSON.parse(data) as LastEvent["data"] };
}

function field(lines: string[], name: string): string | undefined {
  return lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
}

function named(status: number, last: LastEvent | undefined): string {
  if (status === 429 || status === 503) {
    return "rejected";
  }
  if (status === 0) {
    return "unreachable";
  }
  if (status !== 200) {
    return "error";
  }
  if (last === undefined) {
    return "truncated";
  }
  if (last.name === "done") {
    return last.data.status === "REFUSED_NO_EVIDENCE" ? "refused" : "answered";
  }
  return last.name;
}

/** That this client saw the end. */
function acknowledge(response: RefinedResponse<"text">): void {
  const requestId = response.headers["X-Request-Id"];
  if (requestId !== undefined) {
    http.post(`${url}/v1/answers/${requestId}/ack`, "{}", {
      headers: { ...authorization(), "Content-Type": "application/json" },
      tags: { name: "ack" },
    });
  }
}

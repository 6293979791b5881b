// One question with its answer on the page: text, sources, and how it ended.

import { languageOf, make } from "./dom.js";
import { Passage } from "./passage.js";
import { AnswerText } from "./render.js";
import { durationText, problemText, reasonText, revokedText, searchedText, waitText } from "./words.js";

export class Answer {
  element;
  question;
  #text = "";
  #sources = new Map();
  #meta = {};
  #drawn;
  #passage;
  #parts;
  #choose;

  /** `again(question)` asks once more; `choose(name)` asks in another knowledge base. */
  constructor(question, { access, again, choose }) {
    this.question = question;
    this.#passage = new Passage(access);
    this.#choose = choose;
    const part = (tag, name, attributes = {}) => make(tag, { class: name, ...attributes });
    this.#parts = {
      waiting: make("p", { class: "waiting" }, "Looking for evidence", make("span", { class: "dots", "aria-hidden": "true" })),
      text: part("div", "text", { dir: "auto" }),
      notice: part("div", "notice", { hidden: true }),
      sources: part("div", "sources"),
      facts: part("p", "facts"),
      actions: part("div", "actions"),
    };
    const copy = make("button", { type: "button", class: "quiet", onclick: (event) => this.#copy(event.target) }, "Copy");
    const repeat = make("button", { type: "button", class: "quiet", onclick: () => again(question) }, "Ask again");
    this.#parts.copy = copy;
    this.#parts.actions.append(copy, repeat);
    this.#parts.foot = make("div", { class: "foot", hidden: true }, this.#parts.facts, this.#parts.actions);
    const { waiting, text, notice, sources, foot } = this.#parts;
    this.element = make(
      "article",
      { class: "turn" },
      make("h2", { class: "question", lang: languageOf(question), dir: "auto" }, question),
      make("div", { class: "answer" }, make("div", { class: "body" }, waiting, text, notice, sources, foot), this.#passage.element),
    );
    this.#drawn = new AnswerText(text, (n) => this.#chip(n));
    this.#state("waiting");
  }

  /** How many sources the answer names. */
  get cited() {
    return [...this.#sources.values()].filter((source) => source.cited).length;
  }

  meta(data) {
    this.#meta = data;
    for (const source of listOf(data.sources)) this.#addSource(source);
    this.#facts();
  }

  append(text) {
    if (!text) return;
    this.#text += text;
    this.#state("streaming");
    this.#drawn.show(this.#text);
    const language = languageOf(this.#text);
    if (this.#parts.text.lang !== language) this.#parts.text.lang = language;
  }

  done(data) {
    const known = this.#sources.size;
    for (const citation of listOf(data.citations)) this.#addCitation(citation);
    if (this.#sources.size > known) this.#drawn.redraw(this.#text);
    this.#meta = { ...this.#meta, cached: data.cached ?? this.#meta.cached, timings: data.timings };
    if (data.status === "REFUSED_NO_EVIDENCE") this.#refused(listOf(data.reasons), data.searched ?? {});
    else this.#end("answered");
  }

  /** A failure before or in the stream; what has arrived stays and is marked as incomplete. */
  failed(problem, { status, retryAfterMs } = {}) {
    const partial = this.#text !== "";
    this.#end("failed", partial ? "This answer is incomplete" : "No answer", [
      [problemText(problem, status), waitText(problem.retry_after_ms ?? retryAfterMs)].filter(Boolean).join(" "),
      problem.detail ?? "",
    ], problem.code ?? (status ? `HTTP ${status}` : ""));
    const names = listOf(problem.knowledge_bases).filter((name) => typeof name === "string");
    if (!names.length) return;
    const button = (name) => make("button", { type: "button", class: "quiet", onclick: () => this.#choose(name) }, name);
    this.#parts.notice.append(make("div", { class: "choices", role: "group", "aria-label": "Ask in" }, ...names.map(button)));
  }

  truncated() {
    this.#end("incomplete", "This answer is incomplete", ["The connection ended before the answer was finished. Don’t rely on it."]);
  }

  stopped() {
    this.#end("stopped", "Stopped", [this.#text ? "You stopped this answer; it is incomplete." : "You stopped before an answer began."]);
  }

  /** Takes everything that came from documents off the page. */
  revoked(reason) {
    this.#text = "";
    this.#sources.clear();
    this.#passage.close();
    this.#drawn.clear();
    this.#end("revoked", "This answer was withdrawn", [revokedText(reason), "What had been shown is removed."]);
  }

  #refused(reasons, searched) {
    const item = (code) => make("li", {}, `${reasonText(code)} `, make("code", {}, code));
    this.#end("refused", "No answer from your documents", ["The documents you may read don’t hold enough evidence to answer this, so nothing is claimed.", searchedText(searched)]);
    if (reasons.length) this.#parts.notice.append(make("ul", {}, ...reasons.map((code) => item(String(code)))));
  }

  #end(state, title = "", lines = [], code = "") {
    this.#state(state);
    const { notice, foot, copy } = this.#parts;
    notice.hidden = !title;
    notice.replaceChildren(
      make("p", { class: "notice-title" }, title, code ? make("code", {}, code) : null),
      ...lines.filter(Boolean).map((line) => make("p", {}, line)),
    );
    foot.hidden = false;
    copy.hidden = !this.#text || !navigator.clipboard;
    this.#facts();
    this.#listSources(state);
  }

  #state(state) {
    this.element.dataset.state = state;
    this.#parts.waiting.hidden = state !== "waiting";
  }

  #addSource(data) {
    if (!Number.isInteger(data?.n)) return;
    const old = this.#sources.get(data.n);
    this.#sources.set(data.n, {
      n: data.n,
      title: data.title || data.document_id || "Untitled document",
      section: Array.isArray(data.section) ? data.section.join(" › ") : data.section,
      page: data.page,
      version: data.document_version,
      uri: data.uri,
      chunkId: data.chunk_id ?? old?.chunkId,
      quotes: old?.quotes ?? [],
      supported: old?.supported,
      cited: old?.cited ?? false,
    });
  }

  #addCitation(data) {
    this.#addSource(data);
    const source = this.#sources.get(data?.n);
    if (!source) return;
    source.cited = true;
    if (typeof data.quote === "string" && data.quote) source.quotes.push(data.quote);
    if (typeof data.supported === "boolean") source.supported = (source.supported ?? true) && data.supported;
  }

  #chip(n) {
    const source = this.#sources.get(n);
    if (!source) return null;
    return this.#opener(n, { class: "chip", "aria-label": `Source ${n}: ${source.title}` }, String(n));
  }

  /** A button that opens passage n; it looks the source up when clicked, since quotes come last. */
  #opener(n, attributes, ...children) {
    const open = (event) => this.#sources.has(n) && this.#passage.toggle(this.#sources.get(n), event.currentTarget);
    const { id } = this.#passage.element;
    return make("button", { type: "button", "aria-expanded": "false", "aria-controls": id, onclick: open, ...attributes }, ...children);
  }

  #listSources(state) {
    const all = [...this.#sources.values()].sort((a, b) => a.n - b.n);
    const cited = all.filter((source) => source.cited);
    const others = all.filter((source) => !source.cited);
    const nodes = [];
    if (cited.length) nodes.push(make("h3", {}, "Sources"), this.#sourceList(cited));
    if (others.length) {
      const title = state === "answered" ? "Also looked at" : "Passages looked at";
      nodes.push(make("details", {}, make("summary", {}, `${title} (${others.length})`), this.#sourceList(others)));
    }
    this.#parts.sources.replaceChildren(...nodes);
  }

  #sourceList(sources) {
    return make("ul", {}, ...sources.map((source) => make("li", {}, this.#sourceButton(source))));
  }

  #sourceButton(source) {
    const place = [source.section, source.page ? `page ${source.page}` : ""].filter(Boolean).join(", ");
    return this.#opener(
      source.n,
      { class: "source" },
      make("span", { class: "number" }, String(source.n)),
      make(
        "span",
        { class: "source-words" },
        make("span", { class: "source-title", lang: languageOf(source.title) }, source.title),
        place ? make("span", { class: "source-place" }, place) : null,
        source.supported === false ? make("span", { class: "unsure" }, "support not confirmed") : null,
      ),
    );
  }

  #facts() {
    const { knowledge_base: base, knowledge_revision: revision, timings, cached, searched_for: other } = this.#meta;
    const facts = [
      other ? `searched for “${other}”` : "",
      base,
      revision ? `revision ${String(revision).slice(0, 8)}` : "",
      timings?.ttft_ms > 0 ? `first words after ${durationText(timings.ttft_ms)}` : "",
      timings?.total_ms >= 0 ? `${durationText(timings.total_ms)} in all` : "",
      cached ? "from the cache" : "",
    ].filter(Boolean);
    this.#parts.facts.replaceChildren(...facts.map((fact) => make("span", {}, fact)));
    if (revision) this.#parts.facts.title = `Revision ${revision}`;
  }

  async #copy(button) {
    const sources = [...this.#sources.values()].filter((source) => source.cited);
    const lines = sources.map((source) => `[${source.n}] ${source.title}${source.uri ? ` (${source.uri})` : ""}`);
    await navigator.clipboard.writeText([this.#text.trim(), ...lines].filter(Boolean).join("\n"));
    button.textContent = "Copied";
  }
}

const listOf = (value) => (Array.isArray(value) ? value : []);

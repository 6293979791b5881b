// The passage behind a citation, beside the answer (below it on a narrow screen).

import { languageOf, make } from "./dom.js";

let count = 0;

export class Passage {
  element;
  #access;
  #opener = null;
  #current = null;
  #loading = null;

  constructor(access) {
    this.#access = access;
    count += 1;
    this.element = make("section", { class: "passage", id: `passage-${count}`, tabindex: "-1", hidden: true });
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  /** Shows `source`, or closes it when it is the one shown; `opener` gets the focus back. */
  toggle(source, opener) {
    if (this.#current === source.n) return this.close();
    this.close();
    this.#current = source.n;
    this.#opener = opener;
    opener.setAttribute("aria-expanded", "true");
    this.#open(source);
  }

  close() {
    this.#loading?.abort();
    this.#loading = null;
    this.#current = null;
    this.element.hidden = true;
    this.element.removeAttribute("aria-label");
    this.element.replaceChildren();
    this.element.parentElement?.classList.remove("with-passage");
    this.#opener?.setAttribute("aria-expanded", "false");
    if (this.#opener?.isConnected) this.#opener.focus();
    this.#opener = null;
  }

  #open(source) {
    const close = make("button", { type: "button", class: "quiet close", "aria-label": "Close passage", onclick: () => this.close() }, "✕");
    const text = make("div", { class: "passage-text" });
    this.element.setAttribute("aria-label", `Source ${source.n}: ${source.title}`);
    this.element.replaceChildren(
      make(
        "div",
        { class: "passage-head" },
        make("span", { class: "number", "aria-hidden": "true" }, String(source.n)),
        make("h4", { lang: languageOf(source.title) }, source.title),
        close,
      ),
      facts(source),
      text,
    );
    this.element.hidden = false;
    this.element.parentElement.classList.add("with-passage");
    this.element.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
    if (source.chunkId) this.#load(source, text);
    else text.append(...quoteOnly(source));
  }

  async #load(source, text) {
    const loading = new AbortController();
    this.#loading = loading;
    text.append(make("p", { class: "hint" }, "Loading the passage…"));
    const shown = await fetchPassage(source, this.#access.headers, loading.signal);
    if (loading.signal.aborted) return;
    text.replaceChildren(...shown);
    this.element.scrollIntoView({ block: "nearest" });
  }
}

/** Each opening asks again: the server re-checks the permission. */
async function fetchPassage(source, headers, signal) {
  const path = `/v1/sources/${encodeURIComponent(source.chunkId)}`;
  const response = await fetch(path, { headers, signal }).catch(() => null);
  const found = response?.ok ? await response.json().catch(() => null) : null;
  if (typeof found?.content === "string") return [passageText(found.content, source.quotes)];
  if ([401, 403, 404].includes(response?.status)) {
    return [make("p", { class: "gone" }, "This passage is not available to you any more.")];
  }
  return [...quoteOnly(source), make("p", { class: "hint" }, "The whole passage couldn’t be loaded.")];
}

function facts(source) {
  const rows = [
    ["Section", source.section],
    ["Page", source.page || ""], // 0: the format has no pages
    ["Version", source.version],
    ["Address", source.uri],
    ["Support", source.supported === false ? "Not confirmed: compare the quote with the answer" : null],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function quoteOnly(source) {
  if (!source.quotes.length) return [make("p", { class: "hint" }, "No text was sent with this source.")];
  return source.quotes.map((quote) => make("blockquote", { lang: languageOf(quote) }, quote));
}

/** The passage with the first place of each quote marked. */
function passageText(content, quotes) {
  const box = make("blockquote", { lang: languageOf(content) });
  let at = 0;
  const places = quotes.map((quote) => [content.indexOf(quote), quote.length]).filter(([from, length]) => from >= 0 && length);
  for (const [from, length] of places.sort(([a], [b]) => a - b)) {
    if (from < at) continue;
    box.append(content.slice(at, from), make("mark", {}, content.slice(from, from + length)));
    at = from + length;
  }
  box.append(content.slice(at));
  return box;
}

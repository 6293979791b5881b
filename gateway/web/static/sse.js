// Server-sent events out of a fetch body: EventSource can neither POST nor send a token.

/** Turns text, cut anywhere, into events. `feed` returns the events completed by this piece. */
export class EventParser {
  #rest = "";
  #type = "";
  #id = "";
  #lines = [];
  #started = false;

  feed(text) {
    if (!this.#started && text) {
      this.#started = true;
      text = text.replace(/^\uFEFF/, "");
    }
    const buffer = this.#rest + text;
    const found = [];
    let start = 0;
    for (;;) {
      const end = nextLineEnd(buffer, start);
      // A CR at the very end may be half of a CRLF: it waits for the next piece.
      if (end < 0 || (buffer[end] === "\r" && end === buffer.length - 1)) break;
      const event = this.#line(buffer.slice(start, end));
      if (event) found.push(event);
      start = end + (buffer[end] === "\r" && buffer[end + 1] === "\n" ? 2 : 1);
    }
    this.#rest = buffer.slice(start);
    return found;
  }

  #line(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#type = value;
    else if (field === "data") this.#lines.push(value);
    else if (field === "id") this.#id = value;
    return null;
  }

  #dispatch() {
    const event = { type: this.#type || "message", id: this.#id, data: this.#lines.join("\n") };
    const empty = this.#lines.length === 0;
    this.#type = "";
    this.#lines = [];
    return empty ? null : event;
  }
}

function nextLineEnd(text, from) {
  for (let i = from; i < text.length; i += 1) {
    if (text[i] === "\n" || text[i] === "\r") return i;
  }
  return -1;
}

/**
 * Yields the events of each network read as one list, with `data` parsed as JSON. A list, so that the
 * page draws once a read. An event whose data isn't a JSON object is skipped: clients ignore what
 * they don't know.
 */
export async function* eventLists(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const parser = new EventParser();
  for (;;) {
    // A read that fails (lost network, our own stop) is an end without a last event, like any other.
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    const list = parser.feed(decoder.decode(value, { stream: true })).map(withJson).filter(Boolean);
    if (list.length) yield list;
  }
}

function withJson(event) {
  try {
    const data = JSON.parse(event.data);
    return data && typeof data === "object" ? { ...event, data } : null;
  } catch {
    return null;
  }
}

// Answer text as DOM nodes: a small part of Markdown, no links, no images, no HTML.

import { make } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}#{1,6}\s+(.*?)\s*#*$/;
const ITEM = /^\s{0,8}(?:[-*+•]|(\d{1,3})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const INLINE = /`([^`\n]+)`|\*\*(?=\S)([^\n]+?)\*\*|\[(\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)\]|【(\d{1,3}(?:\s*[,，、]\s*\d{1,3})*)】/g;

/** Draws growing text into one element and keeps the nodes of blocks that didn't change. */
export class AnswerText {
  #element;
  #chip;
  #shown = [];

  /** `chip(n)` gives the button for marker n, or null when the server never sent that number. */
  constructor(element, chip) {
    this.#element = element;
    this.#chip = chip;
  }

  show(text) {
    const blocks = blocksOf(text);
    let same = 0;
    while (same < blocks.length && this.#shown[same]?.key === blocks[same].key) same += 1;
    for (const old of this.#shown.splice(same)) old.node.remove();
    for (const block of blocks.slice(same)) {
      const node = this.#draw(block);
      this.#element.append(node);
      this.#shown.push({ key: block.key, node });
    }
  }

  /** Draws everything anew, for when the known numbers have changed. */
  redraw(text) {
    this.clear();
    this.show(text);
  }

  clear() {
    this.#shown = [];
    this.#element.replaceChildren();
  }

  #draw({ kind, lines, language }) {
    if (kind === "code") return make("pre", { tabindex: "0" }, make("code", { "data-language": language }, lines.join("\n")));
    if (kind === "heading") return make("p", { class: "heading" }, ...this.#inline(lines[0]));
    if (kind === "quote") return make("blockquote", {}, make("p", {}, ...this.#lines(lines)));
    if (kind === "table") return this.#table(lines);
    if (kind === "bullets" || kind === "numbers") return this.#list(kind, lines);
    return make("p", {}, ...this.#lines(lines));
  }

  #list(kind, lines) {
    const first = ITEM.exec(lines[0])?.[1];
    const items = [];
    for (const line of lines) {
      const item = ITEM.exec(line);
      if (item) items.push([item[2]]);
      else items.at(-1).push(line.trim());
    }
    return make(
      kind === "bullets" ? "ul" : "ol",
      { start: kind === "numbers" ? String(Number(first)) : null },
      ...items.map((text) => make("li", {}, ...this.#lines(text))),
    );
  }

  #table(lines) {
    const [head, , ...rows] = lines;
    const cells = (line, tag) => cellsOf(line).map((cell) => make(tag, {}, ...this.#inline(cell)));
    const table = make(
      "table",
      {},
      make("thead", {}, make("tr", {}, ...cells(head, "th"))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row, "td")))),
    );
    return make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table);
  }

  #lines(lines) {
    return lines.flatMap((line, i) => (i ? [make("br"), ...this.#inline(line)] : this.#inline(line)));
  }

  #inline(text) {
    const nodes = [];
    let end = 0;
    for (const match of text.matchAll(INLINE)) {
      nodes.push(text.slice(end, match.index), ...this.#mark(match));
      end = match.index + match[0].length;
    }
    nodes.push(text.slice(end));
    return nodes.filter((node) => node !== "");
  }

  #mark([whole, code, bold, square, corner]) {
    if (code) return [make("code", {}, code)];
    if (bold) return [make("strong", {}, ...this.#inline(bold))];
    const chips = (square ?? corner).split(/\D+/).map((digits) => [digits, this.#chip(Number(digits))]);
    if (chips.every(([, chip]) => chip === null)) return [whole];
    return chips.map(([digits, chip]) => chip ?? `[${digits}]`);
  }
}

/** The blocks of a text: [{kind, lines, key, language?}]; an open code fence runs to the end. */
export function blocksOf(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  const take = (kind, until, extra = {}) => {
    const from = at;
    do at += 1;
    while (at < lines.length && !until(lines[at]));
    const taken = lines.slice(from, at);
    blocks.push({ kind, lines: taken, key: `${kind}\n${taken.join("\n")}`, ...extra });
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (line.trim() === "") at += 1;
    else if (fence) takeFence(fence);
    else if (HEADING.test(line)) blocks.push({ kind: "heading", lines: [HEADING.exec(line)[1]], key: `h\n${lines[at++]}` });
    else if (isTable(lines, at)) take("table", (next) => !next.includes("|"));
    else if (ITEM.test(line)) {
      const kind = kindOf(line);
      take(kind, (next) => next.trim() === "" || (ITEM.test(next) ? kindOf(next) !== kind : !/^\s/.test(next)));
    } else if (QUOTE.test(line)) {
      take("quote", (next) => !QUOTE.test(next));
      blocks.at(-1).lines = blocks.at(-1).lines.map((quoted) => QUOTE.exec(quoted)[1]);
    } else take("paragraph", (next) => next.trim() === "" || startsBlock(next) || isTable(lines, at));
  }
  return blocks;

  function takeFence([, mark, language]) {
    const from = at;
    const closes = (line) => line.trim().startsWith(mark) && line.trim().replaceAll(mark[0], "") === "";
    do at += 1;
    while (at < lines.length && !closes(lines[at]));
    const inside = lines.slice(from + 1, at);
    const closed = at < lines.length;
    if (closed) at += 1;
    blocks.push({ kind: "code", lines: inside, key: `code\n${inside.join("\n")}\n${closed}`, language: language.trim() || null });
  }
}

const kindOf = (line) => (ITEM.exec(line)[1] === undefined ? "bullets" : "numbers");
const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || QUOTE.test(line);
const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("|") && RULE.test(lines[at + 1]);
const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

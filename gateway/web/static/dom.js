// Elements without HTML strings: text goes in as text, so nothing a document says can become markup.

/** `make("p", {class: "note", hidden: true}, "text", child)`; `on…` keys are listeners. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A language tag for foreign text: `ja` or `zh` by its letters, else "" (unknown). */
export function languageOf(text) {
  const letters = text.match(/\p{L}/gu) ?? [];
  const count = (pattern) => (text.match(pattern) ?? []).length;
  if (!letters.length) return "";
  if (count(/[\u3040-\u30ff]/g) * 10 >= letters.length) return "ja";
  return count(/\p{Script=Han}/gu) * 4 >= letters.length ? "zh" : "";
}

// Token and knowledge base of this tab: taken from the address once, or pasted; never logged.

const TOKEN = "qa-gateway.token";
const KNOWLEDGE_BASE = "qa-gateway.knowledge-base";

const byId = (id) => document.getElementById(id);

export class Access {
  #changed;

  /** `changed()` runs when the token becomes another one: what is on screen belongs to the old one. */
  constructor(changed) {
    this.#changed = changed;
    byId("access-toggle").addEventListener("click", () => this.open(byId("access").hidden));
    byId("access-form").addEventListener("submit", (event) => this.#apply(event));
    byId("forget").addEventListener("click", () => this.#forget());
    window.addEventListener("hashchange", () => this.#readAddress());
    this.#readAddress();
    byId("kb").value = this.knowledgeBase;
    this.#draw();
    this.open(!this.token);
  }

  get token() {
    return sessionStorage.getItem(TOKEN) ?? "";
  }

  get knowledgeBase() {
    return sessionStorage.getItem(KNOWLEDGE_BASE) ?? "";
  }

  set knowledgeBase(name) {
    sessionStorage.setItem(KNOWLEDGE_BASE, name);
    byId("kb").value = name;
    this.#draw();
  }

  get headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  open(shown) {
    byId("access").hidden = !shown;
    byId("access-toggle").setAttribute("aria-expanded", String(shown));
  }

  /** Opens the panel at the field that needs an answer: `token` or `kb`. */
  ask(field) {
    this.open(true);
    byId(field).focus();
  }

  offer(names) {
    byId("kb-names").replaceChildren(...names.map((name) => new Option(name)));
  }

  /** What is typed but not applied yet counts when a question is sent. */
  takeTyped() {
    const name = byId("kb").value.trim();
    if (name !== this.knowledgeBase) this.knowledgeBase = name;
    this.#use(byId("token").value.trim());
    byId("token").value = "";
  }

  #apply(event) {
    event.preventDefault();
    this.takeTyped();
    if (!this.token) return;
    this.open(false);
    byId("question").focus();
  }

  #forget() {
    sessionStorage.removeItem(TOKEN);
    byId("token").value = "";
    this.#changed();
    this.#draw();
    this.ask("token");
  }

  #use(token) {
    if (!token || token === this.token) return;
    const before = this.token;
    sessionStorage.setItem(TOKEN, token);
    if (before) this.#changed();
    this.#draw();
  }

  #readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (!given.has("token") && !given.has("kb")) return;
    history.replaceState(null, "", location.pathname + location.search);
    if (given.has("kb")) this.knowledgeBase = given.get("kb").trim();
    this.#use((given.get("token") ?? "").trim());
    if (this.token) this.open(false);
  }

  #draw() {
    const who = this.token ? nameOf(this.token) : "No token";
    byId("access-state").textContent = this.knowledgeBase ? `${who} · ${this.knowledgeBase}` : who;
    byId("forget").hidden = !this.token;
    byId("token").placeholder = this.token ? "Paste another token" : "Paste a token";
  }
}

/** "tenant / subject" as the token itself says; for display, the server alone decides. */
function nameOf(token) {
  try {
    const part = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(part), (character) => character.charCodeAt(0));
    const { tenant, sub } = JSON.parse(new TextDecoder().decode(bytes));
    return tenant && sub ? `${tenant} / ${sub}` : "Token set";
  } catch {
    return "Token set";
  }
}

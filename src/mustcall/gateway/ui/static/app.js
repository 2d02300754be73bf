// The frame: which view is shown, who may see it, keys, and what happens when the gateway is away.
import { get, post, Refused, remember } from "./api.js";
import { el, fill, toast } from "./dom.js";
import { list } from "./list.js";
import { start } from "./start.js";
import { turn } from "./turn.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const status = document.getElementById("status");
const VIEWS = [["/ui", "Overview"], ["/ui/turns", "Turns"]];
let session = null;
let view = null;

/** What a view may use: a signal that ends with it, repeated work, keys. */
class Context {
  constructor(name, query) {
    this.name = name;
    this.query = query;
    this.timers = [];
    this.bound = {};
    this.aborter = new AbortController();
    this.ended = false;
  }
  get signal() { return this.aborter.signal; }
  /** End what runs and return the signal of what comes next; of a view that has ended nothing does. */
  restart() {
    this.aborter.abort();
    if (!this.ended) this.aborter = new AbortController();
    return this.signal;
  }
  keys(bound) { Object.assign(this.bound, bound); }
  every(wait, work) { this.timers.push(setInterval(() => { if (!document.hidden) this.steady(work, this.signal, false); }, wait)); }
  end() { this.ended = true; this.aborter.abort(); this.timers.forEach(clearInterval); }
  running(count) { if (view === this) told(true, count); }

  /** Do work; try again while the gateway is away. Undefined once the view has ended. */
  async steady(work, signal, repeat = true) {
    for (;;) {
      try {
        const found = await work();
        return signal.aborted ? undefined : found;
      } catch (error) {
        if (signal.aborted) return undefined;
        if (error.status === 401) { begin(); return undefined; }
        told(false, 0);
        if (!repeat) return undefined;
        await new Promise((go) => setTimeout(go, 2000));
      }
    }
  }
}

function told(there, count) {
  fill(status, el("span", { title: "Requests being worked on" }, el("span", { class: there ? "dot" : "dot off" }),
    there ? `${count} running` : "gateway away"),
    el("button", { type: "button", class: "plain hide", "aria-label": "Keys", onclick: help }, el("kbd", {}, "?")),
    session?.asks_for_key && session.admitted && el("button", { type: "button", class: "plain", onclick: leave }, "Log out"));
}

async function show() {
  view?.end();
  const path = location.pathname.replace(/\/$/, "");
  const name = decoded(path.match(/^\/ui\/turns\/([^/]+)$/)?.[1] ?? "");
  const context = view = new Context(name, new URLSearchParams(location.search));
  const open = name ? turn : path === "/ui/turns" ? list : path === "/ui" ? start : null;
  fill(nav, VIEWS.map(([href, label]) =>
    el("a", { href, "aria-current": href === path ? "page" : name && href === "/ui/turns" ? "true" : null }, label)));
  document.title = `${name || (VIEWS.find(([href]) => href === path)?.[1] ?? "Not found")} · mustcall`;
  if (open === null) {
    fill(main, empty("There is no such view", el("a", { href: "/ui" }, "To the overview")));
    return;
  }
  try {
    await open(main, context);
    if (view === context) window.scrollTo(0, 0);
  } catch (error) {
    if (context.signal.aborted && view !== context) return;
    if (error instanceof Refused && error.status === 401) { begin(); return; }
    if (!(error instanceof Refused)) throw error;
    told(error.status !== 0, 0);
    fill(main, el("p", { class: "fault", role: "alert" }, error.message),
      el("button", { type: "button", onclick: show }, "Try again"));
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

const empty = (title, ...rest) => el("div", { class: "panel empty" }, el("strong", {}, title), rest);

function go(href) {
  history.pushState(null, "", href);
  show();
  main.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/ui']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  if (session?.admitted) go(link.getAttribute("href"));
});
window.addEventListener("popstate", show);

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || !session?.admitted || document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const bound = { o: () => go("/ui"), t: () => go("/ui/turns"), "?": help, ...view?.bound };
  if (event.target.closest("pre") && event.key.startsWith("Arrow")) return;
  const work = bound[event.key];
  if (work) {
    event.preventDefault();
    work();
  }
});

function help() {
  const keys = [["o", "Overview"], ["t", "Turns"], ["j k", "Next and previous turn"], ["Enter", "Open the turn"], ["/", "Filter by model"], ["Esc", "Back"]];
  const box = el("dialog", { "aria-label": "Keys", onclose: () => box.remove() }, el("h2", {}, "Keys"),
    el("div", { class: "keys" }, keys.map(([key, does]) => [el("span", {}, key.split(" ").map((one) => el("kbd", {}, one))), el("span", {}, does)])),
    el("form", { method: "dialog" }, el("button", { autofocus: true, onclick: (event) => { event.preventDefault(); box.close(); } }, "Close")));
  document.body.append(box);
  box.showModal();
}

function login(problem) {
  view?.end();
  view = null;
  fill(nav);
  fill(status);
  document.title = "mustcall";
  if (session.refusal) {
    fill(main, el("div", { class: "panel login" }, empty("The page is locked", el("p", {}, session.refusal))));
    return;
  }
  const field = el("input", { id: "key", type: "password", autocomplete: "current-password", required: true, autofocus: true });
  const form = el("form", { onsubmit: enter }, el("label", { for: "key" }, "A key of this gateway"), field,
    problem && el("p", { class: "fault", role: "alert" }, problem), el("button", { class: "main" }, "Open"));
  fill(main, el("div", { class: "panel login" }, el("header", {}, el("h1", {}, "mustcall")), el("div", { class: "body" }, form)));
  field.focus();
  async function enter(event) {
    event.preventDefault();
    try {
      session = remember(await post("login", { key: field.value }));
      told(true, 0);
      show();
    } catch (error) {
      login(error.message);
    }
  }
}

async function leave() {
  session = remember(await post("logout"));
  toast("Logged out");
  login();
}

async function begin() {
  try {
    session = remember(await get("session"));
  } catch (error) {
    fill(main, el("p", { class: "fault", role: "alert" }, error.message), el("button", { type: "button", onclick: begin }, "Try again"));
    return;
  }
  if (!session.admitted) { login(); return; }
  told(true, 0);
  show();
}

begin();

// The list of turns: live, filtered, paged. A page is 50 turns; older ones come when they are asked for.
import { get } from "./api.js";
import { el, fill, visible } from "./dom.js";
import { chip, clock, dollars, ending, OUTCOMES, seconds, steps, tokens, VERDICTS } from "./words.js";

const FILTERS = ["outcome", "verdict", "model", "client", "session", "upstream"];
const COLUMNS = ["time", "outcome", "attempts", "model", "client", "session", "tokens", "cost", "took"];
const WIDE = new Set(["client", "session", "cost"]);
const PAGE = 50;

export async function list(main, context) {
  const wanted = new Map(FILTERS.map((name) => [name, context.query.get(name) ?? ""]));
  const rows = el("tbody");
  const empty = el("div", { class: "empty", hidden: true });
  const more = el("button", { type: "button", onclick: () => older() }, "Show older turns");
  const foot = el("div", { class: "more", hidden: true }, more);
  const shown = new Map();
  const known = { model: new Set(), client: new Set(), session: new Set(), upstream: new Set() };
  let next = null;
  let mark = "";

  const pick = (name, label, words) => el("label", {}, label, el("select", { name, onchange: changed },
    el("option", { value: "" }, "all"),
    Object.keys(words).map((word) => el("option", { value: word, selected: wanted.get(name) === word }, word))));
  let typing;
  const type = (name, label, hint) => {
    const input = el("input", { name, type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", onchange: changed,
      list: `known-${name}`, oninput: (event) => { clearTimeout(typing); typing = setTimeout(() => changed(event), 350); } });
    input.value = wanted.get(name);
    return el("label", {}, label, input, el("datalist", { id: `known-${name}` }));
  };
  const form = el("form", { class: "filters", role: "search", "aria-label": "Filter turns", onsubmit: (event) => event.preventDefault() },
    pick("outcome", "Outcome", OUTCOMES), pick("verdict", "Verdict", VERDICTS), type("model", "Model", "exact name"),
    type("client", "Client", "exact name"), type("session", "Session", "id or name"), type("upstream", "Upstream", "exact name"));

  fill(main, el("div", { class: "head" }, el("h1", {}, "Turns"), el("span", { class: "grow" }),
    el("button", { type: "button", class: "plain", onclick: clear }, "Clear filters")), form,
    el("section", { class: "panel list stack", "aria-label": "Turns" }, el("table", {},
      el("colgroup", {}, COLUMNS.map((name) => el("col", { class: WIDE.has(name) ? `${name} wide` : name }))),
      el("thead", {}, el("tr", {}, head("Time"), head("Outcome"), head("Attempts"), head("Model"), head("Client", "wide"),
        head("Session", "wide"), head("Tokens", "right"), head("Cost", "right wide"), head("Took", "right"))), rows), empty, foot));

  function changed(event) {
    const { name, value } = event.target;
    if (wanted.get(name) === value.trim()) return;
    wanted.set(name, value.trim());
    again();
  }

  function learn(turn) {
    for (const name of Object.keys(known)) {
      if (!turn[name] || known[name].has(turn[name]) || known[name].size > 200) continue;
      known[name].add(turn[name]);
      document.getElementById(`known-${name}`)?.append(el("option", { value: turn[name] }));
    }
  }

  function clear() {
    for (const name of FILTERS) wanted.set(name, "");
    form.reset();
    for (const field of form.elements) if (field.name) field.value = "";
    again();
  }

  function asked(extra = {}) {
    const query = new URLSearchParams([...wanted].filter(([, value]) => value));
    for (const [name, value] of Object.entries({ limit: PAGE, ...extra })) query.set(name, value);
    return `turns?${query}`;
  }

  async function again() {
    if (context.ended) return; // a word that was still being typed
    const query = new URLSearchParams([...wanted].filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? `/ui/turns?${query}` : "/ui/turns");
    const signal = context.restart();
    if (await context.steady(() => first(signal), signal)) follow(signal);
  }

  /** Show the first page; true once it is there. */
  async function first(signal) {
    const told = await get(asked(), signal);
    shown.clear();
    rows.replaceChildren();
    put(told, false);
    next = told.next;
    foot.hidden = next === null;
    return true;
  }

  /** Put turns before those that are shown, where they are not among them. */
  function put(told, fresh) {
    mark = told.mark;
    context.running(told.running);
    for (const turn of [...told.turns].reverse()) {
      if (shown.has(turn.id)) continue;
      const row = line(turn);
      learn(turn);
      if (fresh) row.classList.add("fresh");
      // Turns end in another order than they are written in: find the place by time.
      let before = rows.firstElementChild;
      while (before && Number(before.dataset.at) > turn.at) before = before.nextElementSibling;
      rows.insertBefore(row, before);
      shown.set(turn.id, row);
    }
    const filtered = [...wanted.values()].some(Boolean);
    empty.hidden = shown.size > 0;
    fill(empty, el("strong", {}, filtered ? "No turn fits these filters" : "No turns yet"),
      filtered ? "Clear a filter, or wait: new turns appear by themselves." : "Requests to this gateway appear here as they end.");
  }

  async function follow(signal) {
    while (!signal.aborted) {
      await awake();
      const told = await context.steady(() => get(asked({ have: mark }), signal), signal);
      if (told === undefined) return;
      const known = told.turns.some((turn) => shown.has(turn.id));
      if (told.turns.length === PAGE && !known && shown.size) await context.steady(() => first(signal), signal); // more came than a page holds
      else put(told, true);
    }
  }

  async function older() {
    more.disabled = true;
    const signal = context.signal;
    try {
      const told = await context.steady(() => get(asked({ before: next }), signal), signal, false);
      if (told === undefined) return;
      const focus = told.turns[0]?.id;
      for (const turn of told.turns) {
        if (shown.has(turn.id)) continue;
        const row = line(turn);
        rows.append(row);
        shown.set(turn.id, row);
      }
      next = told.next;
      foot.hidden = next === null;
      shown.get(focus)?.querySelector("a").focus({ preventScroll: true });
    } finally {
      more.disabled = false;
    }
  }

  context.keys({
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    "/": () => form.elements.model.focus(),
  });
  function step(by) {
    const links = [...rows.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
  }

  await first(context.signal);
  follow(context.signal);
}

/** Wait until somebody can see the page. */
const awake = () => new Promise((go) => {
  if (document.hidden) document.addEventListener("visibilitychange", go, { once: true });
  else go();
});

const head = (name, kind) => el("th", { class: kind, scope: "col" }, name);

function line(turn) {
  const verdicts = turn.attempts.map((attempt) => attempt.verdict ?? attempt.error ?? "none");
  const outcome = ending(turn);
  const row = el("tr", { "data-id": turn.id },
    el("td", { class: "num" }, el("a", { href: `/ui/turns/${encodeURIComponent(turn.id)}`, "aria-label":
      `${outcome}, ${turn.model}, ${verdicts.join(", then ")}` }, clock(turn.at))),
    el("td", {}, chip(outcome)),
    el("td", { class: "full" }, el("span", { class: "chain" }, steps(verdicts),
      turn.mended && el("span", { class: "chip mend", title: turn.adaptations.join(", ") }, "repaired"))),
    el("td", {}, el("span", { class: "cut", title: turn.model }, visible(turn.model || "no name"))),
    el("td", { class: "wide" }, el("span", { class: "cut sub", title: turn.client }, visible(turn.client || "–"))),
    el("td", { class: "wide" }, el("span", { class: "cut sub mono", title: turn.session }, visible(turn.session.slice(0, 8) || "–"))),
    el("td", { class: "right sub spare" }, tokens(turn)),
    el("td", { class: "right sub wide" }, dollars(turn.cost_usd)),
    el("td", { class: "right" }, seconds(turn.seconds)));
  row.dataset.at = turn.at;
  return row;
}

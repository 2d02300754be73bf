// One turn: its attempts on a time line, what each sent and got back, what the caller got, and ways to take it along.
import { get, post } from "./api.js";
import { choice, copy, el, fill, pre, toast, visible } from "./dom.js";
import { compare, shorten } from "./diff.js";
import { chip, dollars, ending, kind, moment, rate, seconds, steps, VERDICTS, whole } from "./words.js";

export async function turn(main, context) {
  const told = await get(`turns/${encodeURIComponent(context.name)}`, context.signal);
  fill(main, head(told), facts(told), lanes(told), replies(told), requests(told), taking(told), again(told));
  context.keys({ Escape: () => history.back() });
}

function panel(title, note, ...children) {
  return el("section", { class: "panel" }, el("header", {}, el("h2", {}, title), note && el("span", { class: "sub" }, note)), children);
}

const NOT_KEPT = "Contents are not kept. [ledger] contents = \"redacted\" (or \"full\") keeps those of new turns.";
const notKept = (why) => el("div", { class: "body" }, el("p", { class: "note" }, why ?? NOT_KEPT));

function head(told) {
  return el("div", { class: "head" },
    el("h1", {}, visible(told.model || "no model")), chip(ending(told)),
    told.mended && el("span", { class: "chip mend" }, "repaired"), told.error && el("span", { class: "chip bad" }, told.error), el("span", { class: "grow" }),
    el("button", { type: "button", class: "plain mono", title: "Copy the id of this turn", onclick: () => copy(told.id, "the id") }, told.id));
}

function facts(told) {
  const attempts = told.attempts.length;
  const calls = told.attempts.reduce((sum, attempt) => sum + attempt.sends, 0);
  const rows = [
    ["When", moment(told.at)],
    ["Took", seconds(told.seconds)],
    ["Attempts", calls > attempts ? `${attempts} (${calls} upstream calls)` : `${attempts}`],
    ["Tokens", `${whole(told.input_tokens)} in, ${whole(told.output_tokens)} out`],
    ["Cost", told.cost_usd || !told.estimated ? dollars(told.cost_usd) + (told.estimated ? " at least" : "") : "price not known"],
    ["Upstream", told.upstream],
    ["Wire", `${told.wire}, ${told.protocol || "passed through"}`],
    ["Demanded call", { none: "none", met: "made", unmet: "not made", dropped: "dropped" }[told.force] ?? told.force],
    ["Status", told.status || "none, the client left"],
    ["Client", told.client || "not named"],
    ["Session", told.session ? el("a", { class: "mono", href: `/ui/turns?session=${encodeURIComponent(told.session)}` }, told.session.slice(0, 12)) : "none"],
  ];
  return el("section", { class: "panel" }, el("div", { class: "body pad-top" },
    el("dl", { class: "facts" }, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof value === "object" ? value : visible(value)))),
      told.adaptations.length ? el("div", { class: "all" }, el("dt", {}, "Changed on the way"), el("dd", { class: "chain" },
        told.adaptations.map((entry) => el("span", { class: "chip" }, visible(entry))))) : null)));
}

function lanes(told) {
  if (!told.attempts.length) return panel("Attempts", null, el("div", { class: "empty" }, el("strong", {}, told.ended === "gone" ? "The client left before a reply" : "Passed through"), "No reply was judged."));
  const end = Math.max(told.seconds, ...told.attempts.map((attempt) => attempt.begun + attempt.seconds), 0.001);
  return panel("Attempts", "on the time of the turn", el("div", { class: "body" }, el("div", { class: "lanes" }, told.attempts.map((attempt) => {
    const word = attempt.verdict ?? attempt.error ?? "none";
    const bar = el("i", { class: kind(word) });
    bar.style.left = `${(attempt.begun / end) * 100}%`;
    bar.style.width = `${(attempt.seconds / end) * 100}%`;
    const why = [VERDICTS[attempt.verdict], attempt.tool && !attempt.problem.startsWith(attempt.tool) ? `tool ${attempt.tool}` : "", attempt.problem, attempt.error].filter(Boolean).join(". ");
    return el("div", { class: "lane" },
      el("div", { class: "chain" }, el("span", { class: "no" }, attempt.number), el("span", { class: "sub" }, attempt.rung), chip(word),
        attempt.remedy && el("span", { class: "to" }, `→ ${attempt.remedy}`)),
      el("div", { class: "where", role: "img", "aria-label": `from ${seconds(attempt.begun)} for ${seconds(attempt.seconds)}` }, bar),
      el("div", { class: "sub num right" }, `${seconds(attempt.seconds)}, ${whole(attempt.input_tokens)} + ${whole(attempt.output_tokens)}`),
      el("div", { class: "why" }, visible(why)));
  })), el("div", { class: "scale num" }, el("span", {}, "0"), el("span", {}, seconds(end)))));
}

const KINDS = ["text", "reasoning", "refusal", "other"];

function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function part(held, mark) {
  const name = "call" in held ? "call" : KINDS.find((word) => word in held) ?? "other";
  const body = name === "call" ? pretty(held.arguments) : held[name];
  const words = { repaired: "repaired", dropped: "not delivered" };
  return el("div", { class: `part ${mark}` }, el("header", {}, name, name === "call" && el("code", {}, visible(held.call)),
    mark && el("span", { class: `chip ${mark === "repaired" ? "mend" : ""}` }, words[mark])), pre(body));
}

function parts(reply, other, mark) {
  if (!reply) return el("p", { class: "note" }, "Nothing that could be read as a reply.");
  const known = other?.parts ?? null;
  return [reply.parts.map((held) => part(held, known && !known.some((one) => same(one, held)) ? mark : "")),
    el("p", { class: "sub" }, `finish: ${reply.finish}`)];
}

function replies(told) {
  if (!told.attempts.length) return null;
  if (!told.attempts.some((attempt) => attempt.reply || attempt.raw) && !told.reply) return panel("Replies", null, notKept(told.no_reply));
  const last = told.attempts.length - 1;
  let chosen = last;
  let view = "read";
  const nothing = () => el("p", { class: "note" }, told.no_reply ?? "Nothing was kept.");
  const left = el("div");
  const right = el("div");
  function draw() {
    const attempt = told.attempts[chosen];
    fill(left, el("h3", {}, `What the model sent, attempt ${attempt.number}`), view === "raw"
      ? (attempt.raw ? pre(attempt.raw) : el("p", { class: "note" }, "Nothing came, or it was not kept."))
      : parts(attempt.reply, told.delivered ?? { parts: [] }, "dropped"));
    fill(right, el("h3", {}, "What the caller got"), view === "raw"
      ? (told.reply ? pre(told.reply) : nothing())
      : told.delivered ? parts(told.delivered, told.attempts[last].reply, "repaired") : told.reply ? pre(pretty(told.reply)) : nothing());
  }
  draw();
  return panel("Replies", null, el("div", { class: "body" }, el("div", { class: "row" },
    told.attempts.length > 1 && choice("Attempt", told.attempts.map((attempt, index) => [index, `Attempt ${attempt.number}`]), last,
      (key) => { chosen = key; draw(); }),
    choice("View", [["read", "As read"], ["raw", "Raw stream"]], view, (key) => { view = key; draw(); })),
    el("div", { class: "pair" }, left, right)));
}

function requests(told) {
  const kept = told.attempts.filter((attempt) => attempt.request);
  if (!kept.length && !told.request) return told.attempts.length ? panel("Requests", null, notKept()) : null;
  const texts = [["The caller's request", told.request], ...kept.map((attempt) => [`attempt ${attempt.number}`, attempt.request])]
    .filter(([, text]) => text).map(([name, text]) => [name, pretty(text).split("\n")]);
  const names = texts.map(([name], index) => [index, index === 0 ? "Caller" : name[0].toUpperCase() + name.slice(1)]);
  const box = el("div");
  const show = (key) => {
    const [, lines] = texts[key];
    if (key === 0) { fill(box, el("p", { class: "sub" }, "As the caller sent it."), pre(lines.join("\n"))); return; }
    const [before, old] = texts[key - 1];
    const found = compare(old, lines);
    const changed = found.filter(([sign]) => sign !== " ").length;
    fill(box, el("p", { class: "sub" }, changed ? `What changed against ${key - 1 === 0 ? "the caller's request" : before}: ${whole(changed)} lines.`
      : `The same as ${key - 1 === 0 ? "the caller's request" : before}.`),
      changed ? el("pre", { class: "diff", tabindex: "0" }, shorten(found).map(([sign, line]) => sign === "…"
        ? el("div", { class: "gap" }, `${whole(line)} lines the same`)
        : el("div", { class: { "+": "add", "-": "del" }[sign] }, visible(line)))) : null);
  };
  const first = texts.length - 1;
  show(first);
  return panel("Requests", "each against the one before", el("div", { class: "body" }, choice("Request", names, first, show), box));
}

function taking(told) {
  const forms = Object.keys(told.copies ?? {});
  if (!forms.length) return panel("Take it along", null, notKept());
  const names = { curl: "curl", python: "Python", pytest: "pytest" };
  const box = el("div");
  // Behind a proxy that speaks TLS the gateway does not know the scheme that its callers use.
  const text = (key) => told.copies[key].replaceAll(["http", `//${location.host}`].join(":"), location.origin);
  const show = (key) => fill(box, pre(text(key)),
    el("button", { type: "button", class: "copy", onclick: () => copy(text(key), names[key]) }, `Copy ${names[key]}`));
  show("curl");
  return panel("Take it along", "the caller's request, and a test with the replies that came", el("div", { class: "body" },
    choice("Form", Object.entries(names).filter(([key]) => forms.includes(key)), "curl", show), box));
}

function again(told) {
  if (!told.replay) return null;
  const counts = Object.keys(told.replay).map(Number).sort((one, other) => one - other);
  const takes = el("span", { class: "sub" });
  const times = el("select", { "aria-label": "How often each way", onchange: announce },
    counts.map((count) => el("option", { value: count, selected: count === 3 }, `${count} ×`)));
  const box = el("div", { "aria-live": "polite", class: "found" });
  const button = el("button", { type: "button", class: "main", onclick: run }, "Replay");
  function announce() { fill(takes, told.replay[times.value]); }
  announce();
  async function run() {
    button.disabled = true;
    fill(box, el("p", { class: "quiet" }, "Sending the request bare and through mustcall …"));
    try {
      fill(box, found(await post(`turns/${encodeURIComponent(told.id)}/replay`, { times: Number(times.value) })));
      toast("Replay finished");
    } catch (error) {
      fill(box, el("p", { class: "fault", role: "alert" }, error.message));
    }
    button.disabled = false;
  }
  return panel("Replay", "the caller's request again, bare and through mustcall", el("div", { class: "body" },
    el("div", { class: "row" }, times, button, takes), box));
}

function found(told) {
  const sequence = ([words, count]) => el("div", { class: "chain" }, el("span", { class: "sub num" }, `${count} ×`), steps(words));
  return [
    el("div", { class: "stack" }, el("table", {}, el("thead", {}, el("tr", {}, ["", "Served", "Verdicts"].map((name) => el("th", {}, name)),
      ["Calls", "Tokens", "Cost"].map((name) => el("th", { class: "right" }, name)))),
    el("tbody", {}, told.arms.map((arm) => el("tr", {}, el("td", {}, arm.name === "bare" ? "bare" : "through mustcall"),
      el("td", { class: "full" }, rate(arm.ok)), el("td", { class: "full" }, arm.verdicts.map(sequence)),
      el("td", { class: "right", "data-name": "Calls" }, whole(arm.calls)), el("td", { class: "right", "data-name": "Tokens" }, whole(arm.tokens)),
      el("td", { class: "right", "data-name": "Cost" }, dollars(arm.cost_usd))))))),
    told.recovered && el("div", { class: "row" }, el("span", {}, "Recovered, of the turns that began badly"), rate(told.recovered)),
    told.differs.length ? el("ul", { class: "small" }, told.differs.map((line) => el("li", {}, visible(line)))) : null,
    told.redacted && el("p", { class: "note" }, "The request was kept redacted; masked words were sent as they stand."),
  ];
}

// The start page: rates per model, what was repaired, what was learnt, breakers, budgets.
import { get } from "./api.js";
import { choice, el, fill, visible } from "./dom.js";
import { ago, bar, chip, dollars, rate, seconds, whole } from "./words.js";

const SPANS = [["1", "Hour"], ["24", "Day"], ["168", "Week"], ["0", "All"]];

export async function start(main, context) {
  let hours = "24";
  const body = el("div");
  fill(main,
    el("div", { class: "head" }, el("h1", {}, "Overview"), el("span", { class: "grow" }),
      choice("Time covered", SPANS, hours, (chosen) => { hours = chosen; context.steady(draw, context.signal, false); })),
    body);

  async function draw() {
    const told = await get(`overview?hours=${hours}`, context.signal);
    context.running(told.running);
    fill(body, models(told.models, told.more_models), el("div", { class: "pair" }, repairs(told.repairs), changes(told.repairs)),
      learnt(told.learnt), el("div", { class: "pair" }, breakers(told.breakers), budget(told.budget)));
  }
  await draw();
  context.every(5000, draw);
}

function panel(title, note, ...children) {
  return el("section", { class: "panel" }, el("header", {}, el("h2", {}, title), note && el("span", { class: "sub" }, note)), children);
}

const empty = (title, ...rest) => el("div", { class: "empty" }, el("strong", {}, title), rest);

function models(rows, more) {
  const note = "lines on the bars are 95 % intervals (Wilson)";
  if (!rows.length) {
    const line = `curl ${location.origin}/v1/chat/completions -H 'content-type: application/json' \\\n`
      + `  -d '{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'`;
    return panel("Models", null, empty("No turns in this time",
      el("div", {}, "Point a client at this gateway, or send a first request:"), el("pre", { tabindex: "0" }, line)));
  }
  const head = el("tr", {}, el("th", {}, "Model"), el("th", { class: "right" }, "Turns"),
    el("th", { title: "Turns whose first reply was already what was asked for" }, "Good at first"),
    el("th", { title: "Turns that ended with valid calls or a clean answer" }, "Delivered"),
    el("th", { title: "Of the turns that began badly, those that ended well" }, "Repaired"),
    el("th", { class: "right" }, "Time"), el("th", { class: "right" }, "Tokens"), el("th", { class: "right" }, "Cost"));
  const lines = rows.map((row) => el("tr", {},
    el("td", { class: "full" },
      el("a", { class: "cut", href: `/ui/turns?model=${encodeURIComponent(row.model)}` }, visible(row.model || "no name")),
      el("span", { class: "sub" }, visible(row.upstream))),
    el("td", { class: "right full", "data-name": "Turns" }, whole(row.turns)),
    el("td", { class: "full", "data-name": "Good at first" }, rate(row.first)),
    el("td", { class: "full", "data-name": "Delivered" }, rate(row.delivered)),
    el("td", { class: "full", "data-name": "Repaired" }, rate(row.repaired)),
    el("td", { class: "right", "data-name": "Time" }, seconds(row.seconds)),
    el("td", { class: "right", "data-name": "Tokens", title: `${whole(row.input_tokens)} in, ${whole(row.output_tokens)} out` },
      whole(row.input_tokens + row.output_tokens)),
    el("td", { class: "right", "data-name": "Cost" }, dollars(row.cost_usd))));
  return panel("Models", note, el("div", { class: "stack" }, el("table", {}, el("thead", {}, head), el("tbody", {}, lines))),
    more > 0 && el("div", { class: "body" }, el("p", { class: "sub" }, `and ${whole(more)} more ${more === 1 ? "model" : "models"}`)));
}

function counts(rows, label) {
  const most = Math.max(...rows.map((row) => row.count));
  return el("div", { class: "body" }, rows.map((row) => el("div", { class: "count" }, label(row), bar(row.count / most), el("b", {}, whole(row.count)))));
}

function repairs(told) {
  const rows = told.attempts;
  return panel("Repaired most", "attempts, by what was wrong and what was done", rows.length
    ? counts(rows, (row) => el("span", { class: "chain" },
      el("a", { href: `/ui/turns?verdict=${row.verdict}` }, chip(row.verdict)), row.remedy && el("span", { class: "to" }, `→ ${row.remedy}`)))
    : empty("No attempt failed", "What came in another form and was read in place is counted under “Changed on the way”."));
}

function changes(told) {
  const rows = told.changes;
  return panel("Changed on the way", "turns, by kind of adaptation", rows.length
    ? counts(rows, (row) => el("span", { class: "mono" }, row.kind))
    : empty("Nothing was changed", "Requests and replies passed as they came."));
}

function learnt(rows) {
  if (!rows.length) return panel("Learnt", null, empty("Nothing learnt yet", "What refusals and replies teach about a model is listed here."));
  return panel("Learnt", "what turns taught about models", el("div", { class: "stack" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Model", "Fact", "Value", "Why"].map((name) => el("th", {}, name)), el("th", { class: "right" }, "When"))),
    el("tbody", {}, rows.map((row) => el("tr", {},
      el("td", { class: "full" }, el("span", { class: "cut" }, visible(row.model)), el("span", { class: "sub" }, visible(row.upstream))),
      el("td", { class: "mono" }, visible(row.field)),
      el("td", { class: "mono" }, visible(typeof row.value === "string" ? row.value : JSON.stringify(row.value))),
      el("td", { class: "full small" }, visible(row.note)),
      el("td", { class: "right full" }, row.expired ? "expired" : ago(Date.now() / 1000 - row.at))))))));
}

function breakers(rows) {
  if (!rows.length) return panel("Breakers", null, empty("No breaker has counted a failure"));
  return panel("Breakers", null, el("div", { class: "stack" }, el("table", {},
    el("thead", {}, el("tr", {}, ["Upstream", "State"].map((name) => el("th", {}, name)), el("th", { class: "right" }, "Failures"))),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("td", {}, visible(row.name)), el("td", {}, chip(row.state)),
      el("td", { class: "right full" }, `${row.failures}, ${ago(row.ago)}`)))))));
}

const UNITS = { cost_usd: dollars, seconds, tokens: whole, calls: whole, egress_bytes: whole, hosts: whole };

function budget(told) {
  if (!told) return panel("Budgets", null, empty("No budget is set", "Caps come from [budget] in mustcall.toml."));
  const caps = Object.entries(told.caps);
  const said = caps.length ? caps.map(([name, value]) => `${name} ${UNITS[name](value)}`).join(", ") : "no cap";
  if (!told.sessions.length) return panel("Budgets", `${said} (${told.mode})`, empty("No session has spent anything"));
  return panel("Budgets", `for each session: ${said} (${told.mode})`, el("div", { class: "body" },
    told.sessions.map((row) => {
      const used = caps.filter(([name]) => row[name] !== undefined).map(([name, value]) => row[name] / value);
      return el("div", { class: "count" },
        el("span", {}, el("a", { class: "mono", href: `/ui/turns?session=${row.session}` }, row.session.slice(0, 10)),
          el("span", { class: "sub" }, ` ${dollars(row.cost_usd)}, ${whole(row.tokens)} tokens, ${whole(row.calls)} calls`)),
        used.length ? bar(Math.min(1, Math.max(...used))) : el("span"), el("b", {}, used.length ? `${Math.round(Math.max(...used) * 100)} %` : ""));
    })));
}

// How numbers, times, verdicts and outcomes are shown.
import { el, visible } from "./dom.js";

const GOOD = new Set(["answered", "called", "calls", "answer", "closed"]);
const BAD = new Set(["failure", "rejected", "unavailable", "open"]);

/** What each verdict means. */
export const VERDICTS = {
  answered: "A clean answer",
  called: "Valid tool calls",
  text_call: "The call was written as text",
  phantom_call: "The reply said it calls a tool, but there was no call",
  force_missed: "A tool was demanded and not called",
  unknown_tool: "A tool was called that is not on offer",
  bad_arguments: "The arguments do not fit the tool's schema",
  bad_answer: "The answer does not fit the schema asked for",
  truncated: "Cut off before it was complete",
  empty: "Nothing was said",
  thinking_only: "Only reasoning, no answer",
  refused: "The model declined",
  filtered: "The provider's filter stopped it",
  looping: "The same call again and again",
  announced_only: "A call was announced, but not made",
  starved: "The server cut the prompt silently",
  rejected: "The upstream refused the request",
  tool_probe: "A probe for a tool that the upstream refuses; its reply is not judged",
  unavailable: "The upstream could not be reached or failed",
};
export const OUTCOMES = { calls: "Tool calls", answer: "An answer", failure: "A typed error", gone: "The client left before a reply", none: "Nothing was judged" };

export function kind(word) {
  if (GOOD.has(word)) return "good";
  if (BAD.has(word)) return "bad";
  return word && word in VERDICTS ? "mend" : "";
}

export function chip(word, title) {
  return el("span", { class: `chip ${kind(word)}`, title: title ?? VERDICTS[word] ?? OUTCOMES[word] }, word || "none");
}

/** What a turn ended with; one that was not judged by its status. */
export const ending = (turn) => (turn.ended === "none" ? `status ${turn.status}` : turn.ended);

/** Verdicts in order; the same one several times in a row is said once. */
export function steps(words) {
  const told = [];
  words.forEach((word) => {
    if (told.length && told.at(-1)[0] === word) told.at(-1)[1] += 1;
    else told.push([word, 1]);
  });
  return told.map(([word, count], index) => [
    index ? el("span", { class: "to" }, "→") : null,
    word in VERDICTS ? chip(word) : el("span", { class: "chip" }, visible(word)),
    count > 1 ? el("span", { class: "to num" }, `×${count}`) : null,
  ]);
}

export function seconds(value) {
  if (value >= 120) return `${Math.round(value / 60)} min`;
  if (value >= 10) return `${value.toFixed(1)} s`;
  return value >= 1 ? `${value.toFixed(2)} s` : `${Math.round(value * 1000)} ms`;
}

export const whole = (value) => Math.round(value).toLocaleString("en");

export function dollars(value) {
  if (!value) return "–";
  if (value < 0.0001) return "<$0.0001";
  return `$${value < 1 ? value.toFixed(4) : value.toFixed(2)}`;
}

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hour12: false });

export function clock(at) {
  const date = new Date(at * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return el("time", { datetime: date.toISOString(), title: full.format(date) },
    today ? time.format(date) : `${day.format(date)} ${time.format(date).slice(0, 5)}`);
}

export const moment = (at) => full.format(new Date(at * 1000));

export function ago(value) {
  if (value < 90) return `${Math.round(value)} s ago`;
  if (value < 5400) return `${Math.round(value / 60)} min ago`;
  return value < 129600 ? `${Math.round(value / 3600)} h ago` : `${Math.round(value / 86400)} days ago`;
}

export const tokens = (turn) => (turn.input_tokens || turn.output_tokens ? `${whole(turn.input_tokens)} + ${whole(turn.output_tokens)}` : "–");

const percent = (value) => `${(value * 100).toFixed(value === 0 || value === 1 ? 0 : 1)}\u202f%`;

/** A share as a bar with the 95 % interval of its rate. */
export function rate(share) {
  if (!share.of) return el("span", { class: "quiet" }, "–");
  const bar = el("i");
  bar.style.width = `${share.rate * 100}%`;
  const range = el("u");
  range.style.left = `${share.low * 100}%`;
  range.style.width = `${Math.max(0.5, (share.high - share.low) * 100)}%`;
  const said = `${share.hits} of ${share.of}; 95 % interval ${percent(share.low)} to ${percent(share.high)}`;
  return el("div", { class: "rate", title: said, role: "img", "aria-label": `${percent(share.rate)}: ${said}` },
    el("b", {}, percent(share.rate)), el("div", { class: "track" }, bar, range));
}

export function bar(part) {
  const inner = el("i");
  inner.style.width = `${part * 100}%`;
  return el("div", { class: "track" }, inner);
}

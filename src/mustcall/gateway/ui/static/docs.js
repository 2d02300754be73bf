// The API's description, drawn from /openapi.json: routes with their bodies, headers and errors, then every shape.
import { el, fill } from "./dom.js";

/** Return the type of a schema in a few words, with links to shapes. */
function typed(schema) {
  if (!schema || Object.keys(schema).length === 0) return ["anything"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [el("a", { href: `#shape-${name}` }, name)];
  }
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(" | ")];
  if ("const" in schema) return [JSON.stringify(schema.const)];
  if (schema.anyOf) return schema.anyOf.flatMap((one, index) => (index ? [" | ", ...typed(one)] : typed(one)));
  if (schema.type === "array") return ["list of ", ...typed(schema.items)];
  return [schema.type ?? "anything"];
}

/** Return text as nodes, with what stands in backquotes as code. */
function marked(text) {
  return String(text ?? "").split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

function table(head, rows) {
  if (rows.length === 0) return null;
  return el("table", { class: "fields" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))));
}

function contents(content) {
  return Object.entries(content ?? {}).flatMap(([type, said]) => [
    el("p", {}, el("code", {}, type), ": ", typed(said.schema),
      said["x-event-data"] ? [", the data of each event: ", typed(said["x-event-data"])] : null),
  ]);
}

function section(title, ...children) {
  const shown = children.flat(9).filter(Boolean);
  return shown.length ? [el("h3", {}, title), shown] : [];
}

function route(path, method, said) {
  const headers = (said.parameters ?? []).map((one) => [el("code", {}, one.name), one.in, marked(one.description)]);
  const answer = said.responses["200"];
  const told = Object.entries(answer.headers ?? {}).map(([name, one]) => [el("code", {}, name), marked(one.description)]);
  const failures = Object.entries(said.responses).filter(([status]) => status !== "200")
    .map(([status, one]) => [status, marked(one.description)]);
  return el("details", { class: "route", id: said.operationId },
    el("summary", {}, el("span", { class: `method ${method}` }, method), el("code", {}, path),
      el("span", { class: "quiet" }, said.summary)),
    el("div", { class: "body" },
      section("Request", contents(said.requestBody?.content), table(["Name", "In", "Meaning"], headers)),
      section("Reply", contents(answer.content), table(["Header", "Meaning"], told)),
      section("Errors", table(["Status", "Codes"], failures))));
}

function shape(name, schema) {
  const needed = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([field, one]) => [
    el("code", {}, field), typed(one), needed.has(field) ? "required" : "",
  ]);
  return el("details", { class: "route", id: `shape-${name}` },
    el("summary", {}, el("code", {}, name), el("span", { class: "quiet" }, marked(schema.description))),
    el("div", { class: "body" }, rows.length ? table(["Field", "Type", ""], rows) : el("p", {}, typed(schema))));
}

/** Open what the address names. */
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView({ block: "start" });
  }
}

const main = document.getElementById("main");
try {
  const said = await (await fetch("/openapi.json")).json();
  const routes = Object.entries(said.paths)
    .flatMap(([path, methods]) => Object.entries(methods).map(([method, one]) => route(path, method, one)));
  const shapes = Object.entries(said.components.schemas).sort(([a], [b]) => a.localeCompare(b))
    .map(([name, one]) => shape(name, one));
  fill(main,
    el("div", { class: "head" }, el("h1", {}, "API"), el("span", { class: "quiet" }, `version ${said.info.version}`)),
    el("p", {}, said.info.description),
    el("section", { class: "panel" }, el("header", {}, el("h2", {}, "Routes")), routes),
    el("section", { class: "panel" }, el("header", {}, el("h2", {}, "Shapes")), shapes));
  addEventListener("hashchange", open);
  open();
} catch (error) {
  fill(main, el("p", { class: "quiet" }, `The description could not be read: ${error.message}`));
}

// Elements and text. Contents of turns only ever become text nodes: nothing here, or anywhere, parses HTML.

/** Make an element: attributes by name, `on…` functions as listeners, children as nodes or text. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Control characters, direction marks and invisible ones: what a terminal or a browser would act on.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

// Letters rather than the pictures that Unicode has for them: many fonts lack those.
const NAMES = "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

function picture(sign) {
  const code = sign.charCodeAt(0);
  if (code < 0x20) return NAMES[code];
  if (code === 0x7f) return "DEL";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Return text as nodes, with what cannot be seen made visible. */
export function visible(text) {
  const found = document.createDocumentFragment();
  let done = 0;
  const said = String(text ?? "");
  for (const match of said.matchAll(ODD)) {
    if (match.index > done) found.append(said.slice(done, match.index));
    found.append(el("span", { class: "ctl" }, picture(match[0])));
    done = match.index + 1;
  }
  found.append(said.slice(done));
  return found;
}

export function pre(text, attributes = {}) {
  return el("pre", { tabindex: "0", ...attributes }, visible(text));
}

/** A row of buttons of which one is pressed; `names` are [key, name] pairs. */
export function choice(label, names, chosen, onchoose) {
  const buttons = names.map(([key, name]) =>
    el("button", { type: "button", "aria-pressed": String(key === chosen), onclick: () => choose(key) }, name));
  function choose(key) {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(names[index][0] === key)));
    onchoose(key);
  }
  return el("div", { class: "tabs", role: "group", "aria-label": label }, buttons);
}

let fading;
export function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => node.classList.remove("shown"), 2200);
}

/** Put text on the clipboard, also where the browser gives pages without TLS none. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { "aria-hidden": "true", class: "skip" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) {
      toast("The browser did not allow copying: select the text below");
      return;
    }
  }
  toast(`Copied ${what}`);
}

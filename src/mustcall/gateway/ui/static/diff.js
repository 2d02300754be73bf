// What changed between two texts, line by line (Myers). Bounded: texts that differ in too much are shown one after the other.

const MOST = 1500;
const AROUND = 2;

/** Return [sign, line] pairs: " " the same, "-" only before, "+" only after. */
export function compare(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start
    && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const old = before.slice(start, before.length - end);
  const young = after.slice(start, after.length - end);
  return [
    ...before.slice(0, start).map((line) => [" ", line]),
    ...middle(old, young),
    ...before.slice(before.length - end).map((line) => [" ", line]),
  ];
}

function middle(old, young) {
  const replaced = [...old.map((line) => ["-", line]), ...young.map((line) => ["+", line])];
  if (!old.length || !young.length) return replaced;
  const most = Math.min(old.length + young.length, MOST);
  const reach = new Map([[1, 0]]);
  const trail = [];
  for (let depth = 0; depth <= most; depth += 1) {
    trail.push(new Map(reach));
    for (let k = -depth; k <= depth; k += 2) {
      const down = k === -depth || (k !== depth && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? reach.get(k + 1) ?? 0 : (reach.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < old.length && y < young.length && old[x] === young[y]) { x += 1; y += 1; }
      reach.set(k, x);
      if (x >= old.length && y >= young.length) return walk(trail, old, young);
    }
  }
  return replaced;
}

function walk(trail, old, young) {
  const lines = [];
  let x = old.length;
  let y = young.length;
  for (let depth = trail.length - 1; depth >= 0; depth -= 1) {
    const reach = trail[depth];
    const k = x - y;
    const down = k === -depth || (k !== depth && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = depth === 0 ? 0 : reach.get(from) ?? 0;
    const fromY = depth === 0 ? 0 : fromX - from;
    while (x > fromX && y > fromY) { x -= 1; y -= 1; lines.push([" ", old[x]]); }
    if (depth > 0) {
      if (down) { y -= 1; lines.push(["+", young[y]]); } else { x -= 1; lines.push(["-", old[x]]); }
    }
  }
  return lines.reverse();
}

/** Leave out what is far from any change; a gap is ["…", count]. */
export function shorten(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(([sign], index) => {
    if (sign === " ") return;
    for (let at = Math.max(0, index - AROUND); at <= Math.min(lines.length - 1, index + AROUND); at += 1) near[at] = 1;
  });
  const told = [];
  let left = 0;
  lines.forEach((line, index) => {
    if (near[index]) {
      if (left) told.push(["…", left]);
      left = 0;
      told.push(line);
    } else left += 1;
  });
  if (left) told.push(["…", left]);
  return told;
}

"use strict";
// Every picture: the value under the pointer, or where the cursor keys lead, is shown in the line below it.
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), output = figure.querySelector("output");
  const held = figure.querySelector("script");
  const reader = { time: overTime, map: addressMap, marks: marks }[figure.dataset.kind];
  const { at, move, show } = reader(svg, held && JSON.parse(held.textContent));
  const place = event => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale, event.target];
  };
  const say = async where => { if (where !== null) output.textContent = await show(where); };
  let now = null;
  const point = event => { const where = at(...place(event)); if (where !== null) say(now = where); };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);  // a tap: before the focus, which would show the first value
  svg.addEventListener("focus", () => say(now = now ?? move(null, 0, 0, false)));
  svg.addEventListener("keydown", event => {
    const [x, y] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1],
                     Home: [-1e9, 0], End: [1e9, 0], PageUp: [-20, 0], PageDown: [20, 0] }[event.key] ?? [0, 0];
    if ((x || y) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      say(now = move(now, x, y, event.shiftKey));
    }
  });
}

// Paper has no way to open them.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(each => { each.open = true; }));

function clamp(value, count) { return Math.max(0, Math.min(count - 1, value)); }

// Index of the last of the sorted values that is not above the given one.
function lastUpTo(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] <= wanted) low = middle + 1; else high = middle; }
  return low - 1;
}

function overTime(svg, { left, right, edges, columns }) {
  const cursor = svg.querySelector(".cursor"), count = edges.length - 1, end = edges[count];
  return {
    at: (x) => x < left || x > right ? null : clamp(lastUpTo(edges, (x - left) / (right - left) * end), count),
    move: (now, x) => clamp((now ?? 0) + x, count),
    show(k) {
      const middle = (edges[k] + edges[k + 1]) / 2;
      cursor.style.visibility = "visible";
      cursor.setAttribute("transform", `translate(${left + middle / end * (right - left)} 0)`);
      const values = columns.map(({ name, unit, values }) => `${name} ${values[k].toLocaleString("en")}${unit}`);
      return `${edges[k].toLocaleString("en")} to ${edges[k + 1].toLocaleString("en")} s: ${values.join(" · ")}`;
    },
  };
}

// 0 is nobody, the largest number a prefix cache, others a request plus 1.
function owner(first, count) {
  if (first === 0) { return "free"; }
  if (first === 2 ** 32 - 1) { return "kept by the prefix cache"; }
  const request = `request ${(first - 1).toLocaleString("en")}`;
  return count > 1 ? `${count.toLocaleString("en")} owners, the first is ${request}` : request;
}

function addressMap(svg, { box: [left, top, width, height], steps, start_s, units, unit_slots, owners, num_owners }) {
  const cross = svg.querySelector(".cross"), across = steps.length, up = units.length;
  const cell = [width / across, height / up];
  let unpacked = null;
  async function unpack(packed) {
    if (!packed) { return null; }
    const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint32Array(await new Response(stream).arrayBuffer());
  }
  return {
    at(x, y) {
      const column = Math.floor((x - left) / cell[0]), row = Math.floor((top + height - y) / cell[1]);
      return column < 0 || row < 0 || column >= across || row >= up ? null : [column, row];
    },
    move(now, x, y, far) {
      const [column, row] = now ?? [0, 0], times = far ? 10 : 1;
      return [clamp(column + x * times, across), clamp(row + y * times, up)];
    },
    async show([column, row]) {
      const size = [Math.max(cell[0], 5), Math.max(cell[1], 5)];
      cross.style.visibility = "visible";
      cross.setAttribute("width", size[0]);
      cross.setAttribute("height", size[1]);
      cross.setAttribute("x", left + (column + .5) * cell[0] - size[0] / 2);
      cross.setAttribute("y", top + height - (row + .5) * cell[1] - size[1] / 2);
      const [first, count] = await (unpacked ??= Promise.all([unpack(owners), unpack(num_owners)]));
      const at = row * across + column, unit = units[row];
      const where = unit_slots === 1 ? `slot ${unit.toLocaleString("en")}`
        : `block ${unit.toLocaleString("en")} (slots from ${(unit * unit_slots).toLocaleString("en")})`;
      return `step ${steps[column].toLocaleString("en")} at ${start_s[column].toLocaleString("en")} s, ${where}: ` +
        owner(first[at], count?.[at] ?? 1);
    },
  };
}

function marks(svg) {
  const all = [...svg.querySelectorAll(".mark")], tips = all.map(mark => mark.querySelector("title").textContent);
  // The browser's own tooltip would say the same a second time.
  for (const mark of all) { mark.querySelector("title").remove(); }
  return {
    at(x, y, target) {
      const k = all.indexOf(target.closest(".mark"));
      return k < 0 ? null : k;
    },
    move: (now, x, y) => all.length ? clamp((now ?? 0) + (x || -y), all.length) : null,
    show(k) {
      all.forEach((mark, other) => mark.classList.toggle("on", other === k));
      return tips[k];
    },
  };
}

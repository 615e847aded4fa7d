// The fullest instant: what is live there, by size, by what recomputing it would cost, and by layer.

function peakSection(model, view) {
  const { peak } = model.profile,
    launch = model.peakLaunch();
  if (!launch || !peak.live.length) return;
  const program = model.programs[peak.program];
  const lead =
    `The fullest instant is kernel ${peak.launch + 1} of ${program.launches.length} of the program “${program.phase}”, ` +
    `${where(launch.op, launch.layer)} (${launch.part}). This is live while it runs, ${bytes(model.memory.peak_bytes)} in all.`;
  section(
    "peak",
    "Peak",
    lead,
    classBar(model),
    el("h3", null, "By layer"),
    treemap(model, peak.live),
    el("h3", null, "By tensor"),
    peakTable(model, peak, view),
  );
}

// The peak as one bar, with its classes named.
function classBar(model) {
  const { peak } = model.profile,
    sums = model.liveByClass(peak.program, peak.launch);
  const total = sums.reduce((a, b) => a + b, 0) || 1;
  const present = CLASSES.map((_, c) => c).filter((c) => sums[c] > 0);
  const pieces = present.map((c) =>
    el("span", { style: { flexGrow: sums[c] / total, background: `var(--class-${c})` } }),
  );
  const names = present.map((c) =>
    el(
      "li",
      null,
      swatch(c),
      `${CLASSES[c].name} `,
      el("span", { class: "size" }, `${bytes(sums[c])}, ${percent(sums[c] / total)}`),
    ),
  );
  return [el("div", { class: "shares", "aria-hidden": "true" }, pieces), el("ul", { class: "legend" }, names)];
}

function peakTable(model, peak, view) {
  const most = peak.live.reduce((m, e) => Math.max(m, e.bytes), 1);
  const longest = peak.live.reduce((m, e) => Math.max(m, e.recompute_ms ?? 0), 1e-9);
  const colour = (e) => `var(--class-${CLASS_OF.get(e.class)})`;
  const go = (e) => {
    const g = view.track.find(peak.program, peak.launch);
    if (g >= 0) view.go(g);
    if (e.buffer !== null && e.buffer !== undefined) view.wanted = { p: peak.program, i: e.buffer };
    view.changed();
    scrollToSection("arena");
  };
  return table(
    "Tensors that are live at the peak",
    [
      {
        title: "bytes",
        value: (e) => e.bytes,
        show: (e) => barred(e.bytes / most, colour(e), bytes(e.bytes)),
        numeric: true,
      },
      { title: "layer", value: (e) => e.layer, wide: true },
      { title: "op", value: (e) => e.op },
      {
        title: "class",
        value: (e) => CLASSES[CLASS_OF.get(e.class)].name,
        show: (e) => [swatch(CLASS_OF.get(e.class)), CLASSES[CLASS_OF.get(e.class)].name],
      },
      { title: "type", value: (e) => e.type },
      {
        title: "to recompute",
        value: (e) => e.recompute_ms ?? null,
        numeric: true,
        show: (e) => (hasCost(e) ? barred(e.recompute_ms / longest, "var(--muted)", time(e.recompute_ms)) : "–"),
      },
    ],
    peak.live,
    { onrow: go },
  );
}

function hasCost(e) {
  return e.recompute_ms !== null && e.recompute_ms !== undefined;
}

// How the names of what belongs to a parameter begin, by class.
const OF_PARAMETERS = { optimizer: "optimizer", accumulators: "accumulate" };

// A tree by the parts of layer paths.
function layerTree(entries) {
  const root = { name: "all", path: "", bytes: 0, children: new Map(), sums: new Float64Array(CLASSES.length) };
  for (const e of entries) {
    let node = root;
    const steps = pathOf(e);
    add(node, e);
    for (const step of steps) {
      if (!node.children.has(step)) {
        const path = node.path ? `${node.path}/${step}` : step;
        node.children.set(step, {
          name: step,
          path,
          bytes: 0,
          children: new Map(),
          sums: new Float64Array(CLASSES.length),
          parent: node,
        });
      }
      node = node.children.get(step);
      add(node, e);
    }
  }
  return root;
}

// What belongs to a parameter stands with its layer: slots of the optimizer, sums of gradients.
function pathOf(e) {
  const steps = (e.layer || e.op).split("/");
  if (steps.length > 1 && OF_PARAMETERS[e.class] === steps[0]) steps.shift();
  return e.op !== "state"
    ? [...steps, e.op]
    : e.class === "optimizer"
      ? steps
      : [...steps, CLASSES[CLASS_OF.get(e.class)].name];
}

function add(node, entry) {
  node.bytes += entry.bytes;
  node.sums[CLASS_OF.get(entry.class)] += entry.bytes;
}

function treemap(model, entries) {
  const root = layerTree(entries);
  const box = el("div", { class: "treemap" });
  const path = el("p", { class: "crumbs" });
  let node = root;
  const show = () => {
    if (!box.clientWidth) return;
    replace(path, crumbs(node, open));
    replace(box, tiles(node, box.clientWidth, box.clientHeight, open));
  };
  const open = (next, focus) => {
    node = next;
    show();
    if (focus) box.querySelector("button")?.focus();
  };
  new ResizeObserver(show).observe(box);
  theme.listeners.push(show);
  return el("div", null, path, box);
}

function crumbs(node, open) {
  const chain = [];
  for (let n = node; n; n = n.parent) chain.unshift(n);
  return chain
    .flatMap((n, i) => [
      i > 0 ? " / " : "",
      n === node ? el("strong", null, n.name) : button(n.name, () => open(n, true), { class: "link" }),
    ])
    .concat(` ${bytes(node.bytes)}`);
}

function tiles(node, width, height, open) {
  const children = [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
  return squarify(children, { x: 0, y: 0, w: width, h: height }).map(({ item, x, y, w, h }) =>
    tile(item, { x, y, w, h }, node, open),
  );
}

function tile(item, r, parent, open) {
  const place = { left: `${r.x}px`, top: `${r.y}px`, width: `${r.w}px`, height: `${r.h}px` };
  const label = `${item.name}, ${bytes(item.bytes)}, ${percent(item.bytes / parent.bytes)}`;
  const hasWords = r.w > 46 && r.h > 34;
  const head =
    hasWords &&
    el(
      "span",
      { class: "tile-head" },
      el("span", null, item.name),
      r.w > 116 && el("span", { class: "size" }, bytes(item.bytes)),
    );
  const inner = { x: 0, y: hasWords ? 22 : 0, w: r.w - 4, h: r.h - (hasWords ? 26 : 4) };
  const leaves = item.children.size ? blocks(item, inner, 5) : [block(item, inner)];
  const isLeaf = item.children.size === 0;
  return button([head, leaves], isLeaf ? null : () => open(item, true), {
    class: "tile",
    style: place,
    "aria-label": label,
    title: label,
    "aria-disabled": isLeaf,
  });
}

// What is inside of a tile, as coloured blocks; as deep as there is room.
function blocks(node, r, depth) {
  if (r.w < 3 || r.h < 3) return [];
  const children = [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
  return squarify(children, r).flatMap(({ item, ...place }) =>
    depth > 0 && item.children.size > 1 && place.w > 14 && place.h > 14
      ? blocks(item, place, depth - 1)
      : [block(item, place)],
  );
}

function block(item, { x, y, w, h }) {
  let c = 0;
  item.sums.forEach((sum, i) => {
    if (sum > item.sums[c]) c = i;
  });
  const style = {
    left: `${x}px`,
    top: `${y}px`,
    width: `${Math.max(1, w - 1)}px`,
    height: `${Math.max(1, h - 1)}px`,
    background: `var(--class-${c})`,
  };
  return el("span", { class: "block", "aria-hidden": "true", style });
}

// Rectangles of the given sizes, largest first, as square as they get (Bruls, Huizing, van Wijk).
function squarify(items, { x, y, w, h }) {
  const placed = [],
    open = items.filter((item) => item.bytes > 0);
  const scale = (w * h) / (open.reduce((sum, item) => sum + item.bytes, 0) || 1);
  let at = 0;
  while (at < open.length && w > 0.5 && h > 0.5) {
    const side = Math.min(w, h);
    let end = at + 1,
      sum = open[at].bytes * scale,
      worst = ratioOf(sum, sum, sum, side);
    while (end < open.length) {
      const area = open[end].bytes * scale,
        next = ratioOf(sum + area, open[at].bytes * scale, area, side);
      if (next > worst) break;
      worst = next;
      sum += area;
      end += 1;
    }
    const thick = sum / side;
    let along = 0;
    for (; at < end; at += 1) {
      const length = (open[at].bytes * scale) / thick;
      placed.push(
        w < h
          ? { item: open[at], x: x + along, y, w: length, h: thick }
          : { item: open[at], x, y: y + along, w: thick, h: length },
      );
      along += length;
    }
    if (w < h) {
      y += thick;
      h -= thick;
    } else {
      x += thick;
      w -= thick;
    }
  }
  return placed;
}

// The worst ratio of sides in a row of this area, with its largest and smallest rectangle.
function ratioOf(sum, largest, smallest, side) {
  return Math.max((side * side * largest) / (sum * sum), (sum * sum) / (side * side * smallest));
}

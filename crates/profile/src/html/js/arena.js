// The arena itself: offset against time, a rectangle for each tensor. Tens of thousands of them: they are painted once into a
// wider picture than is shown, and moving only copies from it.

const OVERSCAN = 0.75; // of the width, on each side
const LABEL_WIDTH = 64,
  LABEL_HEIGHT = 15,
  MOST_LABELS = 250;

function arenaSection(view) {
  const panel = el("div", { class: "inspector", "aria-live": "polite" });
  const items = { of: null };
  const chart = arenaChart(view, items);
  const band = stateBand(view);
  section(
    "arena",
    "Arena",
    "Where each tensor lies and how long: from bottom to top the offset in the memory of a step, from left to right the step.",
    el(
      "figure",
      null,
      chart.canvas,
      el(
        "figcaption",
        { class: "hint" },
        "Click a tensor to see what it is and what it is kept for. Keys: ↑ ↓ from tensor to tensor, Enter holds one.",
      ),
    ),
    el("h3", null, `States, ${bytes(view.model.memory.state_bytes)}: there all the time`),
    el("figure", null, band.canvas),
    panel,
    behind("The tensors as a table", () => bufferTable(view, chart)),
    behind("The states as a table", () => stateTable(view.model)),
  );
  const show = () => replace(panel, describeItem(view, view.selected ?? view.hovered));
  view.on(() => {
    takeWanted(view, items);
    chart.request();
    band.request();
    debounced(panel, show);
  });
  show();
  return chart;
}

function arenaChart(view, items) {
  const height = Math.max(300, Math.min(460, window.innerHeight * 0.5));
  const chart = new Chart(
    arenaLabel(view.model),
    height,
    (context, width, height_, colours) => {
      chart.plot = { left: LEFT, right: width - RIGHT, top: 8, bottom: height_ - 26 };
      if (items.of !== view.track) takeTrack(chart, view, items);
      drawArena(context, chart, view, items, colours);
    },
    { tabindex: "0", role: "application", "aria-roledescription": "chart" },
  );
  chart.items = items;
  const find = (point, x) => itemAt(chart, view, items, x, point.y);
  attach(chart, view, {
    hover: (point, x) => {
      view.hovered = find(point, x);
      view.setCursor(view.track.at(view.mode, x));
    },
    click: (point, x) => select(view, find(point, x)),
    key: {
      ArrowUp: () => stepItem(view, items, 1),
      ArrowDown: () => stepItem(view, items, -1),
      Enter: () => select(view, view.selected ? null : view.hovered),
      Escape: () => select(view, null),
    },
  });
  return chart;
}

// Another track: its rectangles, and of those at the peak the largest to begin with.
function takeTrack(chart, view, items) {
  Object.assign(items, { of: view.track, ...layItems(view.track) });
  chart.stale = true;
  const live = items.what.filter(
    (item, i) => item.kind === "buffer" && items.first[i] <= view.cursor && items.last[i] >= view.cursor,
  );
  view.hovered = live.reduce(
    (best, item) => (best && items.size[best.index] >= items.size[item.index] ? best : item),
    null,
  );
  requestAnimationFrame(() => view.changed());
}

function arenaLabel(model) {
  const tensors = model.programs.reduce((n, p) => n + p.buffers.length, 0);
  return `The arena: ${count(tensors, "tensor")} in ${bytes(model.memory.transient_bytes)} by offset and time.`;
}

// What another part of the page wants to be shown: a buffer of a program.
function takeWanted(view, items) {
  const wanted = view.wanted;
  view.wanted = null;
  if (!wanted || !items.what) return;
  const found = items.what.find((item) => item.kind === "buffer" && item.p === wanted.p && item.i === wanted.i);
  if (found) view.selected = found;
}

function select(view, item) {
  view.selected = item;
  view.changed();
}

// Every rectangle of a track: its launches, its place, its class, and what it stands for.
function layItems(track) {
  const first = [],
    last = [],
    offset = [],
    size = [],
    classes = [],
    what = [];
  const put = (a, b, at, bytes_, c, item) => {
    item.index = first.length;
    first.push(a);
    last.push(b);
    offset.push(at);
    size.push(bytes_);
    classes.push(c);
    what.push(item);
  };
  for (const span of track.edges.position.spans.filter((s) => !s.run.skipped)) {
    const p = span.run.p,
      program = track.model.programs[p];
    program.buffers.forEach((b, i) =>
      put(span.first + b.first, span.first + b.end - 1, b.offset, b.bytes, CLASS_OF.get(b.class), {
        kind: "buffer",
        p,
        i,
        span,
      }),
    );
    program.launches.forEach(
      (l, n) =>
        l.scratch_bytes &&
        put(span.first + n, span.first + n, l.scratch_offset, l.scratch_bytes, SCRATCH, {
          kind: "scratch",
          p,
          n,
          span,
        }),
    );
    if (program.accumulator_bytes > 0) {
      track.model
        .accumulators()
        .forEach((state) =>
          put(span.first, span.last - 1, state.offset, state.bytes, ACCUMULATORS, { kind: "state", state }),
        );
    }
  }
  return {
    first: Int32Array.from(first),
    last: Int32Array.from(last),
    offset: Float64Array.from(offset),
    size: Float64Array.from(size),
    classes: Uint8Array.from(classes),
    what,
  };
}

function drawArena(context, chart, view, items, colours) {
  const { plot } = chart;
  if (!view.track.length) return;
  const sx = linear(view.x0, view.x1, plot.left, plot.right);
  const sy = linear(0, view.model.memory.transient_bytes, plot.bottom, plot.top);
  chart.scale = { sx, sy };
  context.fillStyle = colours.paper;
  context.fillRect(plot.left, plot.top, plot.right - plot.left, plot.bottom - plot.top);
  yAxis(context, plot, byteTicks(0, view.model.memory.transient_bytes, 6), sy, byteTick, colours);
  copyPicture(context, chart, view, items, colours);
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.right - plot.left, plot.bottom + 6);
  context.clip();
  drawGaps(context, view, sx, plot, colours);
  drawCursor(context, view, sx, plot, colours);
  for (const item of [view.hovered, view.selected]) if (item) outlineItem(context, view, items, item, sx, sy, colours);
  drawBrush(context, chart, plot, colours);
  context.restore();
  stepAxis(context, view, sx, plot, colours);
}

// From the wider picture, which is painted anew when it is of another zoom or does not reach far enough.
function copyPicture(context, chart, view, items, colours) {
  const { plot, ratio } = chart,
    width = plot.right - plot.left,
    height = plot.bottom - plot.top;
  const shown = view.x1 - view.x0,
    picture = chart.picture;
  const fits =
    picture &&
    !chart.stale &&
    picture.mode === view.mode &&
    Math.abs(picture.shown / shown - 1) < 1e-9 &&
    picture.from <= view.x0 + 1e-9 &&
    picture.to >= view.x1 - 1e-9;
  if (!fits) paintPicture(chart, view, items, colours, width, height);
  const { canvas, from } = chart.picture;
  const skip = Math.round(((view.x0 - from) / shown) * width * ratio);
  const w = Math.round(width * ratio),
    h = Math.round(height * ratio);
  context.drawImage(canvas, skip, 0, w, h, plot.left, plot.top, w / ratio, h / ratio);
}

function paintPicture(chart, view, items, colours, width, height) {
  const { ratio } = chart,
    shown = view.x1 - view.x0;
  const from = Math.max(0, view.x0 - shown * OVERSCAN),
    to = Math.min(view.full, view.x1 + shown * OVERSCAN);
  const canvas = chart.picture?.canvas ?? document.createElement("canvas");
  canvas.width = Math.ceil(((to - from) / shown) * width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  const sx = linear(from, to, 0, ((to - from) / shown) * width * ratio);
  const sy = linear(0, view.model.memory.transient_bytes, canvas.height, 0);
  const labels = paintItems(context, view, items, sx, sy, canvas.width, ratio, colours);
  paintLabels(context, view, items, labels, ratio, colours);
  Object.assign(chart, { picture: { canvas, from, to, shown, mode: view.mode }, stale: false });
}

// Whole pixels only; class by class, so that the colour rarely changes. Gives the rectangles that have room for words.
function paintItems(context, view, items, sx, sy, width, ratio, colours) {
  const { begin, end } = view.edges,
    { first, last, offset, size, classes } = items;
  const labels = [];
  for (let c = 0; c < CLASSES.length; c += 1) {
    context.fillStyle = colours.classes[c];
    for (let i = 0; i < first.length; i += 1) {
      if (classes[i] !== c) continue;
      const left = Math.round(sx(begin[first[i]])),
        right = Math.round(sx(end[last[i]]));
      if (right < 0 || left > width) continue;
      const bottom = Math.round(sy(offset[i])),
        top = Math.round(sy(offset[i] + size[i]));
      const w = right - left,
        h = bottom - top;
      // What is large enough shows a seam to its neighbours.
      context.fillRect(left, top, Math.max(1, w > 3 ? w - 1 : w), Math.max(1, h > 3 ? h - 1 : h));
      if (w > LABEL_WIDTH * ratio && h > LABEL_HEIGHT * ratio)
        labels.push({ i, left: Math.max(0, left), right, top, h, c });
    }
  }
  return labels;
}

function paintLabels(context, view, items, labels, ratio, colours) {
  context.font = FONT.replace("12px", `${11 * ratio}px`);
  context.textBaseline = "middle";
  labels.sort((a, b) => (b.right - b.left) * b.h - (a.right - a.left) * a.h);
  for (const { i, left, right, top, h, c } of labels.slice(0, MOST_LABELS)) {
    const words = fitted(context, itemName(view.model, items.what[i]), right - left - 10 * ratio);
    text(context, words, left + 5 * ratio, top + Math.min(h / 2, 12 * ratio), inkOn(colours.classes[c]));
  }
}

function outlineItem(context, view, items, item, sx, sy, colours) {
  const i = item.index;
  if (items.what[i] !== item) return;
  const { begin, end } = view.edges;
  const left = sx(begin[items.first[i]]),
    right = sx(end[items.last[i]]);
  const top = sy(items.offset[i] + items.size[i]),
    bottom = sy(items.offset[i]);
  for (const [colour, width] of [
    [colours.surface, 4],
    [colours.ink, 2],
  ]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(left, top, Math.max(2, right - left), Math.max(2, bottom - top));
  }
}

// The smallest one there is at a place, or null.
function itemAt(chart, view, items, x, py) {
  const g = view.track.at(view.mode, x),
    slack = 1.5;
  let best = null;
  for (let i = 0; i < items.first.length; i += 1) {
    if (items.first[i] > g || items.last[i] < g) continue;
    const bottom = chart.scale.sy(items.offset[i]),
      top = chart.scale.sy(items.offset[i] + items.size[i]);
    const inside = py <= bottom && py >= top;
    if (inside) return items.what[i];
    if (py <= bottom + slack && py >= top - slack) best = items.what[i];
  }
  return best;
}

// From one tensor that is live at the cursor to the next one by offset.
function stepItem(view, items, by) {
  const g = view.cursor,
    live = [];
  for (let i = 0; i < items.first.length; i += 1) if (items.first[i] <= g && items.last[i] >= g) live.push(i);
  live.sort((a, b) => items.offset[a] - items.offset[b]);
  const at = live.findIndex((i) => items.what[i] === (view.selected ?? view.hovered));
  const next = live[at < 0 ? (by > 0 ? 0 : live.length - 1) : Math.max(0, Math.min(live.length - 1, at + by))];
  if (next === undefined) return;
  if (view.selected) view.selected = items.what[next];
  else view.hovered = items.what[next];
  view.changed();
}

// The times in milliseconds of redraws of both charts while they are moved to and fro, with pixels read back so that all is done.
function benchPan(timeline, arena, view, frames = 240) {
  const kept = [view.x0, view.x1],
    shown = view.full / 4,
    times = [];
  view.show(0, shown);
  for (let i = 0; i < frames; i += 1) {
    const phase = Math.abs((((i / frames) * 2) % 2) - 1);
    view.show((1 - phase) * (view.full - shown), (1 - phase) * (view.full - shown) + shown);
    const start = performance.now();
    for (const chart of [timeline, arena]) {
      chart.redraw();
      chart.canvas.getContext("2d").getImageData(0, 0, 1, 1);
    }
    times.push(performance.now() - start);
  }
  view.show(...kept);
  times.sort((a, b) => a - b);
  return {
    frames,
    rectangles: arena.items.first.length,
    median: times[frames >> 1],
    p95: times[Math.floor(frames * 0.95)],
    most: times[frames - 1],
  };
}

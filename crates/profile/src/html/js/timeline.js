// The memory of a step: what is live while each kernel runs, stacked by class.

const BAND = 10;

function timelineSection(view) {
  const panel = el("div", { class: "inspector", "aria-live": "polite" });
  const chart = timelineChart(view);
  const present = CLASSES.map((_, c) => c).filter((c) => isPresent(view.model, c));
  const lead = view.other
    ? "What is live while each kernel runs: A filled by class, B as a line."
    : "What is live while each kernel runs, stacked by what it is for. The plan is exact: it says so before the first step.";
  section(
    "timeline",
    "Memory",
    lead,
    viewControls(view),
    legend(present),
    bandLegend(view.other),
    el("figure", null, chart.canvas, el("figcaption", { class: "hint" }, HINT)),
    panel,
    measuredWords(view.model),
    behind("The timeline as a table", () => timelineTable(view)),
  );
  const show = () => replace(panel, describeLaunch(view, view.cursor));
  view.on(() => {
    chart.request();
    debounced(panel, show);
  });
  show();
  return chart;
}

// What the system counted, beside what was planned.
function measuredWords(model) {
  const arena = model.mostMeasured("arena_resident_bytes"),
    process = model.mostMeasured("process_resident_bytes");
  if (arena === null && process === null) return null;
  const words = [
    arena !== null && `${bytes(arena)} of the arena, for which ${bytes(model.memory.arena_bytes)} were planned`,
    process !== null && `${bytes(process)} of the whole process, program and data pipeline included`,
  ];
  return el("p", { class: "small" }, `Measured: the system held at most ${words.filter(Boolean).join(", and ")}.`);
}

const HINT =
  "Drag to zoom, and then to move; the wheel zooms once the chart has the focus. " +
  "Keys: ← → kernel by kernel, + − zoom, 0 the whole step, P the peak.";

// At most once a frame.
function debounced(owner, action) {
  cancelAnimationFrame(owner.pending);
  owner.pending = requestAnimationFrame(action);
}

function isPresent(model, c) {
  if (model.stateSums[c] > 0) return true;
  return model.liveSums.some((sums) => {
    for (let i = c; i < sums.length; i += CLASSES.length) if (sums[i] > 0) return true;
    return false;
  });
}

function bandLegend(other) {
  const mark = (name) =>
    el("span", { class: "swatch line", "aria-hidden": "true", style: { background: `var(--${name})` } });
  return el(
    "ul",
    { class: "legend parts", "aria-label": "Parts of a step" },
    PARTS.map((part) => el("li", null, mark(part), part)),
    other && el("li", null, mark("ink"), "B"),
  );
}

function timelineChart(view) {
  const height = Math.max(240, Math.min(360, window.innerHeight * 0.42));
  const chart = new Chart(
    timelineLabel(view.model),
    height,
    (context, width, height_, colours) => {
      chart.plot = { left: LEFT, right: width - RIGHT, top: 26, bottom: height_ - 24 - BAND - 4 };
      drawTimeline(context, chart, view, colours);
    },
    { tabindex: "0", role: "application", "aria-roledescription": "chart" },
  );
  const move = (_, x) => view.setCursor(view.track.at(view.mode, x));
  attach(chart, view, { hover: move, click: move });
  return chart;
}

function timelineLabel(model) {
  const at = model.peakLaunch();
  return (
    `Memory over a step: at most ${bytes(model.memory.peak_bytes)}` + (at ? `, during ${where(at.op, at.layer)}.` : ".")
  );
}

// How high the picture goes: to the budget, unless that is so far above what is used that it would press it flat.
function timelineTop(view) {
  const most = (m) =>
    Math.max(m.most, m.memory.arena_bytes, budgetInRange(view) ? (m.memory.budget_bytes ?? 0) : 0) - floor(view, m);
  return Math.max(...[view.model, view.other].filter(Boolean).map(most)) * 1.06;
}

// What is left out below.
function floor(view, model) {
  return view.withStates ? 0 : model.memory.state_bytes;
}

function drawTimeline(context, chart, view, colours) {
  const { plot } = chart;
  if (!view.track.length) return;
  const sx = linear(view.x0, view.x1, plot.left, plot.right);
  const top = timelineTop(view);
  const sy = linear(0, top, plot.bottom, plot.top);
  chart.scale = { sx, sy, top };
  yAxis(context, plot, byteTicks(0, top, 5), sy, byteTick, colours);
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.right - plot.left, plot.bottom + BAND + 6);
  context.clip();
  const columns = sample(view.track, view.mode, sx, plot, chart.ratio);
  drawStack(context, columns, view.withStates ? 0 : STATE_CLASSES, sy, colours);
  drawBand(context, view, sx, plot.bottom + 3, columns, colours);
  drawGaps(context, view, sx, plot, colours);
  drawRuns(context, view, sx, plot, colours);
  if (view.otherTrack)
    drawOutline(context, view, sample(view.otherTrack, view.mode, sx, plot, chart.ratio), sy, colours);
  drawCursor(context, view, sx, plot, colours);
  drawBrush(context, chart, plot, colours);
  context.restore();
  drawLimits(context, view, sy, plot, colours);
  stepAxis(context, view, sx, { ...plot, bottom: plot.bottom + BAND + 4 }, colours);
}

function budgetInRange(view) {
  const budget = view.model.memory.budget_bytes;
  return view.other || !budget || budget < view.model.most * 4;
}

// What is seen of a track: a launch each, or where these are narrower than a pixel, the fullest one of each pixel.
function sample(track, mode, sx, plot, ratio) {
  const { begin, end } = track.edges[mode],
    columns = [];
  // To whole pixels of the screen: neighbours meet without a seam.
  const snap = (x) => Math.round(x * ratio) / ratio;
  let column = null;
  for (let g = 0; g < track.length; g += 1) {
    const a = snap(sx(begin[g])),
      b = snap(sx(end[g]));
    if (b < plot.left - 1) continue;
    if (a > plot.right + 1) break;
    if (column && a < column.from + 1 && b - column.from < 1.5) {
      column.to = b;
      if (track.live(g) > track.live(column.g)) column.g = g;
      continue;
    }
    column = { from: a, to: b, g, track };
    columns.push(column);
  }
  return columns;
}

function drawStack(context, columns, from_, sy, colours) {
  const base = new Float64Array(columns.length);
  const zero = sy(0);
  for (let c = from_; c < CLASSES.length; c += 1) {
    context.fillStyle = colours.classes[c];
    for (let i = 0; i < columns.length; i += 1) {
      const { from, to, g, track } = columns[i];
      const value = track.classes(g)[c];
      if (!(value > 0)) continue;
      const bottom = base[i] ? sy(base[i]) : zero;
      base[i] += value;
      const top = sy(base[i]);
      context.fillRect(from, top, to - from, Math.max(bottom - top, 0.4));
    }
  }
}

function drawOutline(context, view, columns, sy, colours) {
  const trace = () => {
    context.beginPath();
    columns.forEach(({ from, to, g, track }, i) => {
      const y = sy(track.live(g) + track.model.memory.state_bytes - floor(view, track.model));
      if (i === 0) context.moveTo(from, y);
      else context.lineTo(from, y);
      context.lineTo(to, y);
    });
  };
  for (const [colour, width] of [
    [colours.surface, 4],
    [colours.ink, 1.75],
  ]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    trace();
    context.stroke();
  }
}

// Which part of the step each launch is, below the stack.
function drawBand(context, view, sx, y, columns, colours) {
  for (const { from, to, g } of columns) {
    context.fillStyle = colours.parts[PARTS.indexOf(view.track.launchAt(g).part)];
    context.fillRect(from, y, to - from, BAND - 3);
  }
}

// Where programs begin, and what they are, above the stack.
function drawRuns(context, view, sx, plot, colours) {
  const spans = view.edges.spans;
  spans.forEach((span, i) => {
    const a = Math.max(sx(span.from), plot.left),
      b = Math.min(sx(span.to), plot.right);
    if (b <= a) return;
    if (i > 0)
      segment(context, Math.round(sx(span.from)) + 0.5, 8, Math.round(sx(span.from)) + 0.5, plot.bottom, colours.line);
    const isNarrow = b - a <= 130 && span.run.of > 1 && !span.run.skipped;
    const words = isNarrow ? String(span.run.repetition + 1) : runName(view.model, span.run);
    if (spans.length > 1) text(context, fitted(context, words, b - a - 8), (a + b) / 2, 13, colours.muted, "center");
  });
}

// What is left out between the first and the last repetition.
function drawGaps(context, view, sx, plot, colours) {
  for (const { from, to } of view.edges.spans.filter((s) => s.run.skipped)) {
    if (to > view.x0 && from < view.x1) hatch(context, sx(from), sx(to), plot, colours);
  }
}

function hatch(context, a, b, plot, colours) {
  context.save();
  context.beginPath();
  context.rect(a, plot.top, b - a, plot.bottom - plot.top);
  context.clip();
  for (let x = a - plot.bottom + plot.top; x < b; x += 8)
    segment(context, x, plot.bottom, x + plot.bottom - plot.top, plot.top, colours.grid);
  context.restore();
}

function drawLimits(context, view, sy, plot, colours) {
  const { budget_bytes: budget } = view.model.memory;
  const resident = view.model.mostMeasured("arena_resident_bytes");
  const taken = [];
  const mark = (value, words, colour, dash, align) => {
    if (!value) return;
    const y = Math.round(sy(value - floor(view, view.model))) + 0.5;
    segment(context, plot.left, y, plot.right, y, colour, 1.5, dash);
    // Two that are close stand on two sides of their lines.
    const close = taken.some((other) => Math.abs(other - y) < 20);
    const beside = close ? y + 12 : y - 11 < 9 ? y + 12 : y - 11;
    taken.push(y);
    plate(context, words, align === "right" ? plot.right - 4 : plot.left + 4, beside, colours, align, colour);
  };
  if (budgetInRange(view)) mark(budget, `budget ${bytes(budget)}`, colours.alarm, [], "right");
  mark(resident, `measured ${bytes(resident)}`, colours.accent, [6, 4], "left");
}

function drawCursor(context, view, sx, plot, colours) {
  const { begin, end } = view.edges;
  const a = sx(begin[view.cursor]),
    b = sx(end[view.cursor]);
  context.fillStyle = colours.ink;
  context.globalAlpha = 0.14;
  context.fillRect(a, plot.top, Math.max(1, b - a), plot.bottom - plot.top);
  context.globalAlpha = 1;
  segment(context, (a + b) / 2, plot.top, (a + b) / 2, plot.bottom, colours.ink, 1);
}

function drawBrush(context, chart, plot, colours) {
  if (!chart.brush) return;
  const [a, b] = chart.brush;
  context.fillStyle = colours.accent;
  context.globalAlpha = 0.2;
  context.fillRect(Math.min(a, b), plot.top, Math.abs(b - a), plot.bottom - plot.top);
  context.globalAlpha = 1;
}

function stepAxis(context, view, sx, plot, colours) {
  const values = ticks(view.x0, view.x1, (plot.right - plot.left) / 110);
  const inGap = (x) => view.edges.spans.some((s) => s.run.skipped && x > s.from && x < s.to);
  const show = (x) => {
    if (inGap(x)) return "";
    const real = view.track.real(view.mode, x);
    if (view.mode === "position") return Number.isInteger(x) ? `${Math.round(real)}` : "";
    return view.x1 - view.x0 < 1 ? `${short(real * 1e3)} µs` : `${short(real)} ms`;
  };
  xAxis(context, plot, values, sx, show, colours);
}

// A launch in words: what runs, what is live.
function describeLaunch(view, g) {
  const { track, model } = view;
  if (!track.length) return [];
  const p = track.program[g],
    n = track.launch[g],
    launch = track.launchAt(g),
    program = model.programs[p];
  const times = model.kernelTimes(p, n);
  const span = view.edges.spans.find((s) => !s.run.skipped && g < s.last && g >= s.first);
  const total = launch.live_bytes + model.memory.state_bytes;
  const isPeak = model.profile.peak.program === p && model.profile.peak.launch === n;
  const head = el(
    "div",
    { class: "inspector-head" },
    el("strong", null, where(launch.op, launch.layer)),
    el("span", { class: `part ${launch.part}` }, launch.part),
    isPeak && el("span", { class: "part peak" }, "the peak"),
  );
  const about = facts([
    [
      "kernel",
      `${n + 1} of ${program.launches.length}` +
        (span.run.of > 1 ? `, ${runName(model, span.run)}` : `, ${program.phase}`),
    ],
    [
      "time",
      times
        ? `${time(times.median_us / 1e3)} measured, ${time(launch.predicted_us / 1e3)} predicted`
        : `${time(launch.predicted_us / 1e3)} predicted`,
    ],
    ["live", `${bytes(total)}, of it states ${bytes(model.memory.state_bytes)}`],
    ["runs", launch.ops.includes("+") ? launch.ops.split("+").join(" + ") : null],
  ]);
  return [
    el("div", null, head, about),
    el("div", null, el("p", { class: "small" }, "Largest tensors of the step that are live"), largest(model, p, n)),
  ];
}

function largest(model, p, n) {
  const live = model.liveBuffers(p, n).slice(0, 5),
    launch = model.programs[p].launches[n];
  const items = live.map((b) => ({ c: CLASS_OF.get(b.class), name: where(b.op, b.layer), bytes: b.bytes }));
  if (launch.scratch_bytes) items.push({ c: SCRATCH, name: "scratch of this kernel", bytes: launch.scratch_bytes });
  items.sort((a, b) => b.bytes - a.bytes);
  return el(
    "ul",
    { class: "tensors" },
    items
      .slice(0, 5)
      .map((t) =>
        el(
          "li",
          null,
          swatch(t.c),
          el("span", { class: "name" }, t.name),
          el("span", { class: "size" }, bytes(t.bytes)),
        ),
      ),
  );
}

function timelineTable(view) {
  const { track, model } = view;
  const data = Array.from({ length: track.length }, (_, g) => g);
  const at = (g) => track.launchAt(g);
  return table(
    "Launches of the step",
    [
      { title: "kernel", value: (g) => g + 1, numeric: true },
      { title: "program", value: (g) => model.programs[track.program[g]].phase },
      { title: "part", value: (g) => at(g).part },
      { title: "op", value: (g) => at(g).op },
      { title: "layer", value: (g) => at(g).layer, wide: true },
      {
        title: "live",
        value: (g) => at(g).live_bytes + model.memory.state_bytes,
        show: (g) => bytes(at(g).live_bytes + model.memory.state_bytes),
        numeric: true,
      },
      {
        title: "time",
        value: (g) => model.launchUs(track.program[g], track.launch[g]),
        show: (g) => time(model.launchUs(track.program[g], track.launch[g]) / 1e3),
        numeric: true,
      },
    ],
    data,
    {
      sorted: 5,
      onrow: (g) => {
        view.go(g);
        scrollToSection("timeline");
      },
    },
  );
}

// Time: which kernels and layers take it, and how close they come to what the machine can do.

// How the times of kernels were taken, where it is not by the threads that ran them.
const CLOCKS = {
  device: " by the device's own timestamps",
  waiting: " by the host, which waited for each kernel",
};

function timeSection(model) {
  const launches = timedLaunches(model);
  if (!launches.length) return;
  const how = model.isMeasured
    ? `measured${CLOCKS[model.measured.clock] ?? ""}, each in the middle of ${count(model.measured.steps.length, "step")}`
    : "predicted";
  const total = launches.reduce((sum, k) => sum + k.ms, 0);
  const limits = model.profile.limits;
  const lead =
    `Where the ${time(total)} of the kernels of a step go, as ${how}` +
    (limits
      ? `, against what this machine reaches in a large matrix product (${short(limits.gflops)} GFLOP/s) and a long sum (${short(limits.gbytes)} GB/s).`
      : ".");
  const holder = el("div");
  const kinds = {
    kernels: () => launches,
    layers: () => merged(launches, layerOf),
    ops: () => merged(launches, (k) => k.op),
  };
  const show = (kind) => replace(holder, timeTable(kind, kinds[kind](), total, limits));
  show("layers");
  section(
    "time",
    "Time",
    lead,
    partBar(launches, total),
    model.isMeasured && model.stepMs() > 1.05 * total && el("p", { class: "small" }, disturbed(model.stepMs())),
    roofline(launches, limits),
    launches.some((k) => limits && reached(k, limits) > 1.05) && el("p", { class: "small" }, PASSED),
    choice(
      "Sum up by",
      [
        ["layers", "layers"],
        ["kernels", "kernels"],
        ["ops", "ops"],
      ],
      "layers",
      show,
    ),
    holder,
  );
}

const PASSED =
  "A kernel can pass the limit: what is read from a cache, and convolutions that take fewer multiplications than are counted.";

function disturbed(stepMs) {
  return `The step in the middle took ${time(stepMs)}: what its kernels took longer than they usually do, and what lies between them, is not in here.`;
}

function timedLaunches(model) {
  return model.programs
    .flatMap((program, p) =>
      program.repeats === 0
        ? []
        : program.launches.map((l, n) => ({
            name: where(l.op, l.layer),
            op: l.op,
            layer: l.layer,
            part: l.part,
            runs: program.repeats,
            kernel: `${program.phase} ${n + 1}`,
            ms: (model.launchUs(p, n) / 1e3) * program.repeats,
            predicted: (l.predicted_us / 1e3) * program.repeats,
            flops: l.flops * program.repeats,
            bytes: l.traffic_bytes * program.repeats,
          })),
    )
    .filter((k) => k.ms > 0);
}

// Two steps of the path tell a block from its neighbours.
function layerOf(k) {
  return k.layer.split("/").slice(0, 2).join("/") || "(no layer)";
}

function merged(launches, keyOf) {
  const sums = new Map();
  for (const k of launches) {
    const key = keyOf(k);
    const sum = sums.get(key) ?? { name: key, runs: 0, ms: 0, predicted: 0, flops: 0, bytes: 0 };
    for (const field of ["runs", "ms", "predicted", "flops", "bytes"]) sum[field] += k[field];
    sums.set(key, sum);
  }
  return [...sums.values()];
}

const gflops = (k) => k.flops / k.ms / 1e6;
const gbytes = (k) => k.bytes / k.ms / 1e6;

// The share of the best possible time: what arithmetic or traffic alone would take.
function reached(k, limits) {
  return Math.max(gflops(k) / limits.gflops, gbytes(k) / limits.gbytes);
}

function partBar(launches, total) {
  const sums = PARTS.map((part) => launches.filter((k) => k.part === part).reduce((sum, k) => sum + k.ms, 0));
  const present = PARTS.map((_, i) => i).filter((i) => sums[i] > 0);
  const pieces = present.map((i) =>
    el("span", { style: { flexGrow: sums[i] / total, background: `var(--${PARTS[i]})` } }),
  );
  const mark = (i) =>
    el("span", { class: "swatch", "aria-hidden": "true", style: { background: `var(--${PARTS[i]})` } });
  return [
    el("div", { class: "shares", "aria-hidden": "true" }, pieces),
    el(
      "ul",
      { class: "legend" },
      present.map((i) =>
        el(
          "li",
          null,
          mark(i),
          `${PARTS[i]} `,
          el("span", { class: "size" }, `${time(sums[i])}, ${percent(sums[i] / total)}`),
        ),
      ),
    ),
  ];
}

function timeTable(kind, data, total, limits) {
  const longest = data.reduce((m, k) => Math.max(m, k.ms), 1e-9);
  const colour = (k) => (k.part ? `var(--${k.part})` : "var(--accent)");
  return table(
    `Time by ${kind}`,
    [
      { title: "time", value: (k) => k.ms, show: (k) => barred(k.ms / longest, colour(k), time(k.ms)), numeric: true },
      { title: "share", value: (k) => k.ms / total, show: (k) => percent(k.ms / total), numeric: true },
      { title: kind === "kernels" ? "what" : kind.slice(0, -1), value: (k) => k.name, wide: true },
      kind === "kernels"
        ? { title: "kernel", value: (k) => k.kernel }
        : { title: "kernels", value: (k) => k.runs, numeric: true },
      { title: "predicted", value: (k) => k.predicted, show: (k) => time(k.predicted), numeric: true },
      { title: "GFLOP/s", value: gflops, show: (k) => short(gflops(k)), numeric: true },
      { title: "GB/s", value: gbytes, show: (k) => short(gbytes(k)), numeric: true },
      limits && {
        title: "of the limit",
        value: (k) => reached(k, limits),
        show: (k) => percent(reached(k, limits)),
        numeric: true,
      },
    ].filter(Boolean),
    data,
  );
}

const SHAPES = {
  forward: (c, r) => c.arc(0, 0, r, 0, 7),
  recompute: (c, r) => {
    c.moveTo(0, -r * 1.3);
    c.lineTo(r * 1.2, r);
    c.lineTo(-r * 1.2, r);
    c.closePath();
  },
  backward: (c, r) => c.rect(-r * 0.9, -r * 0.9, r * 1.8, r * 1.8),
  update: (c, r) => {
    c.moveTo(0, -r * 1.3);
    c.lineTo(r * 1.3, 0);
    c.lineTo(0, r * 1.3);
    c.lineTo(-r * 1.3, 0);
    c.closePath();
  },
};

// Arithmetic for each byte against speed, both logarithmic: a kernel below the slope waits for memory, one below the flat
// part for arithmetic.
function roofline(launches, limits) {
  const points = launches.filter((k) => k.flops > 0 && k.bytes > 0);
  if (points.length < 2) return null;
  const readout = el("p", { class: "readout", "aria-live": "polite" }, "Each mark is a kernel, as large as its time.");
  const words = (k) =>
    `${k.name} (${k.part}): ${time(k.ms)} a step, ${short(gflops(k))} GFLOP/s, ${short(gbytes(k))} GB/s, ` +
    `${short(k.flops / k.bytes)} flops for each byte`;
  const chart = pointChart({
    label: "Roofline: arithmetic for each byte of traffic against speed, a mark for each kernel.",
    height: 320,
    points,
    words,
    readout,
    draw: (context, width, height, colours, at) => {
      const plot = { left: 56, right: width - RIGHT, top: 12, bottom: height - 40 };
      return drawRoofline(context, plot, points, limits, at, colours);
    },
  });
  return el("figure", null, chart.canvas, readout);
}

function drawRoofline(context, plot, points, limits, at, colours) {
  const range = rooflineRange(points, limits);
  const sx = logarithmic(range.x0, range.x1, plot.left, plot.right);
  const sy = logarithmic(range.y0, range.y1, plot.bottom, plot.top);
  yAxis(context, plot, decades(range.y0, range.y1), sy, short, colours);
  xAxis(context, plot, decades(range.x0, range.x1), sx, short, colours);
  text(context, "flops for each byte", (plot.left + plot.right) / 2, plot.bottom + 32, colours.muted, "center");
  text(context, "GFLOP/s", plot.left + 6, plot.top + 4, colours.muted);
  const [, longest] = rangeOf(points.map((k) => k.ms));
  const size = (k) => 2.5 + 7 * Math.sqrt(k.ms / longest);
  const places = points.map((k) => ({ x: sx(k.flops / k.bytes), y: sy(gflops(k)), r: size(k) }));
  // Small ones over large ones.
  const order = points.map((_, i) => i).sort((a, b) => places[b].r - places[a].r);
  context.save();
  context.beginPath();
  context.rect(plot.left, plot.top - 8, plot.right - plot.left + RIGHT, plot.bottom - plot.top + 8);
  context.clip();
  order.forEach((i) => drawMark(context, places[i], points[i].part, i === at, colours));
  context.restore();
  if (limits) drawRoof(context, limits, range, sx, sy, colours);
  return places;
}

// Powers of ten in a range.
function decades(from, to) {
  const first = Math.ceil(Math.log10(from));
  return Array.from({ length: Math.max(0, Math.floor(Math.log10(to)) - first + 1) }, (_, i) => 10 ** (first + i));
}

function rooflineRange(points, limits) {
  const [lowest, highest] = rangeOf(points.map((k) => k.flops / k.bytes));
  const [slowest, fastest] = rangeOf(points.map(gflops));
  const ridge = limits ? limits.gflops / limits.gbytes : lowest;
  return {
    x0: Math.min(lowest, ridge) / 1.6,
    x1: Math.max(highest, ridge) * 1.6,
    y0: Math.max(slowest, fastest / 1e5) / 1.8,
    y1: Math.max(fastest, limits?.gflops ?? 0) * 1.8,
  };
}

function drawRoof(context, limits, range, sx, sy, colours) {
  const ridge = limits.gflops / limits.gbytes,
    from = Math.max(range.x0, range.y0 / limits.gbytes);
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(sx(from), sy(from * limits.gbytes));
  context.lineTo(sx(ridge), sy(limits.gflops));
  context.lineTo(sx(range.x1), sy(limits.gflops));
  context.stroke();
  plate(context, `${short(limits.gflops)} GFLOP/s`, sx(ridge) - 8, sy(limits.gflops) - 12, colours, "right");
  context.save();
  const [x0, y0, x1, y1] = [sx(from), sy(from * limits.gbytes), sx(ridge), sy(limits.gflops)];
  context.translate(x0 + (x1 - x0) * 0.45, y0 + (y1 - y0) * 0.45);
  context.rotate(Math.atan2(y1 - y0, x1 - x0));
  plate(context, `${short(limits.gbytes)} GB/s`, 0, -14, colours, "center");
  context.restore();
}

function drawMark(context, { x, y, r }, part, isChosen, colours) {
  context.save();
  context.translate(x, y);
  context.beginPath();
  SHAPES[part](context, r);
  context.fillStyle = colours.parts[PARTS.indexOf(part)];
  context.globalAlpha = isChosen ? 1 : 0.72;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = isChosen ? colours.ink : colours.surface;
  context.lineWidth = isChosen ? 2 : 0.75;
  context.stroke();
  context.restore();
}

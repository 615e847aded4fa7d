// What ran: curves over the steps, and the data pipeline.

function runSection(model) {
  const curves = [...measuredCurves(model), ...model.profile.curves].filter((c) => c.points.length > 1);
  if (!curves.length) return;
  const shown = curves.map((curve, i) => curveFigure(curve, i));
  section("training", "Training", null, el("div", { class: "multiples" }, shown));
}

function measuredCurves(model) {
  const steps = model.measured?.steps ?? [];
  const named = new Set(model.profile.curves.map((c) => c.name));
  const curve = (name, field, show) => ({
    name,
    show,
    points: steps.filter((s) => s[field] !== null && s[field] !== undefined).map((s) => [s.step, s[field]]),
  });
  return [
    named.has("loss") ? null : curve("loss", "loss", short),
    curve("step time", "ms", time),
    curve("arena, resident", "arena_resident_bytes", bytes),
    curve("process, resident", "process_resident_bytes", bytes),
    curve("data pipeline", "pipeline_bytes", bytes),
  ].filter(Boolean);
}

function curveFigure(curve) {
  const points = curve.points.filter(([, v]) => Number.isFinite(v));
  const show = curve.show ?? (curve.name.endsWith(" bytes") ? bytes : short);
  const last = points[points.length - 1];
  const readout = el("span", { class: "size" }, last ? show(last[1]) : "");
  const chart = pointChart({
    label: `${curve.name} over the steps`,
    height: 150,
    points,
    words: ([step, value]) => `${show(value)} at step ${step}`,
    readout,
    reach: Infinity,
    draw: (context, width, height, colours, at) => {
      const plot = { left: 68, right: width - 8, top: 8, bottom: height - 22 };
      return drawCurve(context, plot, points, show, at, colours);
    },
  });
  const rows_ = () => points.map(([step, value]) => [step, show(value)]);
  const asTable = behind("As a table", () => plainTable(curve.name, ["step", curve.name], rows_()));
  const caption = el("figcaption", null, curve.name, " ", readout);
  return el("figure", { class: "multiple" }, caption, chart.canvas, asTable);
}

function drawCurve(context, plot, points, show, at, colours) {
  if (!points.length) return [];
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const [low, high] = curveRange(points.map(([, value]) => value));
  const sx = linear(from, to, plot.left, plot.right);
  const sy = linear(low, high, plot.bottom, plot.top);
  if (show === bytes) yAxis(context, plot, byteTicks(low, high, 4), sy, byteTick, colours);
  else yAxis(context, plot, ticks(low, high, 4), sy, (v) => show(v).replace(/\.0+ /, " "), colours);
  const steps = ticks(from, to, (plot.right - plot.left) / 70).filter(Number.isInteger);
  xAxis(context, plot, steps, sx, String, colours);
  drawLine(context, points, sx, sy, colours.accent);
  const chosen = points[at];
  if (chosen) dot(context, sx(chosen[0]), sy(chosen[1]), 4, colours.accent, colours.surface);
  return points.map(([step]) => ({ x: sx(step) }));
}

// From 0 where the values come near it; else so that their differences can be seen.
function curveRange(values) {
  const [least, most] = rangeOf(values);
  const low = least < most * 0.3 ? Math.min(0, least) : least - Math.abs(most) * 0.08;
  const high = most + (most - least || Math.abs(most) || 1) * 0.06;
  return [low, high];
}

function drawLine(context, points, sx, sy, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.beginPath();
  points.forEach(([x, y], i) => (i === 0 ? context.moveTo(sx(x), sy(y)) : context.lineTo(sx(x), sy(y))));
  context.stroke();
}

function pipelineSection(model) {
  const p = model.profile.pipeline;
  if (!p) return;
  const slower = p.step_waited_ms > p.data_waited_ms;
  const sentence =
    p.step_waited_ms === 0 && p.data_waited_ms === 0
      ? "Nobody waited."
      : slower
        ? `Training waited longer for data (${time(p.step_waited_ms)}) than data for training (${time(p.data_waited_ms)}): more threads, a cache or smaller pictures would make it faster.`
        : `Batches were ready before training asked for them: training waited ${time(p.step_waited_ms)} in all, data ${time(p.data_waited_ms)}.`;
  const longest = Math.max(p.step_waited_ms, p.data_waited_ms, 1e-9);
  const gauge = (name, share, value, colour) =>
    el("div", { class: "gauge" }, el("span", null, name), bar(share, colour), el("span", { class: "size" }, value));
  section(
    "pipeline",
    "Data",
    sentence,
    gauge(
      "bytes held at most",
      p.limit_bytes ? p.peak_bytes / p.limit_bytes : 0,
      `${bytes(p.peak_bytes)} of ${bytes(p.limit_bytes)}`,
      "var(--class-3)",
    ),
    gauge("training waited for data", p.step_waited_ms / longest, time(p.step_waited_ms), "var(--recompute)"),
    gauge("data waited for training", p.data_waited_ms / longest, time(p.data_waited_ms), "var(--forward)"),
    el("p", { class: "small" }, `${count(p.threads, "thread")} made batches.`),
  );
}

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
  const curve = (name, field, show) => ({ name, show, points: steps.filter((s) => s[field] !== null && s[field] !== undefined).map((s) => [s.step, s[field]]) });
  return [
    named.has("loss") ? null : curve("loss", "loss", short),
    curve("step time", "ms", time),
    curve("arena, resident", "arena_resident_bytes", bytes),
    curve("process, resident", "process_resident_bytes", bytes),
    curve("data pipeline", "pipeline_bytes", bytes),
  ].filter(Boolean);
}

function curveFigure(curve) {
  const points = curve.points.filter(([, v]) => Number.isFinite(v)), show = curve.show ?? short;
  const last = points[points.length - 1];
  const readout = el("span", { class: "size" }, last ? show(last[1]) : "");
  const state = { at: -1 };
  const values = points.map((p) => p[1]);
  let low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (low > 0 && low > high * 0.3) low = high * 0.9 > low ? low * 0.9 : Math.max(0, low - high * 0.1);
  else low = Math.min(0, low);
  if (high <= low) high = low + 1;
  const isBytes = show === bytes;
  const chart = new Chart(`${curve.name} over the steps`, 150, (context, width, height, colours) => {
    const plot = { left: 60, right: width - 8, top: 8, bottom: height - 22 };
    const sx = linear(points[0]?.[0] ?? 0, last?.[0] ?? 1, plot.left, plot.right), sy = linear(low, high * 1.04, plot.bottom, plot.top);
    yAxis(context, plot, (isBytes ? byteTicks : ticks)(low, high * 1.04, 4), sy, isBytes ? byteTick : (v) => show(v).replace(/\.0+ /, " "), colours);
    xAxis(context, plot, ticks(points[0]?.[0] ?? 0, last?.[0] ?? 1, width / 90).filter(Number.isInteger), sx, String, colours);
    drawLine(context, points, sx, sy, colours.accent);
    const p = points[state.at];
    if (p) dot(context, sx(p[0]), sy(p[1]), 4, colours.accent, colours.surface);
    state.places = points.map((q) => sx(q[0]));
  });
  chart.canvas.addEventListener("pointermove", (event) => {
    const { x } = localPoint(event);
    state.at = (state.places ?? []).reduce((best, px, i) => (best < 0 || Math.abs(px - x) < Math.abs(state.places[best] - x) ? i : best), -1);
    const p = points[state.at];
    if (p) readout.textContent = `${show(p[1])} at step ${p[0]}`;
    chart.request();
  });
  const asTable = () => plainTable(curve.name, ["step", curve.name], points.map(([s, v]) => [s, show(v)]));
  return el("figure", { class: "multiple" }, el("figcaption", null, curve.name, " ", readout), chart.canvas, behind("As a table", asTable));
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
  const sentence = p.step_waited_ms === 0 && p.data_waited_ms === 0 ? "Nobody waited."
    : slower ? `Training waited longer for data (${time(p.step_waited_ms)}) than data for training (${time(p.data_waited_ms)}): more threads, a cache or smaller pictures would make it faster.`
      : `Batches were ready before training asked for them: training waited ${time(p.step_waited_ms)} in all, data ${time(p.data_waited_ms)}.`;
  const longest = Math.max(p.step_waited_ms, p.data_waited_ms, 1e-9);
  const gauge = (name, share, value, colour) => el("div", { class: "gauge" }, el("span", null, name), bar(share, colour), el("span", { class: "size" }, value));
  section("pipeline", "Data", sentence,
    gauge("bytes held at most", p.limit_bytes ? p.peak_bytes / p.limit_bytes : 0, `${bytes(p.peak_bytes)} of ${bytes(p.limit_bytes)}`, "var(--class-3)"),
    gauge("training waited for data", p.step_waited_ms / longest, time(p.step_waited_ms), "var(--recompute)"),
    gauge("data waited for training", p.data_waited_ms / longest, time(p.data_waited_ms), "var(--forward)"),
    el("p", { class: "small" }, `${count(p.threads, "thread")} made batches.`));
}

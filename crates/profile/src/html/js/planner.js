// What the planner did, and what else it could have chosen.

const TOOLS = {
  groups: "kernels that run several ops at once, whose values in between have no place",
  "in place": "results that take over the place of an operand",
  masks: "one bit of an activation where that is all its gradient reads",
  order: "the order of the kernels, and updates as soon as a gradient is there",
  "micro-batches": "the batch in parts, with the gradients summed up",
  recompute: "activations that are computed a second time instead of kept",
};

function plannerSection(model) {
  const { memory, profile } = model;
  if (!profile.tools.length) return;
  const saved = memory.keep_all_bytes - memory.peak_bytes;
  const lead =
    saved > 0
      ? `Keeping everything, as a plain eager framework does, would take ${bytes(memory.keep_all_bytes)}. From there to ${bytes(memory.peak_bytes)}, tool by tool:`
      : `Keeping everything would take ${bytes(memory.keep_all_bytes)}: there was nothing to save.`;
  section("planner", "Planner", lead, waterfall(model));
}

// Bars from what is kept without any tool down to the peak, in a table.
function waterfall(model) {
  const { memory, profile } = model;
  const most = waterfallTop(model);
  const body = [];
  const line_ = (name, from, to, kind, saved, paid, title) =>
    body.push(
      el(
        "tr",
        { class: kind },
        el("th", { scope: "row", title }, name),
        el("td", { class: "fall" }, fallBar(from, to, most, kind)),
        el("td", { class: "number" }, saved),
        el("td", { class: "number" }, paid),
      ),
    );
  line_("keep everything", 0, memory.keep_all_bytes, "whole", bytes(memory.keep_all_bytes), "");
  let level = memory.keep_all_bytes;
  for (const tool of profile.tools) {
    const next = level - tool.saved_bytes;
    line_(
      tool.tool,
      Math.min(level, next),
      Math.max(level, next),
      tool.saved_bytes < 0 ? "cost" : "saved",
      change(-tool.saved_bytes),
      tool.paid_ms > 0 ? `+${time(tool.paid_ms)}` : "–",
      TOOLS[tool.tool],
    );
    level = next;
  }
  if (level !== memory.peak_bytes) {
    const rest = level - memory.peak_bytes;
    line_(
      "in combination",
      Math.min(level, memory.peak_bytes),
      Math.max(level, memory.peak_bytes),
      rest < 0 ? "cost" : "saved",
      change(-rest),
      "–",
      "what the tools save together, beyond what each was found to save on top of those before",
    );
  }
  line_("this plan", 0, memory.peak_bytes, "whole", bytes(memory.peak_bytes), "");
  const heads = ["tool", "", "bytes", "time"].map((t, i) =>
    el("th", { scope: "col", class: i > 1 ? "number" : null }, t || el("span", { class: "hidden" }, "picture")),
  );
  const bound =
    memory.lower_bound_bytes > 0 &&
    el(
      "p",
      { class: "small" },
      `Proved: no plan${memory.staging_bytes ? ", with its copies," : ""} goes below ${bytes(memory.lower_bound_bytes)}.`,
    );
  return [
    el(
      "table",
      { class: "waterfall" },
      el("caption", { class: "hidden" }, "What each tool saved and cost"),
      el("thead", null, el("tr", null, heads)),
      el("tbody", null, body),
    ),
    bound,
  ];
}

function change(count_) {
  return count_ > 0 ? `+${bytes(count_)}` : count_ < 0 ? bytes(count_) : "–";
}

function waterfallTop({ memory, profile }) {
  let level = memory.keep_all_bytes,
    most = Math.max(level, memory.peak_bytes, 1);
  for (const tool of profile.tools) {
    level -= tool.saved_bytes;
    most = Math.max(most, level);
  }
  return most;
}

function fallBar(from, to, most, kind) {
  const left = (from / most) * 100,
    width = Math.max(0.3, ((to - from) / most) * 100);
  return el(
    "span",
    { class: "fall-track", "aria-hidden": "true" },
    el("span", { class: `fall-bar ${kind}`, style: { left: `${left}%`, width: `${width}%` } }),
  );
}

function frontierSection(model) {
  const { frontier } = model.profile,
    { memory } = model;
  if (!frontier.length) return;
  const here = { arena_bytes: memory.arena_bytes, step_ms: memory.predicted_step_ms };
  section(
    "frontier",
    "Frontier",
    "Step time against memory: every plan that nothing else beats in both. More memory is never slower.",
    frontierChart(model, frontier, here),
    behind("The frontier as a table", () => frontierTable(frontier)),
  );
}

function frontierTable(frontier) {
  return table(
    "Plans of the frontier",
    [
      { title: "memory", value: (f) => f.arena_bytes, show: (f) => bytes(f.arena_bytes), numeric: true },
      { title: "step", value: (f) => f.step_ms, show: (f) => time(f.step_ms), numeric: true },
      { title: "micro-batch", value: (f) => f.micro_batch, numeric: true },
      { title: "recomputed ops", value: (f) => f.recomputed_ops, numeric: true },
    ],
    frontier,
  );
}

function frontierChart(model, frontier, here) {
  const points = [...frontier].sort((a, b) => a.arena_bytes - b.arena_bytes);
  const said = `This plan: ${bytes(here.arena_bytes)}, ${time(here.step_ms)} a step, predicted.`;
  const readout = el("p", { class: "readout", "aria-live": "polite" }, said);
  const words = (p) =>
    `${bytes(p.arena_bytes)}: ${time(p.step_ms)} a step, micro-batches of ${p.micro_batch}, ` +
    `${count(p.recomputed_ops, "op")} recomputed`;
  const chart = pointChart({
    label: "The frontier: step time against memory, with this plan marked.",
    height: 300,
    points,
    words,
    readout,
    draw: (context, width, height, colours, at) => {
      const plot = { left: LEFT, right: width - RIGHT, top: 16, bottom: height - 40 };
      return drawFrontier(context, plot, points, here, model.memory.budget_bytes, at, colours);
    },
  });
  return el("figure", null, chart.canvas, readout);
}

function drawFrontier(context, plot, points, here, budget, at, colours) {
  const [x0, x1] = padded(rangeOf([...points, here].map((p) => p.arena_bytes)), 0.06);
  const [y0, y1] = padded(rangeOf([...points, here].map((p) => p.step_ms)), 0.1);
  const sx = linear(x0, x1, plot.left, plot.right);
  const sy = linear(y0, y1, plot.bottom, plot.top);
  yAxis(context, plot, ticks(y0, y1, 5), sy, time, colours);
  xAxis(context, plot, byteTicks(x0, x1, (plot.right - plot.left) / 120), sx, byteTick, colours);
  text(context, "arena", (plot.left + plot.right) / 2, plot.bottom + 32, colours.muted, "center");
  if (budget && budget >= x0 && budget <= x1) drawBudget(context, plot, sx(budget), budget, colours);
  drawStairs(context, points, sx, sy, colours);
  const places = points.map((p) => ({ x: sx(p.arena_bytes), y: sy(p.step_ms) }));
  places.forEach(({ x, y }, i) => dot(context, x, y, i === at ? 6 : 3.5, colours.accent, colours.surface));
  drawHere(context, sx(here.arena_bytes), sy(here.step_ms), plot, colours);
  return places;
}

function padded([from, to], share) {
  const by = (to - from) * share || to * 0.1;
  return [from - by, to + by];
}

function drawBudget(context, plot, x, budget, colours) {
  segment(context, x, plot.top, x, plot.bottom, colours.alarm, 1.5);
  const isRight = x > (plot.left + plot.right) / 2;
  const align = isRight ? "right" : "left";
  plate(context, `budget ${bytes(budget)}`, x + (isRight ? -4 : 4), plot.top + 10, colours, align, colours.alarm);
}

// Between two plans the left one is the best there is.
function drawStairs(context, points, sx, sy, colours) {
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.beginPath();
  points.forEach((p, i) => {
    if (i === 0) return context.moveTo(sx(p.arena_bytes), sy(p.step_ms));
    context.lineTo(sx(p.arena_bytes), sy(points[i - 1].step_ms));
    context.lineTo(sx(p.arena_bytes), sy(p.step_ms));
  });
  context.stroke();
}

function drawHere(context, x, y, plot, colours) {
  context.beginPath();
  context.arc(x, y, 8, 0, 7);
  context.strokeStyle = colours.ink;
  context.lineWidth = 2.5;
  context.stroke();
  const right = x > (plot.left + plot.right) / 2;
  plate(context, "this plan", x + (right ? -14 : 14), y - 14, colours, right ? "right" : "left");
}

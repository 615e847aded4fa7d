// The page: its head, its sections, and what tests may ask of it.

function start() {
  theme.start();
  const data = JSON.parse(document.getElementById("data").textContent);
  const model = new Model(unpack(data.profile));
  const other = data.other ? new Model(unpack(data.other)) : null;
  // What was measured is not held against what was predicted.
  if (other && !(model.isMeasured && other.isMeasured)) model.measured = other.measured = null;
  const view = new StepView(model, other);
  if (other) compareHead(model, other);
  else hero(model);
  let timeline = null,
    arena = null;
  if (view.track.length) {
    timeline = timelineSection(view);
    if (!other) arena = arenaSection(view);
  }
  if (other) {
    compareSections(data.tables ?? []);
  } else {
    peakSection(model, view);
    timeSection(model);
    plannerSection(model);
    frontierSection(model);
    runSection(model);
    pipelineSection(model);
  }
  summarySection(data.markdown ?? "");
  window.memfit = { model, view, timeline, arena, benchPan: (frames) => benchPan(timeline, arena, view, frames) };
}

function describeRun(model) {
  const { run } = model;
  const split = run.accumulate > 1 ? `${run.accumulate} micro-batches of ${run.micro_batch}` : "";
  return [`batch ${run.batch}`, split, run.input, run.precision, run.optimizer, run.device].filter(Boolean).join(" · ");
}

function hero(model) {
  const { memory, run } = model;
  const sub = [describeRun(model), run.path].filter(Boolean).join(" · ");
  document
    .getElementById("main")
    .append(
      el(
        "div",
        { class: "hero" },
        el("p", { class: "eyebrow" }, "a training step, byte by byte"),
        el("h1", null, model.name),
        el("p", { class: "sub" }, sub),
        el("p", { class: "sentence" }, sentence(model)),
        el("div", { class: "tiles" }, peakTile(model), stepTile(model), savedTile(memory), workTile(model)),
        el("p", { class: "small" }, `memfit ${run.memfit}, cost model ${run.cost_model}`),
      ),
    );
}

// The plan in plain words.
function sentence(model) {
  const { memory } = model,
    { budget_bytes: budget } = memory;
  const spare = budget ? budget - memory.arena_bytes - (memory.staging_bytes ?? 0) : 0;
  const first = budget
    ? `This step needs at most ${bytes(memory.peak_bytes)} at once. It fits into its budget of ${bytes(budget)}` +
      (spare > 0 ? ` with ${bytes(spare)} to spare.` : ".")
    : `This step needs at most ${bytes(memory.peak_bytes)} at once, without any budget.`;
  const kept = memory.keep_all_bytes;
  const saved =
    kept > memory.peak_bytes
      ? ` Keeping everything would take ${bytes(kept)}, ${short(kept / memory.peak_bytes)} times as much.`
      : "";
  const extra = memory.predicted_step_ms / memory.fastest_step_ms - 1;
  const paid = !(memory.fastest_step_ms > 0)
    ? ""
    : extra > 0.005
      ? ` For that, a step is predicted to take ${percent(extra)} longer than the fastest plan with all the memory it wants.`
      : " It is as fast as the fastest plan with all the memory it wants.";
  return first + saved + paid;
}

function kpi(name, value, note, extra) {
  return el(
    "div",
    { class: "kpi" },
    el("span", { class: "kpi-name" }, name),
    el("span", { class: "kpi-value" }, value),
    extra,
    note && el("span", { class: "kpi-note" }, note),
  );
}

function peakTile({ memory }) {
  const { budget_bytes: budget, peak_bytes: peak } = memory;
  const note = budget
    ? `of ${bytes(budget)} budget; arena ${bytes(memory.arena_bytes)}`
    : `arena ${bytes(memory.arena_bytes)}, no budget`;
  return kpi("peak", bytes(peak), note, budget && bar(peak / budget, "var(--accent)"));
}

function stepTile(model) {
  const predicted = model.memory.predicted_step_ms;
  const waited = model.profile.pipeline?.step_waited_ms ?? 0;
  const note = model.isMeasured
    ? `median of ${count(model.measured.steps.length, "step")}; predicted ${time(predicted)}` +
      (waited > 0 ? `; waited ${time(waited / model.measured.steps.length)} for data` : "")
    : "predicted";
  return kpi("step", time(model.stepMs()), note);
}

function savedTile({ keep_all_bytes: kept, peak_bytes: peak }) {
  if (!(kept > peak)) return kpi("saved", "nothing", "there was nothing to save");
  return kpi("saved", percent(1 - peak / kept), `${bytes(kept - peak)} less than keeping everything`);
}

function workTile({ memory, run }) {
  const split = run.accumulate > 1 ? `; ${run.accumulate} micro-batches` : "";
  return kpi(
    "kernels",
    memory.kernels.toLocaleString("en"),
    `${count(memory.recomputed_ops, "op")} recomputed${split}`,
  );
}

function summarySection(words) {
  const said = el("span", { class: "small", role: "status" });
  const pre = el("pre", { tabindex: "0", role: "region", "aria-label": "Summary in Markdown" }, words);
  const copy = button(
    "Copy",
    async () => {
      said.textContent = (await copied(words, pre)) ? "copied" : "select it and press Ctrl+C";
    },
    { class: "copy" },
  );
  section("summary", "Summary", "In Markdown, for a pull request or an issue.", el("p", null, copy, " ", said), pre);
}

async function copied(words, pre) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return document.execCommand("copy");
  }
}

start();

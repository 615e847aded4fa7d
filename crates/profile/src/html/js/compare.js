// Two profiles on one page: A filled, B as a line.

function compareHead(a, b) {
  const row = (name, value, show, lessIsGood = true) => {
    const [x, y] = [value(a), value(b)];
    const change = x ? (y - x) / x : y;
    const kind = Math.abs(change) < 0.0005 ? "same" : change < 0 === lessIsGood ? "better" : "worse";
    const words =
      kind === "same" ? "the same" : x ? `${change > 0 ? "+" : "−"}${percent(Math.abs(change))}` : "new";
    return el(
      "tr",
      null,
      el("th", { scope: "row" }, name),
      el("td", { class: "number" }, show(x)),
      el("td", { class: "number" }, show(y)),
      el("td", { class: `number ${kind}` }, words),
    );
  };
  const heads = ["", "A", "B", "B against A"].map((t, i) =>
    el("th", { scope: "col", class: i ? "number" : null }, t || el("span", { class: "hidden" }, "quantity")),
  );
  const main = document.getElementById("main");
  main.append(
    el(
      "div",
      { class: "hero" },
      el("p", { class: "eyebrow" }, "comparison"),
      // Layers of two models cannot be compared.
      el("h1", null, a.name),
      el("p", { class: "sub" }, "A: ", describeRun(a), " · ", describeBudget(a)),
      el("p", { class: "sub" }, "B: ", describeRun(b), " · ", describeBudget(b)),
      el(
        "table",
        { class: "versus" },
        el("caption", { class: "hidden" }, "A and B in numbers"),
        el("thead", null, el("tr", null, heads)),
        el(
          "tbody",
          null,
          row("peak", (m) => m.memory.peak_bytes, bytes),
          row("arena", (m) => m.memory.arena_bytes, bytes),
          row("states", (m) => m.memory.state_bytes, bytes),
          row(`step, ${a.isMeasured ? "measured" : "predicted"}`, (m) => m.stepMs(), time),
          row(
            "kernels of a step",
            (m) => m.memory.kernels,
            (n) => n.toLocaleString("en"),
          ),
          row(
            "ops recomputed",
            (m) => m.memory.recomputed_ops,
            (n) => n.toLocaleString("en"),
          ),
        ),
      ),
    ),
  );
}

function describeBudget({ memory }) {
  return memory.budget_bytes ? `budget ${bytes(memory.budget_bytes)}` : "no budget";
}

function compareSections(tables) {
  if (!tables.length) return;
  section(
    "differences",
    "Differences",
    null,
    tables.map((t) => [el("h3", null, t.title), plainTable(t.title, t.columns, t.rows)]),
  );
}

// Two profiles on one page: A filled, B as a line.

function compareHead(a, b) {
  const row = (name, value, show, lessIsGood = true) => {
    const [x, y] = [value(a), value(b)];
    // From nothing to something is no share of anything.
    const change = x === y ? 0 : x ? (y - x) / x : Infinity;
    const kind = Math.abs(change) < 0.0005 ? "same" : change < 0 === lessIsGood ? "better" : "worse";
    const share = change === Infinity ? "new" : `${change > 0 ? "+" : "−"}${percent(Math.abs(change))}`;
    const words = kind === "same" ? "the same" : share;
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
      el("h1", null, `${a.name} against ${b.name}`),
      el("p", { class: "sub" }, "A: ", describeRun(a)),
      el("p", { class: "sub" }, "B: ", describeRun(b)),
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
          row("step time", (m) => m.stepMs(), time),
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

function compareSections(tables) {
  if (!tables.length) return;
  section(
    "differences",
    "Differences",
    null,
    tables.map((t) => [el("h3", null, t.title), plainTable(t.title, t.columns, t.rows)]),
  );
}

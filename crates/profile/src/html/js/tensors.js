// A tensor in words: what it is, how long it lives, what it is kept for.

function itemName(model, item) {
  if (item.kind === "state") return item.state.name;
  const program = model.programs[item.p];
  if (item.kind === "scratch")
    return `scratch of ${where(program.launches[item.n].op, program.launches[item.n].layer)}`;
  const b = program.buffers[item.i];
  return b.op === "input" ? `input ${b.layer}` : where(b.op, b.layer);
}

function describeItem(view, item) {
  if (!item) return el("p", { class: "empty" }, "Nothing is here at this instant.");
  const { model, track } = view;
  const head = (c) =>
    el(
      "div",
      { class: "inspector-head" },
      swatch(c),
      el("strong", null, itemName(model, item)),
      el("span", { class: "small" }, CLASSES[c].name),
    );
  if (item.kind === "state") {
    const s = item.state;
    return el(
      "div",
      null,
      head(CLASS_OF.get(s.class)),
      facts([
        ["type", s.type],
        ["size", bytes(s.bytes)],
        ["offset", bytes(s.offset)],
        ["lives", "as long as the model"],
      ]),
    );
  }
  const program = model.programs[item.p];
  if (item.kind === "scratch") {
    const l = program.launches[item.n];
    return el(
      "div",
      null,
      head(SCRATCH),
      facts([
        ["size", bytes(l.scratch_bytes)],
        ["offset", bytes(l.scratch_offset)],
        ["lives", `during kernel ${item.n + 1}`],
      ]),
    );
  }
  const b = program.buffers[item.i],
    base = item.span.first;
  const ms = track.edges.time.end[base + b.end - 1] - track.edges.time.begin[base + b.first];
  return el(
    "div",
    null,
    head(CLASS_OF.get(b.class)),
    facts([
      ["type", b.type],
      ["size", bytes(b.bytes)],
      ["offset", bytes(b.offset)],
      ["lives", `${count(b.end - b.first, "kernel")}, ${time(ms)}: from ${b.first + 1} to ${b.end}`],
      [b.last_read === null ? "is" : "kept for", keptFor(program, b)],
      ["then", b.last_read !== null && b.last_read >= b.end && "the result of that kernel takes over its place"],
      ["made", madeHow(b)],
    ]),
  );
}

function keptFor(program, b) {
  if (b.last_read === null) return "an output of the program";
  const l = program.launches[b.last_read];
  return `${where(l.op, l.layer)}, kernel ${b.last_read + 1} (${l.part})`;
}

function madeHow(b) {
  const ways = [
    b.recomputed && "a second time, because the first copy was not kept",
    b.in_place && "in place of an operand",
  ];
  return ways.filter(Boolean).join("; ");
}

function bufferTable(view, chart) {
  const { model } = view,
    { what, first } = chart.items;
  const data = what
    .map((item, i) => ({ item, i }))
    .filter(({ item }) => item.kind === "buffer" && item.span.run.repetition === 0);
  const of = ({ item }) => model.programs[item.p].buffers[item.i];
  return table(
    "Tensors of a step",
    [
      { title: "bytes", value: (r) => of(r).bytes, show: (r) => bytes(of(r).bytes), numeric: true },
      { title: "class", value: (r) => CLASSES[CLASS_OF.get(of(r).class)].name },
      { title: "op", value: (r) => of(r).op },
      { title: "layer", value: (r) => of(r).layer, wide: true },
      { title: "type", value: (r) => of(r).type },
      { title: "offset", value: (r) => of(r).offset, show: (r) => bytes(of(r).offset), numeric: true },
      { title: "kernels", value: (r) => of(r).end - of(r).first, numeric: true },
    ],
    data,
    {
      onrow: ({ item, i }) => {
        select(view, item);
        view.go(first[i]);
        scrollToSection("arena");
      },
    },
  );
}

function stateTable(model) {
  return table(
    "States",
    [
      { title: "bytes", value: (s) => s.bytes, show: (s) => bytes(s.bytes), numeric: true },
      { title: "name", value: (s) => s.name, wide: true },
      { title: "class", value: (s) => CLASSES[CLASS_OF.get(s.class)].name },
      { title: "type", value: (s) => s.type },
      { title: "offset", value: (s) => s.offset, show: (s) => bytes(s.offset), numeric: true },
    ],
    model.profile.states,
  );
}

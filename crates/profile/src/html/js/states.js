// The state segment as a band below the arena.

// The state segment, one beside the other: nothing of it ever moves.
function stateBand(view) {
  const states = view.model.states(),
    total = view.model.memory.state_bytes || 1;
  const items = states.map((state) => ({ kind: "state", state }));
  const band = new Chart(
    `The states: ${count(states.length, "tensor")} in ${bytes(total)}.`,
    34,
    (context, width, height, colours) => {
      band.sx = linear(0, total, LEFT, width - RIGHT);
      context.fillStyle = colours.paper;
      context.fillRect(LEFT, 0, width - RIGHT - LEFT, height);
      for (const item of items) {
        const left = band.sx(item.state.offset),
          right = band.sx(item.state.offset + item.state.bytes),
          w = right - left;
        context.fillStyle = colours.classes[CLASS_OF.get(item.state.class)];
        context.fillRect(left, 0, Math.max(0.5, w > 3 ? w - 0.75 : w), height);
        if (item !== (view.selected ?? view.hovered)) continue;
        context.strokeStyle = colours.ink;
        context.lineWidth = 2;
        context.strokeRect(left, 1, Math.max(2, w), height - 2);
      }
      text(context, "states", LEFT - 8, height / 2, colours.muted, "right");
    },
    { tabindex: "0", role: "application", "aria-roledescription": "chart" },
  );
  attachBand(band, view, items);
  return band;
}

function attachBand(band, view, items) {
  const find = (event) => {
    const { x } = localPoint(event);
    return items.find(({ state }) => x >= band.sx(state.offset) && x <= band.sx(state.offset + state.bytes)) ?? null;
  };
  const move = (by) => {
    const at = items.indexOf(view.selected);
    if (items.length) select(view, items[Math.max(0, Math.min(items.length - 1, at < 0 ? 0 : at + by))]);
  };
  band.canvas.addEventListener("pointermove", (event) => {
    view.hovered = find(event);
    view.changed();
  });
  band.canvas.addEventListener("click", (event) => select(view, find(event)));
  band.canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    move(by);
    event.preventDefault();
  });
}

// Which part of a step is shown, and where the cursor is: one state for the timeline and the arena, so that they move together.

const LEFT = 68,
  RIGHT = 14;
// The least that is shown: so many launches, or by time so small a part of the step.
const CLOSEST = { position: 3, time: 2e-5 };

class StepView {
  constructor(model, other = null) {
    this.model = model;
    this.other = other;
    this.listeners = [];
    this.mode = "time";
    // Whether the timeline stacks on the states, which never change, or leaves them out.
    this.withStates = true;
    this.setScope(null);
  }

  setScope(scope) {
    this.scope = scope;
    this.track = new Track(this.model, scope);
    this.otherTrack = this.other ? new Track(this.other, null) : null;
    this.cursor = this.track.length ? this.track.peak() : 0;
    this.selected = null;
    this.hovered = null;
    this.reset();
  }

  setMode(mode) {
    this.mode = mode;
    this.reset();
  }

  get full() {
    const widths = [this.track, this.otherTrack].filter(Boolean).map((t) => t.edges[this.mode].width);
    return Math.max(...widths);
  }

  get edges() {
    return this.track.edges[this.mode];
  }
  get isWhole() {
    return this.x1 - this.x0 >= this.full * 0.9999;
  }

  on(listener) {
    this.listeners.push(listener);
  }
  changed() {
    this.listeners.forEach((listener) => listener());
  }

  reset() {
    this.show(0, this.full);
  }

  show(from, to) {
    const least = Math.min(this.full, this.mode === "time" ? this.full * CLOSEST.time : CLOSEST.position);
    const width = Math.min(this.full, Math.max(least, to - from));
    const middle = (from + to) / 2;
    this.x0 = Math.max(0, Math.min(this.full - width, middle - width / 2));
    this.x1 = this.x0 + width;
    this.changed();
  }

  // A factor above 1 goes closer; `about` stays where it is.
  zoom(factor, about = (this.x0 + this.x1) / 2) {
    const width = (this.x1 - this.x0) / factor,
      share = (about - this.x0) / (this.x1 - this.x0);
    this.show(about - width * share, about + width * (1 - share));
  }

  pan(by) {
    this.show(this.x0 + by, this.x1 + by);
  }

  setCursor(g) {
    this.cursor = Math.max(0, Math.min(this.track.length - 1, g));
    this.changed();
  }

  // Moves the cursor and what is shown, so that the cursor is in it.
  go(g) {
    this.setCursor(g);
    const x = this.track.middle(this.mode, this.cursor);
    if (x < this.x0 || x > this.x1) this.pan(x - (this.x0 + this.x1) / 2);
  }
}

// Mouse, touch and keys of a chart over the view. `chart.plot` is where it draws.
function attach(chart, view, { hover, click, key }) {
  const canvas = chart.canvas;
  const toX = (px) => view.x0 + ((px - chart.plot.left) / (chart.plot.right - chart.plot.left)) * (view.x1 - view.x0);
  const perPixel = () => (view.x1 - view.x0) / (chart.plot.right - chart.plot.left);
  attachWheel(canvas, view, toX, perPixel);
  attachKeys(canvas, view, key);
  const fingers = new Map();
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    const point = localPoint(event);
    fingers.set(event.pointerId, point);
    canvas.setPointerCapture(event.pointerId);
    drag = {
      from: point,
      last: point,
      brush: event.shiftKey || (view.isWhole && event.pointerType === "mouse"),
      moved: false,
    };
  });
  canvas.addEventListener("pointermove", (event) => {
    const point = localPoint(event);
    if (!fingers.has(event.pointerId)) return hover(point, toX(point.x));
    if (fingers.size === 2) return pinch(view, fingers, event.pointerId, point, toX);
    fingers.set(event.pointerId, point);
    drag.moved ||= Math.abs(point.x - drag.from.x) > 4;
    if (!drag.moved) return;
    if (drag.brush) chart.brush = [drag.from.x, point.x];
    else view.pan((drag.last.x - point.x) * perPixel());
    drag.last = point;
    chart.request();
  });
  const end = (event) => {
    const point = localPoint(event),
      single = fingers.size === 1;
    fingers.delete(event.pointerId);
    chart.brush = null;
    if (single && drag && event.type === "pointerup") {
      if (!drag.moved) click(point, toX(point.x));
      else if (drag.brush) view.show(...[toX(drag.from.x), toX(point.x)].sort((a, b) => a - b));
    }
    chart.request();
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("dblclick", (event) => view.zoom(2.5, toX(localPoint(event).x)));
}

function pinch(view, fingers, id, point, toX) {
  const [a, b] = [...fingers.values()];
  const before = Math.max(20, Math.abs(a.x - b.x)),
    about = toX((a.x + b.x) / 2);
  fingers.set(id, point);
  const [c, d] = [...fingers.values()];
  view.zoom(Math.max(20, Math.abs(c.x - d.x)) / before, about);
}

// The page keeps its wheel until the chart has the focus, or control is held.
function attachWheel(canvas, view, toX, perPixel) {
  canvas.addEventListener(
    "wheel",
    (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (sideways) {
        if (view.isWhole) return;
        view.pan((event.deltaX || event.deltaY) * perPixel());
      } else if (event.ctrlKey || event.metaKey || document.activeElement === canvas) {
        const lines = event.deltaMode === 1 ? 16 : 1;
        view.zoom(Math.exp((-event.deltaY * lines) / 300), toX(localPoint(event).x));
      } else {
        return;
      }
      event.preventDefault();
    },
    { passive: false },
  );
}

function attachKeys(canvas, view, key) {
  const about = () => view.track.middle(view.mode, view.cursor);
  const actions = {
    ArrowLeft: (e) => view.go(view.cursor - (e.shiftKey ? 10 : 1)),
    ArrowRight: (e) => view.go(view.cursor + (e.shiftKey ? 10 : 1)),
    Home: () => view.go(0),
    End: () => view.go(view.track.length - 1),
    PageUp: () => view.pan(-(view.x1 - view.x0) / 2),
    PageDown: () => view.pan((view.x1 - view.x0) / 2),
    "+": () => view.zoom(1.6, about()),
    "=": () => view.zoom(1.6, about()),
    "-": () => view.zoom(1 / 1.6, about()),
    0: () => view.reset(),
    p: () => view.go(view.track.peak()),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = key?.[event.key] ?? actions[event.key];
    if (!action) return;
    action(event);
    event.preventDefault();
  });
}

// The buttons above both charts.
function viewControls(view) {
  const programs = view.model.programs.map((p, i) => [i, p]).filter(([, p]) => p.repeats === 0 && p.launches.length);
  const scopes = [["step", "training step"], ...programs.map(([i, p]) => [String(i), p.phase])];
  const pick = (value) => view.setScope(value === "step" ? null : Number(value));
  return el(
    "div",
    { class: "controls" },
    choice(
      "Horizontal axis",
      [
        ["time", "by time"],
        ["position", "by kernel"],
      ],
      view.mode,
      (mode) => view.setMode(mode),
    ),
    programs.length > 0 && !view.other && choice("Program", scopes, "step", pick),
    choice(
      "Bytes",
      [
        ["all", "with states"],
        ["step", "without"],
      ],
      "all",
      (bytes_) => {
        view.withStates = bytes_ === "all";
        view.changed();
      },
    ),
    el(
      "div",
      { class: "choice", role: "group", "aria-label": "Zoom" },
      button("−", () => view.zoom(1 / 1.6), { "aria-label": "Zoom out" }),
      button("+", () => view.zoom(1.6), { "aria-label": "Zoom in" }),
      button("all", () => view.reset(), { "aria-label": "Show the whole step" }),
      button("peak", () => showPeak(view), { "aria-label": "Go to the peak" }),
    ),
  );
}

function showPeak(view) {
  const g = view.track.peak(),
    x = view.track.middle(view.mode, g),
    width = Math.min(view.x1 - view.x0, view.full / 4);
  view.cursor = g;
  view.show(x - width / 2, x + width / 2);
}

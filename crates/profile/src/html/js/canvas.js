// Canvases: as sharp as the screen, redrawn when their size or the colours change, and what all charts draw alike.

const FONT = '12px Inter, ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

class Chart {
  // `draw(context, width, height, colours)` draws everything, in pixels of the page.
  constructor(label, height, draw, options = {}) {
    this.draw = draw;
    this.canvas = el("canvas", { class: "chart", role: "img", "aria-label": label, ...options });
    this.canvas.style.height = `${height}px`;
    this.frame = 0;
    this.width = 0;
    this.height = height;
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    theme.listeners.push(() => this.recolour());
    this.colours = colours();
  }

  recolour() {
    this.colours = colours();
    this.stale = true;
    this.request();
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    this.ratio = Math.min(3, window.devicePixelRatio || 1);
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = Math.round(box.width * this.ratio);
    this.canvas.height = Math.round(box.height * this.ratio);
    this.stale = true;
    this.redraw();
  }

  request() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.redraw());
  }

  redraw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.width) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.draw(context, this.width, this.height, this.colours);
  }
}

function text(context, words, x, y, colour, align = "left") {
  context.fillStyle = colour;
  context.textAlign = align;
  context.fillText(words, x, y);
}

// Words on a small plate, so that they can be read over anything.
function plate(context, words, x, y, colours, align = "left", colour = colours.ink) {
  const width = context.measureText(words).width + 10;
  const left = align === "right" ? x - width : align === "center" ? x - width / 2 : x;
  context.globalAlpha = 0.88;
  context.fillStyle = colours.surface;
  context.beginPath();
  context.roundRect(left, y - 9, width, 18, 4);
  context.fill();
  context.globalAlpha = 1;
  text(context, words, left + 5, y + 0.5, colour);
}

function segment(context, x0, y0, x1, y1, colour, width = 1, dash = []) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.setLineDash([]);
}

// Horizontal lines with their values, left of a plot.
function yAxis(context, plot, values, scale, show, colours) {
  for (const value of values) {
    const y = Math.round(scale(value)) + 0.5;
    if (y < plot.top - 1 || y > plot.bottom + 1) continue;
    segment(context, plot.left, y, plot.right, y, colours.grid);
    text(context, show(value), plot.left - 8, y, colours.muted, "right");
  }
}

// Values below a plot; those that would stand on each other are left out.
function xAxis(context, plot, values, scale, show, colours) {
  let free = -Infinity;
  for (const value of values) {
    const x = scale(value);
    if (x < plot.left - 1 || x > plot.right + 1) continue;
    const words = show(value),
      half = context.measureText(words).width / 2;
    segment(context, Math.round(x) + 0.5, plot.bottom, Math.round(x) + 0.5, plot.bottom + 4, colours.line);
    if (x - half < free) continue;
    const at = Math.max(plot.left + half - 4, Math.min(plot.right - half + 4, x));
    text(context, words, at, plot.bottom + 14, colours.muted, "center");
    free = at + half + 10;
  }
}

// As much of some words as there is room for.
function fitted(context, words, width) {
  if (width < 18) return "";
  const all = context.measureText(words).width;
  if (all <= width) return words;
  const keep = Math.floor((words.length * (width - 8)) / all);
  return keep < 3 ? "" : words.slice(0, keep) + "…";
}

function linear(from, to, a, b) {
  const slope = (b - a) / (to - from || 1);
  return (value) => a + (value - from) * slope;
}

function logarithmic(from, to, a, b) {
  const inner = linear(Math.log10(from), Math.log10(to), a, b);
  return (value) => inner(Math.log10(Math.max(value, 1e-12)));
}

function localPoint(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

// Charts of points, of which one can be chosen by the pointer or by arrow keys and is then said in words.

// `draw(context, width, height, colours, at)` draws everything, with the point `at` marked, and gives the places of all points.
function pointChart({ label, height, points, draw, words, readout, reach = 30 }) {
  let at = -1;
  let places = [];
  const chart = new Chart(
    label,
    height,
    (context, width, height_, colours) => {
      places = draw(context, width, height_, colours, at);
    },
    { tabindex: "0", role: "application", "aria-roledescription": "chart" },
  );
  const show = (i) => {
    at = i;
    if (points[i]) readout.textContent = words(points[i]);
    chart.request();
  };
  chart.canvas.addEventListener("pointermove", (event) => show(nearest(places, localPoint(event), reach)));
  chart.canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !points.length) return;
    show((Math.max(at, by < 0 ? 0 : -1) + by + points.length) % points.length);
    event.preventDefault();
  });
  return chart;
}

function nearest(places, { x, y }, reach) {
  let best = -1;
  let least = reach * reach;
  places.forEach((p, i) => {
    const distance = (p.x - x) ** 2 + (p.y === undefined ? 0 : (p.y - y) ** 2);
    if (distance < least) [least, best] = [distance, i];
  });
  return best;
}

function dot(context, x, y, r, fill, rim) {
  context.beginPath();
  context.arc(x, y, r, 0, 7);
  context.fillStyle = fill;
  context.fill();
  context.strokeStyle = rim;
  context.lineWidth = 1;
  context.stroke();
}

function rangeOf(values) {
  return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
}

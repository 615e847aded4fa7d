// Tables that sort by a click on a head, and show the rest of their rows when asked.

const FIRST_ROWS = 12;

// `columns`: {title, value(row) → number or text, show(row) → node or text, numeric, wide}. Sorted by column `sorted`, numbers
// from the largest on. With `onrow`, the wide cell of a row leads there.
function table(caption, columns, data, { sorted = 0, first = FIRST_ROWS, onrow } = {}) {
  const state = { column: sorted, down: Boolean(columns[sorted]?.numeric), all: data.length <= first * 1.5 };
  const heads = columns.map((column, i) => head(column, () => sortBy(i)));
  const body = el("tbody");
  const more = button(
    "",
    () => {
      state.all = !state.all;
      fill();
    },
    { class: "more" },
  );
  const fill = () => {
    const order = arranged(columns[state.column], data, state.down);
    heads.forEach((h, i) => setSort(h, i === state.column, state.down));
    replace(
      body,
      (state.all ? order : order.slice(0, first)).map((row) => line(columns, row, onrow)),
    );
    more.textContent = state.all ? `Show the first ${first}` : `Show all ${data.length.toLocaleString("en")}`;
  };
  const sortBy = (i) => {
    state.down = i === state.column ? !state.down : Boolean(columns[i].numeric);
    state.column = i;
    fill();
  };
  fill();
  const grid = el(
    "table",
    null,
    el("caption", { class: "hidden" }, caption),
    el("thead", null, el("tr", null, heads)),
    body,
  );
  const scroller = el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": caption }, grid);
  return el("div", { class: "table" }, scroller, data.length > first * 1.5 && more);
}

function head(column, onclick) {
  const sorter = column.value && el("button", { type: "button", onclick }, column.title);
  return el("th", { scope: "col", class: column.numeric ? "number" : null }, sorter ?? column.title);
}

function setSort(th, isSorted, down) {
  if (isSorted) th.setAttribute("aria-sort", down ? "descending" : "ascending");
  else th.removeAttribute("aria-sort");
}

function arranged(column, data, down) {
  const sign = down ? -1 : 1;
  const keys = new Map(data.map((row) => [row, column.value(row)]));
  // What has no value stands last, whichever way the rest is sorted.
  const compare = (a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true }));
  };
  return [...data].sort(compare);
}

function line(columns, row, onrow) {
  const cells = columns.map((c) => {
    const shown = c.show ? c.show(row) : c.value(row);
    // The name of a row that leads somewhere is the button, so that keys reach it.
    const inner = onrow && c.wide ? button(shown || "–", () => onrow(row), { class: "rowlink" }) : shown;
    return el("td", { class: c.numeric ? "number" : c.wide ? "wide" : null }, inner ?? "–");
  });
  return el("tr", null, cells);
}

// Rows of plain text, in the order in which they are.
function plainTable(caption, titles, rows) {
  const columns = titles.map((title, i) => ({
    title,
    show: (row) => row[i],
    numeric: i > 0 && rows.every((r) => isNumber(r[i])),
  }));
  const headRow = el(
    "tr",
    null,
    columns.map((c) => head(c)),
  );
  const grid = el(
    "table",
    null,
    el("caption", { class: "hidden" }, caption),
    el("thead", null, headRow),
    el(
      "tbody",
      null,
      rows.map((row) => line(columns, row)),
    ),
  );
  return el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": caption }, grid);
}

function isNumber(text) {
  return /^(|–|new|[-−+]?\s*\d[\d.,]*\s*[%×\wµ/]*)$/.test(String(text));
}

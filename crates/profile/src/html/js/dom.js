// Elements. Text only ever arrives as text.

function el(tag, options, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options ?? {})) {
    const isAria = name.startsWith("aria-");
    if (value === null || value === undefined || (value === false && !isAria)) continue;
    if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !isAria ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// A part of the page, with its entry in the navigation.
function section(id, title, lead, ...children) {
  const heading = el("h2", { id: `${id}-title` }, title);
  const part = el(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    heading,
    lead && el("p", { class: "lead" }, lead),
  );
  append(part, children);
  document.getElementById("main").append(part);
  document.querySelector("nav").append(el("a", { href: `#${id}` }, title));
  return part;
}

function scrollToSection(id) {
  document.getElementById(id).scrollIntoView();
}

function button(label, onclick, options) {
  return el("button", { type: "button", onclick, ...options }, label);
}

// One of several: buttons of which one is pressed.
function choice(label, options, chosen, onchange) {
  const buttons = options.map(([value, text]) =>
    button(text, () => choose(value), { "aria-pressed": value === chosen }),
  );
  const choose = (value) => {
    options.forEach(([v], i) => buttons[i].setAttribute("aria-pressed", String(v === value)));
    onchange(value);
  };
  return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

function swatch(c) {
  return el("span", { class: "swatch", "aria-hidden": "true", style: { background: `var(--class-${c})` } });
}

function legend(classes) {
  return el(
    "ul",
    { class: "legend", "aria-label": "Colours" },
    classes.map((c) => el("li", null, swatch(c), CLASSES[c].name)),
  );
}

// Name and value pairs.
function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return el(
    "dl",
    { class: "facts" },
    known.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))),
  );
}

// What stands behind a picture, for who would rather read it.
function behind(title, make) {
  const details = el("details", { class: "behind" }, el("summary", null, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make());
  });
  return details;
}

// A share of a whole as a bar.
function bar(share, colour) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el(
    "span",
    { class: "bar-track", "aria-hidden": "true" },
    el("span", { style: { width, background: colour } }),
  );
}

// The same with its value behind it.
function barred(share, colour, value) {
  return [bar(share, colour), el("span", { class: "value" }, value)];
}

const theme = {
  listeners: [],
  system: matchMedia("(prefers-color-scheme: dark)"),
  // As the page says, or as the system does until the reader chooses.
  chosen: document.documentElement.dataset.theme,
  apply() {
    document.documentElement.dataset.theme = this.chosen || (this.system.matches ? "dark" : "light");
    const isDark = document.documentElement.dataset.theme === "dark";
    const toggle = document.querySelector("button.theme");
    toggle.textContent = isDark ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark ? "Light colours" : "Dark colours");
    this.listeners.forEach((listener) => listener());
  },
  start() {
    this.apply();
    this.system.addEventListener("change", () => this.apply());
    document.querySelector("button.theme").addEventListener("click", () => {
      this.chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      this.apply();
    });
  },
};

// The colours of the style sheet, for canvases.
function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const names = ["ink", "muted", "line", "grid", "surface", "paper", "accent", "alarm", "good"];
  const all = Object.fromEntries(names.map((name) => [name, read(`--${name}`)]));
  all.classes = CLASSES.map((_, c) => read(`--class-${c}`));
  all.parts = PARTS.map((part) => read(`--${part}`));
  return all;
}

// Black or white, whichever is easier to read on a colour such as #1a2b3c.
function inkOn(colour) {
  const channel = (i) => {
    const c = parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  const luminance = 0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2);
  return luminance > 0.179 ? "#000000" : "#ffffff";
}

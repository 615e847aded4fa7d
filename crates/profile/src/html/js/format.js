// Numbers as people read them.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// Three digits. What lies in the middle goes to the even one, as everywhere else in memfit.
function digits(value) {
  const size = Math.abs(value),
    places = size < 10 ? 2 : size < 100 ? 1 : 0;
  const scaled = value * 10 ** places,
    below = Math.floor(scaled);
  const isMiddle = scaled - below === 0.5;
  return ((isMiddle ? below + (below % 2) : Math.round(scaled)) / 10 ** places).toFixed(places);
}

function bytes(count) {
  let value = Math.abs(count),
    unit = 0;
  while (value >= 1024 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  const sign = count < 0 ? "−" : "";
  return sign + (unit === 0 ? Math.round(value) : digits(value)) + " " + BYTE_UNITS[unit];
}

// The bytes of a tick, which is round in its unit: no more digits than it has, and as many as tell it from the next one.
function byteTick(count) {
  const unit = Math.min(byteUnit(count), BYTE_UNITS.length - 1);
  return `${Number((count / 1024 ** unit).toPrecision(4))} ${BYTE_UNITS[unit]}`;
}

// The largest unit of which there is at least one.
function byteUnit(count) {
  return Math.floor(Math.log2(Math.max(1, Math.abs(count))) / 10);
}

function time(ms) {
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size >= 1e3) return digits(ms / 1e3) + " s";
  return size >= 1 ? digits(ms) + " ms" : digits(ms * 1e3) + " µs";
}

function percent(share) {
  const p = share * 100;
  return (Math.abs(p) >= 10 || p === 0 ? p.toFixed(0) : p.toFixed(1)) + " %";
}

function count(n, singular, plural) {
  return n.toLocaleString("en") + " " + (n === 1 ? singular : (plural ?? singular + "s"));
}

// A number in three digits, small ones too.
function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  return size >= 1e4 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// Round values that divide a range into about so many parts.
function ticks(from, to, parts) {
  const raw = (to - from) / Math.max(1, parts);
  if (!(raw > 0) || !Number.isFinite(raw)) return [];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  return multiples(from, to, step);
}

// The same for bytes: round in their unit, and halves, quarters… of it where they are closer than that.
function byteTicks(from, to, parts) {
  const raw = (to - from) / Math.max(1, parts);
  if (!(raw > 0) || !Number.isFinite(raw)) return [];
  const unit = 1024 ** byteUnit(raw);
  if (byteUnit(raw) < byteUnit(to)) return multiples(from, to, 2 ** Math.ceil(Math.log2(raw * 0.999)));
  const step = unit * [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1024].find((m) => m * unit >= raw * 0.999);
  return multiples(from, to, step);
}

function multiples(from, to, step) {
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n += 1) found.push(n * step);
  return found;
}

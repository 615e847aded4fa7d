// The profile as it is embedded, and what follows from it.

// In the order in which they are stacked: the same as in the data.
const CLASSES = [
  { key: "parameters", name: "parameters" },
  { key: "optimizer", name: "optimizer" },
  { key: "statistics", name: "statistics" },
  { key: "input", name: "input" },
  { key: "activations", name: "activations" },
  { key: "activation_gradients", name: "activation gradients" },
  { key: "gradients", name: "gradients" },
  { key: "accumulators", name: "accumulators" },
  { key: "scratch", name: "scratch" },
];
const CLASS_OF = new Map(CLASSES.map((c, i) => [c.key, i]));
const ACCUMULATORS = CLASS_OF.get("accumulators");
const SCRATCH = CLASS_OF.get("scratch");

// The first ones are those of the state segment.
const STATE_CLASSES = 3;

const PARTS = ["forward", "recompute", "backward", "update"];

// The way back from columns and numbered words.
function unpack(value) {
  if (Array.isArray(value)) return value.map(unpack);
  if (value === null || typeof value !== "object") return value;
  if (value["="]) return value["@"].map((n) => value["="][n]);
  if (value["#"]) return rows(value["#"]);
  return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, unpack(v)]));
}

function rows(packed) {
  const columns = Object.entries(packed).map(([key, v]) => [key, unpack(v)]);
  const length = columns.length ? columns[0][1].length : 0;
  return Array.from({ length }, (_, i) => Object.fromEntries(columns.map(([key, column]) => [key, column[i]])));
}

// A profile with what others ask of it again and again.
class Model {
  constructor(profile) {
    this.profile = profile;
    this.memory = profile.memory;
    this.run = profile.run;
    this.programs = profile.programs;
    this.measured = profile.measured ?? null;
    this.stateSums = this.sumStates();
    this.liveSums = this.programs.map((p) => this.sumLive(p));
    // The most that is live in a launch, states included.
    this.most = Math.max(this.memory.peak_bytes, ...this.programs.map((p) => this.mostIn(p)));
  }

  get name() {
    return this.run.model || "model";
  }

  states() {
    return this.profile.states.filter((s) => s.class !== "accumulators");
  }
  accumulators() {
    return this.profile.states.filter((s) => s.class === "accumulators");
  }

  // Bytes of the state segment by class, with what is left free between states.
  sumStates() {
    const sums = new Float64Array(CLASSES.length);
    const states = this.states();
    states.forEach((s, i) => {
      const end = i + 1 < states.length ? states[i + 1].offset : this.memory.state_bytes;
      sums[CLASS_OF.get(s.class)] += Math.max(0, end - s.offset);
    });
    return sums;
  }

  // Live bytes by launch and class, one row after the other.
  sumLive(program) {
    const width = CLASSES.length,
      length = program.launches.length;
    const changes = new Float64Array((length + 1) * width);
    for (const b of program.buffers) {
      const c = CLASS_OF.get(b.class);
      changes[b.first * width + c] += b.bytes;
      changes[b.end * width + c] -= b.bytes;
    }
    const sums = new Float64Array(length * width);
    const running = Float64Array.from(this.stateSums);
    running[ACCUMULATORS] += program.accumulator_bytes;
    for (let n = 0; n < length; n += 1) {
      for (let c = 0; c < width; c += 1) {
        running[c] += changes[n * width + c];
        sums[n * width + c] = running[c];
      }
      sums[n * width + SCRATCH] += program.launches[n].scratch_bytes;
    }
    return sums;
  }

  mostIn(program) {
    return program.launches.reduce((most, l) => Math.max(most, l.live_bytes + this.memory.state_bytes), 0);
  }

  // Live bytes of one launch by class.
  liveByClass(p, n) {
    return this.liveSums[p].subarray(n * CLASSES.length, (n + 1) * CLASSES.length);
  }

  // Of the transient segment, the largest first.
  liveBuffers(p, n) {
    const live = this.programs[p].buffers.filter((b) => b.first <= n && n < b.end);
    return live.sort((a, b) => b.bytes - a.bytes);
  }

  kernelTimes(p, n) {
    const times = this.measured?.kernels?.[p]?.[n];
    return times && times.count > 0 ? times : null;
  }

  // As measured, the median, or as predicted where it did not run.
  launchUs(p, n) {
    return this.kernelTimes(p, n)?.median_us ?? this.programs[p].launches[n].predicted_us;
  }

  get isMeasured() {
    return Boolean(this.measured && this.measured.steps.length);
  }

  stepMs() {
    if (!this.isMeasured) return this.memory.predicted_step_ms;
    // The one in the middle: the first step of a run takes longer than those after it.
    const times = this.measured.steps.map((s) => s.ms).sort((a, b) => a - b);
    return times[times.length >> 1];
  }

  // The most that was ever measured of a field of the steps; null where nobody could ask.
  mostMeasured(field) {
    const known = (this.measured?.steps ?? []).map((s) => s[field]).filter((v) => v !== null && v !== undefined);
    return known.length ? known.reduce((a, b) => Math.max(a, b)) : null;
  }

  peakLaunch() {
    return this.programs[this.profile.peak.program]?.launches[this.profile.peak.launch] ?? null;
  }
}

function where(op, layer) {
  return layer ? `${op} of ${layer}` : op;
}

// A training step laid out from left to right: the launches of its programs, each so often as it runs. A program that runs too
// often to draw each time is drawn once at the start and once at the end, with a gap between.

const MOST_REPEATS = 16;
const MOST_DRAWN = 40000;
// Of a repetition: how wide a gap is.
const GAP = 0.3;

class Track {
  // `scope` is null for the training step, or the number of a program that is no part of it.
  constructor(model, scope) {
    this.model = model;
    this.scope = scope;
    this.runs = scope === null ? stepRuns(model) : [{ p: scope, repetition: 0, of: 1, skipped: 0 }];
    this.length = this.runs.reduce((n, r) => n + launchesOf(model, r), 0);
    this.program = new Int32Array(this.length);
    this.launch = new Int32Array(this.length);
    this.edges = { position: this.lay(() => 1), time: this.lay((p, n) => model.launchUs(p, n) / 1e3) };
  }

  // Where each launch begins and ends, and where each run does.
  lay(widthOf) {
    const begin = new Float64Array(this.length),
      end = new Float64Array(this.length);
    const spans = [];
    let x = 0,
      g = 0,
      skipped = 0;
    for (const run of this.runs) {
      const from = x,
        first = g;
      if (run.skipped) {
        const last = spans[spans.length - 1];
        x += (last.to - last.from) * GAP;
        skipped += (last.to - last.from) * (run.skipped - GAP);
      } else {
        const launches = this.model.programs[run.p].launches;
        for (let n = 0; n < launches.length; n += 1, g += 1) {
          this.program[g] = run.p;
          this.launch[g] = n;
          begin[g] = x;
          x += Math.max(widthOf(run.p, n), 1e-9);
          end[g] = x;
        }
      }
      spans.push({ run, from, to: x, first, last: g, skipped });
    }
    return { begin, end, spans, width: Math.max(x, 1e-9) };
  }

  // The launch at a place, or the nearest one before.
  at(mode, x) {
    const { begin } = this.edges[mode];
    let low = 0,
      high = this.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (begin[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  middle(mode, g) {
    const { begin, end } = this.edges[mode];
    return (begin[g] + end[g]) / 2;
  }

  // What lies left of a place, gaps counted in full.
  real(mode, x) {
    const span = this.edges[mode].spans.findLast((s) => s.from <= x);
    return x + (span && !span.run.skipped ? span.skipped : 0);
  }

  // The place of a launch of a program, in the first run that has it; -1 where there is none.
  find(p, n) {
    const span = this.edges.position.spans.find((s) => !s.run.skipped && s.run.p === p);
    return span && n < span.last - span.first ? span.first + n : -1;
  }

  peak() {
    const { program, launch } = this.model.profile.peak;
    const found = this.find(program, launch);
    if (found >= 0) return found;
    let best = 0;
    for (let g = 1; g < this.length; g += 1) if (this.live(g) > this.live(best)) best = g;
    return best;
  }

  live(g) {
    return this.launchAt(g).live_bytes;
  }
  launchAt(g) {
    return this.model.programs[this.program[g]].launches[this.launch[g]];
  }
  classes(g) {
    return this.model.liveByClass(this.program[g], this.launch[g]);
  }
}

function launchesOf(model, run) {
  return run.skipped ? 0 : model.programs[run.p].launches.length;
}

function stepRuns(model) {
  const size = (p) => Math.max(p.launches.length, p.buffers.length) * p.repeats;
  const total = model.programs.reduce((sum, p) => sum + size(p), 0);
  return model.programs.flatMap((program, p) => {
    const of = program.repeats;
    const one = (repetition) => ({ p, repetition, of, skipped: 0 });
    if (of > 2 && (of > MOST_REPEATS || total > MOST_DRAWN)) {
      return [one(0), { p, repetition: 1, of, skipped: of - 2 }, one(of - 1)];
    }
    return Array.from({ length: of }, (_, n) => one(n));
  });
}

function runName(model, run) {
  const phase = model.programs[run.p].phase;
  if (run.of === 1) return phase;
  return run.skipped ? `× ${run.skipped} more` : `micro-batch ${run.repetition + 1} of ${run.of}`;
}

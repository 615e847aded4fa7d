//! Curves of runs over their steps: in the terminal, and as SVG. Several runs are overlaid, each in its colour.

use memfit::plan::bytes::Bytes;
use memfit::profile::Curve;

use crate::show::svg::{escape, text};

/// A quantity, of every run that has it.
pub struct Plot<'a> {
    pub name: &'a str,
    /// The number of the run, and its curve.
    pub curves: Vec<(usize, &'a Curve)>,
    /// What stands below it, where that is not the step.
    pub axis: Option<Axis>,
}

/// What the steps of a plot stand for.
#[derive(Clone)]
pub struct Axis {
    pub name: &'static str,
    /// At the first and at the last step.
    pub ends: [String; 2],
}

/// Lines of a plot in the terminal.
const HEIGHT: usize = 10;
/// What stands left of it.
const LABELS: usize = 10;
/// Dots of a character of braille: columns and rows.
const DOTS: (usize, usize) = (2, 4);
/// Of the terminal, readable on light and on dark.
const TERMINAL: [&str; 6] = ["34", "33", "32", "35", "36", "31"];
/// The same as in a picture: colours that the colour-blind tell apart.
const PICTURE: [&str; 6] = ["#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377"];

/// The quantities of all runs, in the order in which the first run that has one lists it.
pub fn plots<'a>(runs: &'a [Vec<Curve>]) -> Vec<Plot<'a>> {
    let mut plots: Vec<Plot<'a>> = Vec::new();
    for (run, curve) in runs.iter().enumerate().flat_map(|(i, curves)| curves.iter().map(move |c| (i, c))) {
        match plots.iter_mut().find(|p| p.name == curve.name) {
            Some(plot) => plot.curves.push((run, curve)),
            None => plots.push(Plot { name: &curve.name, curves: vec![(run, curve)], axis: None }),
        }
    }
    plots
}

/// The extent of a plot: steps and values.
struct Extent {
    steps: (f64, f64),
    values: (f64, f64),
}

impl Extent {
    fn new(plot: &Plot) -> Extent {
        let mut extent = Extent { steps: (f64::MAX, f64::MIN), values: (f64::MAX, f64::MIN) };
        for &(step, value) in plot.curves.iter().flat_map(|(_, c)| &c.points) {
            let step = step as f64;
            extent.steps = (extent.steps.0.min(step), extent.steps.1.max(step));
            extent.values = (extent.values.0.min(value), extent.values.1.max(value));
        }
        extent
    }

    /// Both in 0 to 1.
    fn at(&self, step: u64, value: f64) -> (f64, f64) {
        let share = |x: f64, (low, high): (f64, f64)| if high > low { (x - low) / (high - low) } else { 0.5 };
        (share(step as f64, self.steps), share(value, self.values))
    }
}

impl Plot<'_> {
    /// Bytes as people write them, and other values with as many digits as tell them apart.
    fn label(&self, value: f64) -> String {
        if self.name.ends_with("bytes") {
            Bytes(value.max(0.0) as u64).to_string()
        } else if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
            format!("{value:.2e}")
        } else if value.abs() >= 100.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.4}")
        }
    }

    /// As lines of text, so many columns wide; in colours where that is wanted, else each run but the first as letters.
    pub fn lines(&self, columns: usize, is_coloured: bool) -> Vec<String> {
        let width = columns.saturating_sub(LABELS + 3).max(10);
        let (extent, mut cells) = (Extent::new(self), vec![vec![Cell::default(); width]; HEIGHT]);
        for (run, curve) in &self.curves {
            draw(&mut cells, &extent, curve, *run);
        }
        let last: Vec<String> =
            self.curves.iter().filter_map(|(_, c)| c.points.last()).map(|p| self.label(p.1)).collect();
        let mut lines = vec![format!("{}: at the end {}", self.name, last.join(", "))];
        for (i, row) in cells.iter().enumerate() {
            let label = match i {
                0 => self.label(extent.values.1),
                _ if i == HEIGHT - 1 => self.label(extent.values.0),
                _ => String::new(),
            };
            let cells: String = row.iter().map(|cell| cell.shown(is_coloured)).collect();
            lines.push(format!("{label:>LABELS$} │{}", cells.trim_end()));
        }
        let (name, [first, last]) = self.axis(&extent);
        let gap = width.saturating_sub(first.len() + last.len());
        lines.push(format!("{name:>LABELS$} └{first}{}{last}", "─".repeat(gap)));
        lines
    }

    /// What stands below it.
    fn axis(&self, extent: &Extent) -> (&'static str, [String; 2]) {
        match &self.axis {
            Some(axis) => (axis.name, axis.ends.clone()),
            None => ("step", [extent.steps.0, extent.steps.1].map(|step| step.to_string())),
        }
    }

    /// As a part of a picture, from `top` on.
    fn svg(&self, top: f64) -> String {
        let extent = Extent::new(self);
        let (left, right, bottom) = (90.0, WIDTH - 30.0, top + PANEL - 40.0);
        let mut out = text(left, top + 4.0, "start", self.name);
        out += &format!(
            "<path d=\"M{left} {} L{left} {bottom} L{right} {bottom}\" fill=\"none\" stroke=\"#888888\"/>\n",
            top + 14.0
        );
        out += &text(left - 8.0, top + 24.0, "end", &self.label(extent.values.1));
        out += &text(left - 8.0, bottom, "end", &self.label(extent.values.0));
        let (name, [first, last]) = self.axis(&extent);
        out += &text(left, bottom + 18.0, "start", &format!("{name} {first}"));
        out += &text(right, bottom + 18.0, "end", &last);
        for (run, curve) in &self.curves {
            let point = |&(step, value): &(u64, f64)| {
                let (x, y) = extent.at(step, value);
                format!("{:.1},{:.1}", left + x * (right - left), bottom - y * (bottom - top - 18.0))
            };
            let points: Vec<String> = curve.points.iter().map(point).collect();
            let colour = PICTURE[run % PICTURE.len()];
            out += &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n",
                points.join(" ")
            );
            if let [only] = &points[..] {
                let (x, y) = only.split_once(',').unwrap_or_default();
                out += &format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>\n");
            }
        }
        out
    }
}

const WIDTH: f64 = 760.0;
/// The height of one plot in a picture.
const PANEL: f64 = 180.0;

/// All plots below each other, with the names of the runs.
pub fn svg(plots: &[Plot], names: &[String]) -> String {
    let top = 30.0 + 18.0 * names.len() as f64;
    let height = top + PANEL * plots.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (i, name) in names.iter().enumerate() {
        let (y, colour) = (24.0 + 18.0 * i as f64, PICTURE[i % PICTURE.len()]);
        out += &format!("<path d=\"M90 {} h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\n", y - 4.0);
        out += &format!("<text x=\"122\" y=\"{y}\">{}</text>\n", escape(name));
    }
    out += &plots.iter().enumerate().map(|(i, p)| p.svg(top + 10.0 + PANEL * i as f64)).collect::<String>();
    out + "</svg>\n"
}

/// How a run is marked in the terminal.
pub fn mark(run: usize, is_coloured: bool) -> String {
    if is_coloured { painted("⣿", run) } else { letter(run).to_string() }
}

fn letter(run: usize) -> char {
    (b'a' + (run % 26) as u8) as char
}

fn painted(text: &str, run: usize) -> String {
    format!("\x1b[{}m{text}\x1b[0m", TERMINAL[run % TERMINAL.len()])
}

/// A character of a plot: its dots, and the run that was drawn there last.
#[derive(Clone, Copy, Default)]
struct Cell {
    dots: u8,
    run: usize,
}

impl Cell {
    fn shown(&self, is_coloured: bool) -> String {
        let braille = char::from_u32(0x2800 + u32::from(self.dots)).unwrap_or(' ');
        match (self.dots, is_coloured, self.run) {
            (0, ..) => " ".into(),
            (_, true, run) => painted(&braille.to_string(), run),
            (_, false, 0) => braille.to_string(),
            (_, false, run) => letter(run).to_string(),
        }
    }
}

/// Bits of the dots of a character, column by column.
const BITS: [[u8; DOTS.1]; DOTS.0] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

fn draw(cells: &mut [Vec<Cell>], extent: &Extent, curve: &Curve, run: usize) {
    let (wide, high) = (cells[0].len() * DOTS.0, cells.len() * DOTS.1);
    let place = |&(step, value): &(u64, f64)| {
        let (x, y) = extent.at(step, value);
        ((x * (wide - 1) as f64).round() as i64, ((1.0 - y) * (high - 1) as f64).round() as i64)
    };
    let mut dot = |x: i64, y: i64| {
        let (x, y) = (x as usize, y as usize);
        let cell = &mut cells[y / DOTS.1][x / DOTS.0];
        // Dots of another run are not this one's.
        let others = if cell.run == run { cell.dots } else { 0 };
        *cell = Cell { dots: others | BITS[x % DOTS.0][y % DOTS.1], run };
    };
    let points: Vec<(i64, i64)> = curve.points.iter().map(place).collect();
    points.first().into_iter().for_each(|p| dot(p.0, p.1));
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let steps = (x1 - x0).abs().max((y1 - y0).abs()).max(1);
        (0..=steps).for_each(|i| dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve { name: "loss".into(), points: points.to_vec() }
    }

    #[test]
    fn a_falling_line_begins_above_and_ends_below() {
        let falling = curve(&[(0, 1.0), (100, 0.0)]);
        let plot = Plot { name: "loss", curves: vec![(0, &falling)], axis: None };
        let lines = plot.lines(33, false);
        assert_eq!(lines[0], "loss: at the end 0.0000");
        assert!(lines[1].starts_with("    1.0000 │⠑") || lines[1].starts_with("    1.0000 │⠉"), "{}", lines[1]);
        assert!(lines[HEIGHT].starts_with("    0.0000 │ "), "{}", lines[HEIGHT]);
        assert_eq!(lines[HEIGHT + 1], format!("      step └0{}100", "─".repeat(16)));
    }

    #[test]
    fn several_runs_are_told_apart_without_colours_and_a_single_point_is_seen() {
        let (one, other) = (curve(&[(5, 2.0)]), curve(&[(0, 1.0), (10, 1.0)]));
        let lines = Plot { name: "loss", curves: vec![(0, &one), (1, &other)], axis: None }.lines(40, false).join("\n");
        assert!(lines.contains("bbbb") && lines.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)), "{lines}");
        let picture = svg(&plots(&[vec![one], vec![other]]), &["a<b".into(), "c".into()]);
        assert!(picture.contains("a&lt;b") && picture.matches("<polyline").count() == 2 && picture.contains("<circle"));
    }
}

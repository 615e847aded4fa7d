//! Step time against budget, as a picture.

use memfit::plan::Point;
use memfit::plan::bytes::Bytes;

use memfit_run::text::count;

/// What is drawn.
pub struct Picture<'a> {
    pub title: &'a str,
    /// Fastest and largest first.
    pub points: &'a [Point],
    pub lower_bound: u64,
    pub budget: Option<u64>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Left, top, right, bottom.
const MARGIN: [f64; 4] = [70.0, 50.0, 30.0, 60.0];

/// From bytes and seconds to the plane.
struct Scale {
    bytes: (f64, f64),
    seconds: (f64, f64),
}

impl Scale {
    fn x(&self, bytes: u64) -> f64 {
        let share = (bytes as f64 - self.bytes.0) / (self.bytes.1 - self.bytes.0).max(1.0);
        MARGIN[0] + share.clamp(0.0, 1.0) * (WIDTH - MARGIN[0] - MARGIN[2])
    }

    fn y(&self, seconds: f64) -> f64 {
        let share = (seconds - self.seconds.0) / (self.seconds.1 - self.seconds.0).max(1e-12);
        HEIGHT - MARGIN[3] - share.clamp(0.0, 1.0) * (HEIGHT - MARGIN[1] - MARGIN[3])
    }
}

pub fn svg(picture: &Picture) -> String {
    let points = picture.points;
    let most = points.first().map_or(1, Point::device_bytes).max(picture.budget.unwrap_or(0));
    let slowest = points.last().map_or(1.0, |p| p.seconds);
    let scale = Scale { bytes: (0.0, most as f64 * 1.05), seconds: (0.0, slowest * 1.1) };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    out += &text(WIDTH / 2.0, 26.0, "middle", &format!("{}: step time against budget", picture.title));
    out += &axes(&scale, most, slowest);
    out += &mark(&scale, picture.lower_bound, "#999999", "lower bound");
    if let Some(budget) = picture.budget {
        out += &mark(&scale, budget, "#cc3311", "budget");
    }
    out += &curve(&scale, points, most);
    out + "</svg>\n"
}

/// A staircase: a budget between two plans gets the slower one.
fn curve(scale: &Scale, points: &[Point], most: u64) -> String {
    let mut path = String::new();
    let mut right = scale.x((most as f64 * 1.05) as u64);
    for p in points {
        let (x, y) = (scale.x(p.device_bytes()), scale.y(p.seconds));
        path += &format!("{}{right:.1} {y:.1} L{x:.1} {y:.1} ", if path.is_empty() { "M" } else { "L" });
        right = x;
    }
    let mut out = format!("<path d=\"{}\" fill=\"none\" stroke=\"#0077bb\" stroke-width=\"2\"/>\n", path.trim_end());
    for p in points {
        let note = format!(
            "{}: {:.1} ms, {} recomputed",
            Bytes(p.device_bytes()),
            p.seconds * 1e3,
            count(p.recomputed_ops, "op")
        );
        out += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"#0077bb\"><title>{}</title></circle>\n",
            scale.x(p.device_bytes()),
            scale.y(p.seconds),
            escape(&note)
        );
    }
    out
}

fn axes(scale: &Scale, most: u64, slowest: f64) -> String {
    let (left, bottom) = (MARGIN[0], HEIGHT - MARGIN[3]);
    let mut out = format!(
        "<path d=\"M{left} {} L{left} {bottom} L{} {bottom}\" fill=\"none\" stroke=\"black\"/>\n",
        MARGIN[1],
        WIDTH - MARGIN[2]
    );
    for i in 1..=4u64 {
        let bytes = most / 4 * i;
        let x = scale.x(bytes);
        out += &format!("<path d=\"M{x:.1} {bottom} l0 5\" stroke=\"black\"/>\n");
        out += &text(x, bottom + 20.0, "middle", &Bytes(bytes).to_string());
        let seconds = slowest / 4.0 * i as f64;
        let y = scale.y(seconds);
        out += &format!("<path d=\"M{left} {y:.1} l-5 0\" stroke=\"black\"/>\n");
        out += &text(left - 8.0, y + 4.0, "end", &format!("{} ms", rounded(seconds * 1e3)));
    }
    out + &text((WIDTH + MARGIN[0]) / 2.0, HEIGHT - 16.0, "middle", "budget")
}

/// To three digits.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

fn mark(scale: &Scale, bytes: u64, colour: &str, name: &str) -> String {
    let x = scale.x(bytes);
    let line = format!(
        "<path d=\"M{x:.1} {} L{x:.1} {}\" stroke=\"{colour}\" stroke-dasharray=\"4 3\"/>\n",
        MARGIN[1],
        HEIGHT - MARGIN[3]
    );
    line + &text(x + 4.0, MARGIN[1] + 12.0, "start", &format!("{name} {}", Bytes(bytes)))
}

pub fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", escape(words))
}

pub fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

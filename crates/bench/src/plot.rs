//! Line charts as SVG text.

use std::fmt::Write as _;

const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 240.0;
/// Space around the axes of a panel, for labels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 42.0;
const TITLE_HEIGHT: f64 = 36.0;
const COLUMNS: usize = 2;
/// About so many intervals per axis.
const INTERVALS: f64 = 4.0;
/// Distinguishable with all common forms of color blindness (Okabe and Ito).
const COLORS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// A chart with its own vertical axis.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

/// Measured points, ordered by their horizontal position.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Draws panels beside and below each other. All start at zero and share the meaning of the horizontal axis.
pub fn svg(title: &str, horizontal: &str, panels: &[Panel]) -> String {
    let columns = as_float(COLUMNS.min(panels.len().max(1)));
    let rows = as_float(panels.len().div_ceil(COLUMNS));
    let (width, height) = (columns * PANEL_WIDTH, TITLE_HEIGHT + rows * PANEL_HEIGHT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n",
        width / 2.0,
        title = escaped(title),
    );
    for (index, panel) in panels.iter().enumerate() {
        let x = as_float(index % COLUMNS) * PANEL_WIDTH;
        let y = TITLE_HEIGHT + as_float(index / COLUMNS) * PANEL_HEIGHT;
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">");
        draw(&mut text, panel, horizontal);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// The scale of one axis: from zero to `end`, which is at `length` pixels.
#[derive(Clone, Copy, Debug)]
struct Axis {
    step: f64,
    end: f64,
    length: f64,
}

impl Axis {
    fn new(highest: f64, length: f64) -> Self {
        let step = round_step(highest / INTERVALS);
        Self { step, end: step * (highest / step).ceil().max(1.0), length }
    }

    fn pixels(self, value: f64) -> f64 {
        (value / self.end * self.length * 10.0).round() / 10.0
    }

    /// Returns the values of the labels, from zero.
    fn ticks(self) -> Vec<f64> {
        let ticks = (0..100).map(|index| f64::from(index) * self.step);
        ticks.take_while(|tick| *tick <= self.end + self.step / 2.0).collect()
    }
}

/// Returns the smallest of 1, 2, 5, 10, 20 and so on, and their decimal fractions, that is not below `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    // A little tolerance, because a power of ten is not exact.
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * 0.999_999);
    factor.unwrap_or(10.0) * power
}

fn draw(text: &mut String, panel: &Panel, horizontal: &str) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let highest_x = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let highest_y = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let x = Axis::new(highest_x, PANEL_WIDTH - LEFT - RIGHT);
    let y = Axis::new(highest_y, PANEL_HEIGHT - TOP - BOTTOM);
    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"14\" font-size=\"12\">{}</text>", escaped(&panel.title));
    draw_axes(text, x, y, horizontal);
    for (index, line) in panel.lines.iter().enumerate() {
        draw_line(text, line, index, x, y);
    }
}

fn draw_axes(text: &mut String, x: Axis, y: Axis, horizontal: &str) {
    let bottom = TOP + y.length;
    for tick in y.ticks() {
        let at = bottom - y.pixels(tick);
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at}h{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            x.length,
            LEFT - 6.0,
            at + 4.0,
            label(tick),
        );
    }
    for tick in x.ticks() {
        let at = LEFT + x.pixels(tick);
        let _ = writeln!(
            text,
            "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            label(tick)
        );
    }
    let _ = writeln!(
        text,
        "<path d=\"M{LEFT} {bottom}h{}\" stroke=\"#222\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        x.length,
        LEFT + x.length / 2.0,
        bottom + 31.0,
        escaped(horizontal),
    );
}

fn draw_line(text: &mut String, line: &Line, index: usize, x: Axis, y: Axis) {
    let color = COLORS[index % COLORS.len()];
    let at = |(horizontal, vertical): &(f64, f64)| {
        (LEFT + x.pixels(*horizontal), TOP + y.length - y.pixels(*vertical))
    };
    let positions: Vec<_> = line.points.iter().map(at).collect();
    let path: Vec<_> = positions.iter().map(|(x, y)| format!("{x},{y}")).collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    for (x, y) in positions {
        let _ = writeln!(text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{color}\"/>");
    }
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"28\" fill=\"{color}\">{}</text>",
        LEFT + as_float(index) * 90.0,
        escaped(&line.name)
    );
}

/// Formats a number of an axis without unnecessary digits.
fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (least, expected) in
            [(0.0, 1.0), (0.03, 0.05), (0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (125.0, 200.0), (1_250.0, 2_000.0)]
        {
            let step = round_step(least);
            assert!((step - expected).abs() < expected * 1e-9, "{least}: {step}");
        }
    }

    #[test]
    fn an_axis_ends_at_a_label_beyond_the_highest_value() {
        let axis = Axis::new(1_000.0, 100.0);
        let labels: Vec<_> = axis.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["0", "500", "1000"]);
        assert!((axis.pixels(500.0) - 50.0).abs() < f64::EPSILON);
        let labels: Vec<_> = Axis::new(0.0, 100.0).ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["0", "1"]);
    }

    #[test]
    fn points_and_names_are_drawn() {
        let line =
            |name: &str, points: &[(f64, f64)]| Line { name: name.to_owned(), points: points.to_vec() };
        let panel = Panel {
            title: "p99 < 1 s".to_owned(),
            lines: vec![line("p50", &[(100.0, 0.1), (1_000.0, 0.2)]), line("p99", &[(100.0, 0.2)])],
        };
        let text = svg("Cost", "clusters", &[panel.clone(), panel]);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        assert_eq!(text.matches("<circle").count(), 6);
        assert!(text.contains("p99 &lt; 1 s") && !text.contains("p99 < 1 s"), "{text}");
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }

    #[test]
    fn nothing_measured_is_an_empty_drawing() {
        assert!(svg("Cost", "clusters", &[]).contains("</svg>"));
    }
}

//! Charts as SVG: axes, lines, bands, bars and marks, to be read on paper and
//! on a phone: few ticks, large figures, marks of different shapes.

use std::fmt::Write as _;

use super::group::round_step;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;
const TICKS: f64 = 5.0;
/// Colour-blind safe: Okabe and Ito, Color Universal Design (2008).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// An axis: its name with unit, and where it begins and ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    name: String,
    from: f64,
    to: f64,
    is_log: bool,
    /// Names in place of numbers, at 0, 1, 2 ...
    names: Vec<String>,
}

impl Axis {
    /// From one number up to a round one that is not less than the other.
    pub fn numbers(name: &str, from: f64, to: f64) -> Self {
        let (from, to) = (finite(from), finite(to));
        let step = round_step((to - from) / TICKS);
        Self {
            name: name.to_owned(),
            from,
            to: from + ((to - from) / step - 1e-6).ceil().max(1.0) * step,
            is_log: false,
            names: Vec::new(),
        }
    }

    /// Exactly from one number to another, greater one.
    pub fn exactly(name: &str, from: f64, to: f64) -> Self {
        let mut axis = Self::numbers(name, from, to);
        axis.to = finite(to).max(axis.from + 1e-6);
        axis
    }

    /// Powers of ten around two numbers above 0.
    pub fn powers(name: &str, least: f64, most: f64) -> Self {
        let power = |value: f64| finite(value).max(1e-9).log10();
        let from = power(least).floor();
        Self {
            name: name.to_owned(),
            from,
            to: power(most).ceil().max(from + 1.0),
            is_log: true,
            names: Vec::new(),
        }
    }

    /// One place for each name.
    pub fn names(name: &str, names: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            from: -0.5,
            to: names.len().max(1) as f64 - 0.5,
            is_log: false,
            names,
        }
    }

    fn share(&self, value: f64) -> f64 {
        let value = match self.is_log {
            true => finite(value).max(1e-9).log10(),
            false => finite(value),
        };
        let span = self.to - self.from;
        if span > 0.0 {
            ((value - self.from) / span).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Places with their words.
    fn ticks(&self) -> Vec<(f64, String)> {
        if !self.names.is_empty() {
            return (0..)
                .map(f64::from)
                .zip(self.names.iter().cloned())
                .collect();
        }
        let step = match self.is_log {
            true => 1.0,
            false => round_step((self.to - self.from) / TICKS),
        };
        let first = (self.from / step - 1e-6).ceil();
        let count = ((self.to / step + 1e-6).floor() - first).clamp(0.0, 20.0) as u32;
        let tick = |number: u32| {
            let at = (first + f64::from(number)) * step;
            let value = if self.is_log { 10_f64.powf(at) } else { at };
            (value, number_text(value))
        };
        (0..=count).map(tick).collect()
    }
}

/// No rate and no run is anywhere near the bounds.
fn finite(value: f64) -> f64 {
    if value.is_finite() {
        value.clamp(-1e15, 1e15)
    } else {
        0.0
    }
}

/// A number without needless digits.
pub fn number_text(value: f64) -> String {
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

/// Where words below a tick have their middle: beyond the edge they would be cut off.
fn middle_of(x: f64, words: &str) -> f64 {
    /// Of a figure, at the font's size.
    const HALF_WIDTH: f64 = 3.8;
    x.min(WIDTH - 1.0 - HALF_WIDTH * words.chars().count() as f64)
}

/// Fit for text and attributes of HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Colour of the nth group.
pub fn colour(group: usize) -> &'static str {
    COLOURS
        .get(group % COLOURS.len())
        .copied()
        .unwrap_or("#000000")
}

/// The nth group's mark: colours are alike on paper, shapes are not.
pub fn mark(group: usize, x: f64, y: f64, r: f64) -> String {
    let fill = format!("fill=\"{}\"", colour(group));
    match group % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {fill}/>"),
        1 => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{w}\" height=\"{w}\" {fill}/>",
            x - r,
            y - r,
            w = 2.0 * r
        ),
        2 => format!(
            "<path d=\"M{x:.1} {:.1}l{r} {d}h-{d}z\" {fill}/>",
            y - r,
            d = 2.0 * r
        ),
        _ => format!(
            "<path d=\"M{x:.1} {:.1}l{r} {r}l-{r} {r}l-{r} -{r}z\" {fill}/>",
            y - r
        ),
    }
}

/// A chart that is being drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    body: String,
}

impl Chart {
    /// With axes and nothing else.
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self {
            title: title.to_owned(),
            x,
            y,
            body: String::new(),
        }
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.share(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.share(y) * (HEIGHT - TOP - BOTTOM),
        )
    }

    fn points(&self, points: impl IntoIterator<Item = (f64, f64)>) -> String {
        let mut text = String::new();
        for (x, y) in points {
            let (x, y) = self.place(x, y);
            // Writing to a String cannot fail.
            let _ = write!(text, "{x:.1},{y:.1} ");
        }
        text
    }

    /// A line of a group's colour.
    pub fn line(&mut self, group: usize, points: &[(f64, f64)]) {
        let (places, colour) = (self.points(points.iter().copied()), colour(group));
        let _ = writeln!(
            self.body,
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"
        );
    }

    /// A dashed line of a group's colour: somebody else's.
    pub fn dashed(&mut self, group: usize, points: &[(f64, f64)]) {
        let (places, colour) = (self.points(points.iter().copied()), colour(group));
        let _ = writeln!(
            self.body,
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.3\" stroke-dasharray=\"6 4\"/>"
        );
    }

    /// A dotted dark line: what nothing can be above.
    pub fn bound(&mut self, points: &[(f64, f64)]) {
        let places = self.points(points.iter().copied());
        let _ = writeln!(
            self.body,
            "<polyline points=\"{places}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.3\" stroke-dasharray=\"1.5 3\"/>"
        );
    }

    /// Everything between a lower and an upper line: place, lower, upper.
    pub fn band(&mut self, group: usize, points: &[(f64, f64, f64)]) {
        let lower = points.iter().map(|(x, low, _)| (*x, *low));
        let upper = points.iter().rev().map(|(x, _, high)| (*x, *high));
        let (places, colour) = (self.points(lower.chain(upper)), colour(group));
        let _ = writeln!(
            self.body,
            "<polygon points=\"{places}\" fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\" stroke-opacity=\"0.35\" stroke-width=\"0.6\"/>"
        );
    }

    /// A group's mark.
    pub fn mark(&mut self, group: usize, at: (f64, f64), r: f64) {
        let (x, y) = self.place(at.0, at.1);
        self.body += &mark(group, x, y, r);
        self.body.push('\n');
    }

    /// A hollow diamond: what was to be expected.
    pub fn expected(&mut self, at: (f64, f64)) {
        let (x, y) = self.place(at.0, at.1);
        let _ = writeln!(
            self.body,
            "<path d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6z\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.4\"/>",
            y - 6.0
        );
    }

    /// From a number to another at one place.
    pub fn upright(&mut self, group: usize, x: f64, (from, to): (f64, f64), width: f64) {
        let ((x, low), (_, high)) = (self.place(x, from), self.place(x, to));
        let colour = colour(group);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-opacity=\"0.6\"/>"
        );
    }

    /// A bar that stands between two numbers of each axis.
    pub fn bar(&mut self, group: usize, (left, right): (f64, f64), (from, to): (f64, f64)) {
        let ((x, bottom), (x_end, top)) = (self.place(left, from), self.place(right, to));
        let colour = colour(group);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
            (x_end - x).max(0.5),
            (bottom - top).max(0.0)
        );
    }

    /// A short stroke on the horizontal axis: here something failed.
    pub fn failure(&mut self, x: f64) {
        let ((x, _), bottom) = (self.place(x, self.y.from), HEIGHT - BOTTOM);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#c00000\" stroke-width=\"1.6\"/>",
            bottom - 10.0
        );
    }

    /// A dashed line across, with words.
    pub fn limit(&mut self, y: f64, words: &str) {
        let ((_, at), right) = (self.place(0.0, y), WIDTH - RIGHT);
        // Beneath it, but not among what is written at the axis.
        let words_at = match at + 13.0 < HEIGHT - BOTTOM {
            true => at + 13.0,
            false => at - 4.0,
        };
        let _ = writeln!(
            self.body,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#444\" stroke-dasharray=\"5 4\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\">{}</text>",
            right - 3.0,
            words_at,
            escaped(words)
        );
    }

    /// The whole SVG.
    pub fn to_svg(&self) -> String {
        let title = escaped(&self.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}{}</svg>\n",
            self.axes(),
            self.body
        )
    }

    fn axes(&self) -> String {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut text = String::new();
        for (value, words) in self.y.ticks() {
            let (_, y) = self.place(0.0, value);
            let _ = writeln!(
                text,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.5,
                escaped(&words)
            );
        }
        for (value, words) in self.x.ticks() {
            let (x, _) = self.place(value, 0.0);
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#000\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 4.0,
                middle_of(x, &words),
                bottom + 18.0,
                escaped(&words)
            );
        }
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#000\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text transform=\"translate(13 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0,
            escaped(&self.x.name),
            f64::midpoint(TOP, bottom),
            escaped(&self.y.name)
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn axes_have_round_ticks_and_end_where_they_should() {
        let round = Axis::numbers("Mbit/s", 0.0, 941.0);
        assert_eq!(words(&round), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(round.share(500.0), 0.5);
        let exact = Axis::exactly("run", 1.0, 8755.0);
        assert_eq!(words(&exact), ["2000", "4000", "6000", "8000"]);
        assert_eq!(exact.share(8755.0), 1.0);
        let powers = Axis::powers("Mbit/s", 6.5, 930.0);
        assert_eq!(words(&powers), ["1", "10", "100", "1000"]);
        let names = Axis::names("window", vec!["8 KB".into(), "64 KB".into()]);
        assert_eq!((words(&names).len(), names.share(0.0)), (2, 0.25));
    }

    #[test]
    fn words_of_the_last_tick_end_within_the_chart() {
        let last = WIDTH - RIGHT;
        assert_eq!(middle_of(last, "100"), last);
        assert!(middle_of(last, "100000") + 3.8 * 6.0 < WIDTH);
        assert_eq!(middle_of(LEFT, "100000"), LEFT);
    }

    #[test]
    fn no_number_can_break_a_chart() {
        for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
            for axis in [
                Axis::numbers("a", 0.0, odd),
                Axis::exactly("b", odd, odd),
                Axis::powers("c", odd, 1.0),
            ] {
                let mut chart = Chart::new("<odd>", axis.clone(), axis);
                chart.line(0, &[(odd, odd)]);
                chart.band(1, &[(odd, 1.0, odd)]);
                chart.bar(2, (odd, 1.0), (0.0, odd));
                chart.mark(3, (odd, 0.0), 2.0);
                chart.limit(odd, "\"&");
                let svg = chart.to_svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{odd}: {svg}");
                assert!(svg.contains("&lt;odd&gt;") && svg.contains("&quot;&amp;"));
            }
        }
    }
}

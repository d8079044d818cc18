//! Figures as SVG: lines over a number, with whiskers for intervals.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colour-blind safe (Okabe and Ito 2008), then the same with other dashes.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
const DASHES: [&str; 3] = ["", "6 3", "2 2"];
const TICKS: f64 = 6.0;

/// A line: points with half the width of their intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Place, value, half an interval.
    pub points: Vec<(f64, f64, Option<f64>)>,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// File name without ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What the horizontal axis counts.
    pub x: String,
    /// What the vertical axis counts.
    pub y: String,
    /// Where the vertical axis ends, if not at the greatest value.
    pub y_max: Option<f64>,
    /// The lines.
    pub series: Vec<Series>,
}

struct Scale {
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.y_max).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

impl Figure {
    /// The figure as an SVG document.
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let greatest =
            |value: fn(&(f64, f64, Option<f64>)) -> f64| points().map(value).fold(0.0, f64::max);
        let y_top = greatest(|point| point.1 + point.2.unwrap_or(0.0));
        let scale = Scale {
            x_max: rounded_up(greatest(|point| point.0)),
            y_max: self.y_max.unwrap_or_else(|| rounded_up(y_top)),
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
            escaped(&self.title)
        );
        self.axes(&mut svg, &scale);
        for (number, series) in self.series.iter().enumerate() {
            line(&mut svg, &scale, number, series);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, scale: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in ticks(scale.y_max) {
            let y = scale.y(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number_text(tick)
            );
        }
        for tick in ticks(scale.x_max) {
            let x = scale.x(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"black\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                number_text(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP} V{bottom} H{right}\" fill=\"none\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 12.0,
            escaped(&self.x),
            f64::midpoint(TOP, bottom),
            escaped(&self.y)
        );
    }
}

fn line(svg: &mut String, scale: &Scale, number: usize, series: &Series) {
    let colour = COLOURS
        .get(number % COLOURS.len())
        .copied()
        .unwrap_or("black");
    let dash = DASHES
        .get(number / COLOURS.len() % DASHES.len())
        .copied()
        .unwrap_or("");
    let stroke = format!("stroke=\"{colour}\" stroke-dasharray=\"{dash}\"");
    let places: Vec<String> = series
        .points
        .iter()
        .map(|(x, y, _)| format!("{:.1},{:.1}", scale.x(*x), scale.y(*y)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" {stroke} stroke-width=\"1.6\"/>",
        places.join(" ")
    );
    for (x, y, half) in &series.points {
        let (x, half) = (scale.x(*x), half.unwrap_or(0.0));
        let (low, high) = (scale.y(y - half), scale.y(y + half));
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\" stroke=\"{colour}\"/>",
            scale.y(*y)
        );
    }
    let (x, y) = (WIDTH - RIGHT + 12.0, TOP + 8.0 + 18.0 * number as f64);
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {stroke} stroke-width=\"2\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x + 24.0,
        x + 30.0,
        y + 4.0,
        escaped(&series.name)
    );
}

/// Up to the next 1, 2, 2.5, 5 or 10 times a power of ten, per tick.
fn rounded_up(value: f64) -> f64 {
    let step = step(value);
    (value / step).ceil().max(1.0) * step
}

fn step(value: f64) -> f64 {
    let raw = value.max(1e-9) / TICKS;
    let power = 10f64.powi(raw.log10().floor() as i32);
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|nice| nice * power >= raw * 0.999);
    nice.unwrap_or(10.0) * power
}

fn ticks(max: f64) -> impl Iterator<Item = f64> {
    let step = step(max);
    let count = (max / step + 0.001).floor() as u32;
    (0..=count).map(move |number| f64::from(number) * step)
}

fn number_text(value: f64) -> String {
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    short.to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_lines_its_names_and_no_broken_markup() {
        let figure = Figure {
            name: "f".into(),
            title: "a < b & c".into(),
            x: "load".into(),
            y: "s".into(),
            y_max: None,
            series: (0..9)
                .map(|number| Series {
                    name: format!("series {number}"),
                    points: vec![(5.0, 1.0, Some(0.1)), (30.0, f64::from(number), None)],
                })
                .collect(),
        };
        let svg = figure.to_svg();
        assert_eq!(svg.matches("<polyline").count(), 9);
        assert!(svg.contains("a &lt; b &amp; c") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let empty = Figure {
            series: Vec::new(),
            ..figure
        }
        .to_svg();
        assert!(!empty.contains("NaN") && !empty.contains("inf"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let list = |max| ticks(max).collect::<Vec<_>>();
        assert_eq!(rounded_up(28.3), 30.0);
        assert_eq!(list(30.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(rounded_up(256_000.0), 300_000.0);
        assert_eq!(
            (number_text(0.25), number_text(50_000.0)),
            ("0.25".into(), "50000".into())
        );
    }
}

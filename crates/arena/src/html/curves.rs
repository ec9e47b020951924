//! Arrival curves: which share of all deliveries had come by when, on a logarithmic axis of time.

use super::escape;
use crate::crowd::Arrival;
use crate::figures::Unit;
use crate::format::figure;
use crate::report::{Report, Row};
use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 48.0;
const BOTTOM: f64 = 26.0;
const TOP: f64 = 10.0;
/// Told apart on light and dark grounds alike; past the last one they begin again, dashed.
const COLOURS: [&str; 10] = [
    "#2f6f9f", "#c2571a", "#2e8b57", "#a03b7d", "#8a6d1b", "#5b5bd6", "#c0392b", "#128a8a",
    "#7a7a7a", "#6b8e23",
];
/// Nothing is faster; keeps the logarithm finite.
const MS_MIN: f64 = 0.01;

/// The figure with its key; nothing where nobody was pushed to.
pub(super) fn section(report: &Report) -> String {
    let rows: Vec<&Row> = report
        .contestants
        .iter()
        .filter(|row| !row.arrivals.is_empty())
        .collect();
    let times = || {
        let all = rows.iter().flat_map(|row| &row.arrivals);
        all.map(|arrival| arrival.ms.max(MS_MIN))
    };
    let (Some(least), Some(most)) = (times().reduce(f64::min), times().reduce(f64::max)) else {
        return String::new();
    };
    let axis = Axis {
        from: least.log10().floor(),
        to: most.log10().ceil().max(least.log10().floor() + 1.0),
    };
    let mut text = format!(
        "<h2>Arrivals</h2>\n<p>The share of all deliveries that had come by then, in the last round.</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Arrival curves\">\n"
    );
    text.push_str(&axis.grid());
    let mut key = String::new();
    for (index, row) in rows.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let dashes = if index < COLOURS.len() {
            ""
        } else {
            " stroke-dasharray=\"6 4\""
        };
        let _ = writeln!(
            text,
            "<polyline class=\"curve\" stroke=\"{colour}\"{dashes} points=\"{}\"><title>{}</title></polyline>",
            axis.points(&row.arrivals),
            escape(&row.title)
        );
        let _ = writeln!(
            key,
            "<li><i style=\"background:{colour}\"></i>{}</li>",
            escape(&row.title)
        );
    }
    let _ = writeln!(text, "</svg>\n<ul class=\"key\">\n{key}</ul>");
    text
}

/// Powers of ten of milliseconds at both ends.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn x(&self, ms: f64) -> f64 {
        let share = (ms.max(MS_MIN).log10() - self.from) / (self.to - self.from);
        LEFT + share * (WIDTH - LEFT - 20.0)
    }

    fn points(&self, arrivals: &[Arrival]) -> String {
        let points = arrivals
            .iter()
            .map(|arrival| format!("{:.1},{:.1}", self.x(arrival.ms), y(arrival.share)));
        points.collect::<Vec<_>>().join(" ")
    }

    fn grid(&self) -> String {
        let mut text = String::new();
        let mut power = self.from;
        while power <= self.to {
            let ms = 10f64.powf(power);
            let x = self.x(ms);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - 8.0,
                escape(&figure(Unit::Milliseconds, ms))
            );
            power += 1.0;
        }
        for percent in [0, 25, 50, 75, 100] {
            let y = y(f64::from(percent) / 100.0);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent}%</text>",
                WIDTH - 20.0,
                LEFT - 6.0,
                y + 4.0
            );
        }
        text
    }
}

fn y(share: f64) -> f64 {
    TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_curve_goes_from_nobody_on_the_left_to_everybody_on_the_right() {
        let text = section(&example());
        let points = text.split("points=\"").nth(1).unwrap();
        let points = points.split('"').next().unwrap();
        let [first, last] = [points.split(' ').next(), points.split(' ').next_back()];
        assert_eq!(first, Some("48.0,314.0"));
        assert!(last.unwrap().ends_with(",10.0"), "{points}");
    }

    #[test]
    fn without_a_push_there_is_no_figure() {
        let mut report = example();
        report
            .contestants
            .iter_mut()
            .for_each(|row| row.arrivals.clear());
        assert_eq!(section(&report), "");
    }
}

//! Lines over one pair of axes.

use super::{Frame, HEIGHT, framed};
use crate::axis::Axis;
use crate::chart::Point;
use crate::mark::Mark;
use crate::page::escape;

/// Lines over one pair of axes.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Above it, a few words.
    pub title: String,
    /// Beside the title: what to know about it. May be empty.
    pub note: String,
    /// The axis below.
    pub x: Axis,
    /// The axis on the left.
    pub y: Axis,
    /// One for each subject.
    pub lines: Vec<Line>,
    /// A value on the left that must be on the axis, such as 1 for shares. Without it the axis ends past the largest.
    pub y_most: Option<f64>,
}

/// One subject's line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The subject's name.
    pub label: String,
    /// The subject's colour and pattern.
    pub mark: Mark,
    /// How it is drawn.
    pub shape: Shape,
    /// From left to right.
    pub points: Vec<Point>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line alone.
    Line,
    /// A line and the area below it.
    Area,
    /// The value stays until the next one.
    Steps,
}

/// The element, to be put into a page.
#[must_use]
pub fn plot(plot: &Plot) -> String {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let x = plot.x.drawn(points().map(|point| point.x)).ending_at_data();
    let y = plot
        .y
        .drawn(points().map(|point| point.y).chain(plot.y_most));
    let frame = Frame { x: &x, y: &y };
    let lines: String = plot.lines.iter().map(|line| draw(&frame, line)).collect();
    let entries = plot
        .lines
        .iter()
        .map(|line| format!("<li>{}{}</li>\n", line.mark.swatch(), escape(&line.label)));
    let legend = if plot.lines.len() < 2 {
        String::new()
    } else {
        let entries: String = entries.collect();
        format!("<ul class=\"legend\">\n{entries}</ul>\n")
    };
    let drawing = frame.axes() + &lines;
    framed(&plot.title, &plot.note, &drawing, &legend)
}

fn draw(frame: &Frame<'_>, line: &Line) -> String {
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|point| (frame.x(point.x), frame.y(point.y)))
        .collect();
    let (Some(first), Some(last)) = (places.first(), places.last()) else {
        return String::new();
    };
    let stroke = line.mark.stroke();
    if let [(x, y)] = places[..] {
        return format!("<path class=\"dot\" {stroke} d=\"M{x:.1} {y:.1}h.01\"/>");
    }
    let mut path = format!("M{:.1} {:.1}", first.0, first.1);
    for (x, y) in &places[1..] {
        if line.shape == Shape::Steps {
            path.push_str(&format!("H{x:.1}V{y:.1}"));
        } else {
            path.push_str(&format!("L{x:.1} {y:.1}"));
        }
    }
    let area = if line.shape == Shape::Area {
        let bottom = HEIGHT - super::BOTTOM;
        format!(
            "<path {} d=\"{path}V{bottom:.1}H{:.1}Z\"/>",
            line.mark.fill(),
            first.0
        )
    } else {
        String::new()
    };
    debug_assert!(last.0 >= first.0, "points go from left to right");
    format!("{area}<path class=\"line\" {stroke} d=\"{path}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::{LOGARITHMIC, Scale, Steps};

    fn axis(title: &str) -> Axis {
        Axis {
            title: title.to_owned(),
            scale: Scale::Linear,
            logarithmic: LOGARITHMIC,
            steps: Steps::Decimal,
            format: |value| format!("{value}"),
        }
    }

    fn drawn(points: &[(f64, f64)], label: &str) -> String {
        plot(&Plot {
            title: label.to_owned(),
            note: String::new(),
            x: axis("time"),
            y: axis("share"),
            lines: vec![Line {
                label: label.to_owned(),
                mark: Mark::of(0),
                shape: Shape::Line,
                points: points.iter().map(|&(x, y)| Point { x, y }).collect(),
            }],
            y_most: None,
        })
    }

    #[test]
    fn a_line_goes_from_corner_to_corner() {
        let figure = drawn(&[(0.0, 0.0), (10.0, 5.0)], "a");
        assert!(figure.contains("d=\"M74.0 210.0L614.0 12.0\""), "{figure}");
    }

    #[test]
    fn one_point_is_a_dot_and_none_is_nothing() {
        assert!(drawn(&[(1.0, 1.0)], "a").contains("class=\"dot\""));
        assert!(!drawn(&[], "a").contains("<path"));
    }

    #[test]
    fn no_label_becomes_markup() {
        assert!(drawn(&[(0.0, 1.0)], "</svg><b>").contains("&lt;/svg&gt;"));
    }
}

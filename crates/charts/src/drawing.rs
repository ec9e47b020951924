//! Charts drawn beforehand, as SVG: for pages that are printed, or read where no script runs.
//!
//! Colours are the variables of `page.css`, so that a drawing follows the reader's choice of light or dark.

mod heat;
mod plot;

pub use heat::{Cell, Heat, heat_map};
pub use plot::{Line, Plot, Shape, plot};

use crate::axis::Drawn;
use crate::page::escape;

/// Width of a drawing's coordinates; it is shown as wide as its column.
const WIDTH: f64 = 640.0;
/// Height of the same.
const HEIGHT: f64 = 250.0;
/// Room for the labels of the axis on the left.
const LEFT: f64 = 74.0;
/// Room at the other sides.
const TOP: f64 = 12.0;
const RIGHT: f64 = 26.0;
const BOTTOM: f64 = 40.0;

/// Where values of two axes are in a drawing.
struct Frame<'a> {
    x: &'a Drawn,
    y: &'a Drawn,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.share(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// Lines and labels of both axes.
    fn axes(&self) -> String {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let mut text = String::new();
        for tick in self.y.ticks() {
            let y = self.y(tick.value);
            text.push_str(&format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                escape(&tick.label)
            ));
        }
        for tick in self.x.ticks() {
            let x = self.x(tick.value);
            text.push_str(&format!(
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 18.0,
                escape(&tick.label)
            ));
        }
        text.push_str(&format!(
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 5.0,
            escape(self.x.title())
        ));
        text
    }
}

/// A figure around a drawing: the title and a note above, more below.
fn framed(title: &str, note: &str, drawing: &str, below: &str) -> String {
    let note = if note.is_empty() {
        String::new()
    } else {
        format!(" <small>{}</small>", escape(note))
    };
    let title = escape(title);
    format!(
        "<figure class=\"drawing\">\n<figcaption><b>{title}</b>{note}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">{drawing}</svg>\n{below}</figure>\n"
    )
}

//! A heat map: how many there were, by when and by how much.

use super::{Frame, HEIGHT, TOP, framed};
use crate::axis::Axis;
use crate::page::escape;

/// How dark the darkest and the lightest cell with anything in it are.
const OPACITY: (f64, f64) = (0.12, 1.0);

/// A heat map.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Above it, a few words.
    pub title: String,
    /// Beside the title: what to know about it. May be empty.
    pub note: String,
    /// The axis below.
    pub x: Axis,
    /// The axis on the left.
    pub y: Axis,
    /// Those with anything in them.
    pub cells: Vec<Cell>,
}

/// One cell of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its ends on the axis below.
    pub x: (f64, f64),
    /// Its lower and its upper end on the axis on the left.
    pub y: (f64, f64),
    /// How many are in it.
    pub count: u64,
}

/// The element, to be put into a page. Darkness goes by the logarithm of the count: the few slow ones must be seen.
#[must_use]
pub fn heat_map(heat: &Heat) -> String {
    let xs = heat.cells.iter().flat_map(|cell| [cell.x.0, cell.x.1]);
    let ys = heat.cells.iter().flat_map(|cell| [cell.y.0, cell.y.1]);
    let x = heat.x.drawn(xs).ending_at_data();
    let y = heat.y.drawn(ys);
    let frame = Frame { x: &x, y: &y };
    let most = heat.cells.iter().map(|cell| cell.count).max().unwrap_or(1);
    let mut cells = String::new();
    for cell in &heat.cells {
        let (left, right) = (frame.x(cell.x.0), frame.x(cell.x.1));
        let (top, bottom) = (frame.y(cell.y.1), frame.y(cell.y.0));
        debug_assert!(top >= TOP && bottom <= HEIGHT, "the axes hold all cells");
        cells.push_str(&format!(
            "<rect class=\"heat\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.2}\"><title>{}: {}</title></rect>",
            (right - left).max(1.5),
            (bottom - top).max(1.0),
            opacity(cell.count, most),
            escape(&(heat.y.format)(cell.y.1)),
            cell.count
        ));
    }
    framed(&heat.title, &heat.note, &(frame.axes() + &cells), "")
}

fn opacity(count: u64, most: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a shade needs two digits of a count"
    )]
    let (count, most) = (count.max(1) as f64, most.max(1) as f64);
    let share = if most > 1.0 {
        count.ln() / most.ln()
    } else {
        1.0
    };
    OPACITY.0 + (OPACITY.1 - OPACITY.0) * share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::{LOGARITHMIC, Scale, Steps};

    #[test]
    fn few_are_light_and_many_are_dark() {
        assert!(opacity(1, 1_000_000) < 0.13);
        assert!((opacity(1_000_000, 1_000_000) - 1.0).abs() < 1e-9);
        assert!((opacity(1_000, 1_000_000) - 0.56).abs() < 0.01);
        assert!((opacity(1, 1) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn each_cell_is_a_rectangle() {
        let axis = |scale| Axis {
            title: "t".to_owned(),
            scale,
            logarithmic: LOGARITHMIC,
            steps: Steps::Decimal,
            format: |value| format!("{value}"),
        };
        let figure = heat_map(&Heat {
            title: "heat".to_owned(),
            note: String::new(),
            x: axis(Scale::Linear),
            y: axis(Scale::Logarithmic),
            cells: [(0.0, 1.0), (1.0, 2.0)]
                .map(|x| Cell {
                    x,
                    y: (1.0, 2.0),
                    count: 5,
                })
                .into(),
        });
        assert_eq!(figure.matches("<rect").count(), 2);
    }
}

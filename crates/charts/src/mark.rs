//! Colours and patterns of subjects: the same in curves, bars and legends.

use serde::Serialize;

/// Colours, each with a variable in `page.css` for light and for dark pages.
pub(crate) const COLOURS: usize = 6;
/// Solid, dashed, dotted; in bars filled, hatched, dotted.
const PATTERNS: usize = 3;

/// Colour and pattern of one subject, by its index among all. Eighteen subjects differ; then marks repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    colour: usize,
    pattern: usize,
}

impl Mark {
    /// Of the subject with this index. Neighbours differ in colour.
    #[must_use]
    pub fn of(index: usize) -> Self {
        Self {
            colour: index % COLOURS,
            pattern: index / COLOURS % PATTERNS,
        }
    }

    /// Attributes of a line in a drawing.
    pub(crate) fn stroke(self) -> String {
        let dashes = match self.pattern {
            0 => "",
            1 => " stroke-dasharray=\"7 3\"",
            _ => " stroke-dasharray=\"2 3\"",
        };
        format!("stroke=\"var(--mark-{})\"{dashes}", self.colour)
    }

    /// Attributes of an area in a drawing.
    pub(crate) fn fill(self) -> String {
        format!("fill=\"var(--mark-{})\" fill-opacity=\".18\"", self.colour)
    }

    /// A short piece of the subject's line, for a legend or a table. Decoration: the name has to be beside it.
    #[must_use]
    pub fn swatch(self) -> String {
        format!(
            "<svg class=\"swatch\" viewBox=\"0 0 24 8\" aria-hidden=\"true\">\
             <line x1=\"0\" x2=\"24\" y1=\"4\" y2=\"4\" stroke-width=\"4\" {}/></svg>",
            self.stroke()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::STYLE;

    #[test]
    fn eighteen_subjects_differ_and_neighbours_differ_in_colour() {
        let marks: Vec<Mark> = (0..18).map(Mark::of).collect();
        for (index, mark) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(mark), "{index}");
        }
        assert!(
            marks
                .windows(2)
                .all(|pair| pair[0].colour != pair[1].colour)
        );
        assert_eq!(Mark::of(18), Mark::of(0));
    }

    /// The values that a variable has in the style sheet: for light pages, then for dark ones.
    fn values(variable: &str) -> [[f64; 3]; 2] {
        let found: Vec<[f64; 3]> = STYLE
            .split(&format!("{variable}: #"))
            .skip(1)
            .map(|rest| {
                let channel = |at: usize| u8::from_str_radix(&rest[at..at + 2], 16).unwrap();
                [0, 2, 4].map(|at| linear(f64::from(channel(at)) / 255.0))
            })
            .collect();
        found
            .try_into()
            .unwrap_or_else(|found| panic!("{variable}: {found:?}"))
    }

    fn linear(channel: f64) -> f64 {
        if channel <= 0.04045 {
            channel / 12.92
        } else {
            ((channel + 0.055) / 1.055).powf(2.4)
        }
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    #[test]
    fn every_colour_stands_out_from_its_background() {
        let backgrounds = values("--background");
        for colour in 0..COLOURS {
            let colours = values(&format!("--mark-{colour}"));
            for (colour_of, background) in colours.into_iter().zip(backgrounds) {
                let (a, b) = (luminance(colour_of), luminance(background));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                // WCAG 2.2, success criterion 1.4.11: graphics.
                assert!(contrast >= 3.0, "--mark-{colour}: {contrast:.2}");
            }
        }
    }

    /// What most people see, what is seen without cones for long waves, and without those for middle ones: Machado,
    /// Oliveira and Fernandes, 2009, severity 1, on linear RGB.
    const SIGHTS: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ];

    /// CIELAB of linear RGB, white point D65.
    fn lab([red, green, blue]: [f64; 3]) -> [f64; 3] {
        let root = |value: f64| {
            if value > 0.008856 {
                value.cbrt()
            } else {
                7.787 * value + 16.0 / 116.0
            }
        };
        let x = root((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505);
        let y = root(luminance([red, green, blue]));
        let z = root((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn colour_blind_readers_tell_the_colours_apart() {
        for (page, sight) in (0..2).flat_map(|page| (0..3).map(move |sight| (page, sight))) {
            let seen = |colour: usize| {
                let rgb = values(&format!("--mark-{colour}"))[page];
                let row = |row: [f64; 3]| row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f64>();
                lab(SIGHTS[sight]
                    .map(row)
                    .map(|channel| channel.clamp(0.0, 1.0)))
            };
            for (a, b) in (0..COLOURS).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let squares = seen(a)
                    .into_iter()
                    .zip(seen(b))
                    .map(|(a, b)| (a - b).powi(2));
                let distance = squares.sum::<f64>().sqrt();
                assert!(
                    distance >= 30.0,
                    "page {page}, sight {sight}: {b} and {a}: {distance:.1}"
                );
            }
        }
    }
}

//! What a chart shows.

use crate::axis::Axis;
use crate::mark::Mark;

/// One chart: a title, what to know about it, and bars or curves.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it, a few words.
    pub title: String,
    /// Below the title: which end is good, or what a point means. May be empty.
    pub note: String,
    /// What is drawn.
    pub body: Body,
}

/// Bars or curves.
#[derive(Clone, Debug)]
pub enum Body {
    /// One figure for each subject.
    Bars(Bars),
    /// A line for each subject.
    Curves(Curves),
}

/// Horizontal bars, from top to bottom in the given order.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The axis below.
    pub axis: Axis,
    /// One for each subject.
    pub bars: Vec<Bar>,
}

/// One subject's figure.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The subject's name.
    pub label: String,
    /// The subject's colour and pattern.
    pub mark: Mark,
    /// Its figure. None if it could not be measured: then there is no bar, and `text` says why.
    pub value: Option<f64>,
    /// The figure with its unit, or why there is none.
    pub text: String,
    /// More about the figure, for the table. May be empty.
    pub detail: String,
}

/// Lines over one pair of axes.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The axis below.
    pub x: Axis,
    /// The axis on the left.
    pub y: Axis,
    /// One for each subject.
    pub curves: Vec<Curve>,
    /// The columns of the table: where each curve is read.
    pub readings: Vec<Reading>,
}

/// One subject's line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The subject's name.
    pub label: String,
    /// The subject's colour and pattern.
    pub mark: Mark,
    /// With `x` and `y` that never fall.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// On the axis below.
    pub x: f64,
    /// On the axis on the left.
    pub y: f64,
}

/// A column of the table of curves: the first `x` at which a curve has come to this `y`.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Its head.
    pub title: String,
    /// Where the curve is read.
    pub y: f64,
}

//! A chart as HTML: what the script draws, and the same figures as a table.

use crate::axis::Drawn;
use crate::chart::{Bars, Body, Chart, Curve, Curves};
use crate::mark::Mark;
use crate::page::{escape, table};
use serde::Serialize;

/// What the script reads.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Data<'a> {
    Bars {
        axis: Drawn,
        bars: Vec<BarData<'a>>,
    },
    Curves {
        x: Drawn,
        y: Drawn,
        curves: Vec<CurveData<'a>>,
    },
}

#[derive(Serialize)]
struct BarData<'a> {
    label: &'a str,
    mark: Mark,
    value: Option<f64>,
    text: &'a str,
}

#[derive(Serialize)]
struct CurveData<'a> {
    label: &'a str,
    mark: Mark,
    points: Vec<(f64, f64)>,
    texts: Vec<String>,
}

/// The element, to be put into a [`crate::document`].
#[must_use]
pub fn figure(chart: &Chart) -> String {
    let (data, legend, table, rows) = match &chart.body {
        Body::Bars(bars) => (
            bars_data(bars),
            String::new(),
            bars_table(bars),
            bars.bars.len(),
        ),
        Body::Curves(curves) => (curves_data(curves), legend(curves), curves_table(curves), 0),
    };
    // In a script element only "<" could end the element.
    let data = serde_json::to_string(&data)
        .expect("figures and texts are JSON")
        .replace('<', "\\u003c");
    let note = if chart.note.is_empty() {
        String::new()
    } else {
        format!(" <small>{}</small>", escape(&chart.note))
    };
    format!(
        "<figure class=\"chart\">\n<figcaption><b>{title}</b>{note}</figcaption>\n\
         <div class=\"canvas {kind}\" style=\"--rows:{rows}\"><canvas role=\"img\" aria-label=\"{title}: the table below has all figures\"></canvas></div>\n\
         {legend}<details open><summary>Figures</summary>\n{table}</details>\n\
         <script type=\"application/json\">{data}</script>\n</figure>\n",
        title = escape(&chart.title),
        kind = match chart.body {
            Body::Bars(_) => "bars",
            Body::Curves(_) => "curves",
        },
    )
}

fn bars_data(bars: &Bars) -> Data<'_> {
    let values = bars.bars.iter().filter_map(|bar| bar.value);
    Data::Bars {
        axis: bars.axis.drawn(values),
        bars: bars
            .bars
            .iter()
            .map(|bar| BarData {
                label: &bar.label,
                mark: bar.mark,
                value: bar.value,
                text: &bar.text,
            })
            .collect(),
    }
}

fn curves_data(curves: &Curves) -> Data<'_> {
    let points = || curves.curves.iter().flat_map(|curve| &curve.points);
    Data::Curves {
        x: curves.x.drawn(points().map(|point| point.x)),
        y: curves.y.drawn(points().map(|point| point.y)),
        curves: curves
            .curves
            .iter()
            .map(|curve| curve_data(curves, curve))
            .collect(),
    }
}

fn curve_data<'a>(curves: &Curves, curve: &'a Curve) -> CurveData<'a> {
    let points = curve.points.iter();
    let texts = points.clone().map(|point| {
        let (x, y) = ((curves.x.format)(point.x), (curves.y.format)(point.y));
        format!("{x}: {y}")
    });
    CurveData {
        label: &curve.label,
        mark: curve.mark,
        points: points.clone().map(|point| (point.x, point.y)).collect(),
        texts: texts.collect(),
    }
}

fn legend(curves: &Curves) -> String {
    let entries: String = curves
        .curves
        .iter()
        .map(|curve| format!("<li>{}{}</li>\n", curve.mark.swatch(), escape(&curve.label)))
        .collect();
    format!("<ul class=\"legend\">\n{entries}</ul>\n")
}

fn bars_table(bars: &Bars) -> String {
    let rows = bars.bars.iter().map(|bar| {
        vec![
            named(bar.mark, &bar.label),
            format!(
                "{} <small>{}</small>",
                escape(&bar.text),
                escape(&bar.detail)
            ),
        ]
    });
    table(&["", &bars.axis.title], rows)
}

fn curves_table(curves: &Curves) -> String {
    let titles = curves.readings.iter().map(|reading| reading.title.as_str());
    let heads: Vec<&str> = std::iter::once("").chain(titles).collect();
    let read = |curve: &Curve, y: f64| {
        let reached = curve.points.iter().find(|point| point.y >= y);
        reached.map_or_else(|| "-".to_owned(), |point| (curves.x.format)(point.x))
    };
    let rows = curves.curves.iter().map(|curve| {
        let cells = curves
            .readings
            .iter()
            .map(|reading| escape(&read(curve, reading.y)));
        std::iter::once(named(curve.mark, &curve.label))
            .chain(cells)
            .collect()
    });
    table(&heads, rows)
}

fn named(mark: Mark, label: &str) -> String {
    format!("{}{}", mark.swatch(), escape(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::{Axis, LOGARITHMIC, Scale, Steps};
    use crate::chart::{Bar, Point, Reading};

    fn axis(title: &str, scale: Scale) -> Axis {
        Axis {
            title: title.to_owned(),
            scale,
            logarithmic: LOGARITHMIC,
            steps: Steps::Decimal,
            format: |value| format!("{value} u"),
        }
    }

    fn bars(label: &str) -> Chart {
        let bar = |value: Option<f64>, text: &str| Bar {
            label: label.to_owned(),
            mark: Mark::of(0),
            value,
            text: text.to_owned(),
            detail: "×1.00".to_owned(),
        };
        Chart {
            title: "memory".to_owned(),
            note: "less is better".to_owned(),
            body: Body::Bars(Bars {
                axis: axis("a connection", Scale::Logarithmic),
                bars: vec![bar(Some(40.0), "40 B"), bar(None, "too small to measure")],
            }),
        }
    }

    fn curves() -> Chart {
        let point = |(x, y)| Point { x, y };
        Chart {
            title: "arrivals".to_owned(),
            note: String::new(),
            body: Body::Curves(Curves {
                x: axis("time", Scale::Logarithmic),
                y: axis("share", Scale::Linear),
                curves: vec![Curve {
                    label: "A".to_owned(),
                    mark: Mark::of(7),
                    points: [(1.0, 0.0), (2.0, 0.5), (5.0, 0.9)].map(point).into(),
                }],
                readings: [("half", 0.5), ("most", 0.75), ("all", 1.0)]
                    .map(|(title, y)| Reading {
                        title: title.to_owned(),
                        y,
                    })
                    .into(),
            }),
        }
    }

    /// What the script reads.
    fn data(figure: &str) -> serde_json::Value {
        let (_, rest) = figure.split_once("application/json\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_table_has_what_the_bars_show() {
        let figure = figure(&bars("Quick"));
        assert!(
            figure.contains(
                "Quick</th><td data-head=\"a connection\">40 B <small>×1.00</small></td>"
            ),
            "{figure}"
        );
        assert!(figure.contains(">too small to measure "), "{figure}");
        let data = data(&figure);
        assert_eq!(data["axis"]["title"], "a connection, logarithmic");
        assert_eq!(data["axis"]["ticks"][1]["label"], "100 u");
        assert_eq!(data["bars"][1]["value"], serde_json::Value::Null);
    }

    #[test]
    fn a_curve_is_read_where_it_first_comes_to_a_height() {
        let figure = figure(&curves());
        assert!(
            figure.contains(">2 u</td><td data-head=\"most\">5 u</td><td data-head=\"all\">-</td>"),
            "{figure}"
        );
        let data = data(&figure);
        assert_eq!(data["x"]["logarithmic"], true);
        assert_eq!(data["curves"][0]["texts"][1], "2 u: 0.5 u");
        assert_eq!(data["curves"][0]["mark"]["pattern"], 1);
    }

    #[test]
    fn no_label_becomes_markup() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}\"'&";
        let figure = figure(&bars(hostile));
        assert_eq!(figure.matches("<script").count(), 1);
        assert_eq!(figure.matches("</script").count(), 1);
        assert!(!figure.contains("<!--"));
        assert_eq!(data(&figure)["bars"][0]["label"], hostile);
    }
}

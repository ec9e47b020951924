//! The pictures of a run over time.

use super::ticks;
use crate::report::reporting::Language;
use crate::report::text::{count, rate};
use crate::report::{Report, float};
use myriad_charts::drawing::{Cell, Heat, Line, Plot, Shape, heat_map, plot};
use myriad_charts::{Axis, LOGARITHMIC, Mark, Point, Scale, Steps};
use myriad_report::{ArrivalCurve, HeatMap, Sample, SampleTimes, Series};

/// All of them that there is something to show in.
pub(super) fn pictures(report: &Report, language: Language) -> String {
    let series = &report.series;
    if series.samples.is_empty() {
        return String::new();
    }
    let painter = Painter { series, language };
    let over_time = painter.over_time();
    let latencies: String = series
        .heat
        .iter()
        .map(|heat| painter.latency(heat))
        .collect();
    let arrivals = painter.arrivals();
    let machine = painter.machine();
    let section = |title: &str, figures: &str| {
        if figures.is_empty() {
            return String::new();
        }
        format!("<h2>{title}</h2>\n<div class=\"charts\">\n{figures}</div>\n")
    };
    [
        section(
            language.of("Connections and rates", "连接与速率"),
            &over_time,
        ),
        section(language.of("Latency", "延迟"), &(latencies + &arrivals)),
        section(language.of("Machines", "资源使用"), &machine),
    ]
    .concat()
}

/// What a kind of time is called.
pub(super) fn name_of(of: &str, language: Language) -> &'static str {
    match of {
        "push" => language.of("Pushes", "推送"),
        "delivery" => language.of("Deliveries of what clients publish", "客户端消息投递"),
        "echo" => language.of("Echoes", "回显"),
        "client_publish" => language.of("Publications of clients", "客户端发布"),
        "request" => language.of("Requests", "请求"),
        "flow" => language.of("Flows", "业务流"),
        _ => language.of("Pings", "心跳"),
    }
}

struct Painter<'a> {
    series: &'a Series,
    language: Language,
}

impl Painter<'_> {
    fn time_axis(&self) -> Axis {
        let title = self.language.of("time since the start", "运行时间");
        self.axis(title, Scale::Linear, ticks::elapsed)
    }

    /// An axis with decimal steps.
    fn axis(&self, title: &str, scale: Scale, format: fn(f64) -> String) -> Axis {
        Axis {
            title: title.to_owned(),
            scale,
            logarithmic: self.language.of(LOGARITHMIC, "（对数刻度）"),
            steps: Steps::Decimal,
            format,
        }
    }

    /// The same as [`Self::points`], from the beginning of the run on.
    fn points_from(
        &self,
        start: Option<f64>,
        figure: impl Fn(&Sample) -> Option<f64>,
    ) -> Vec<Point> {
        let mut points = self.points(figure);
        if let (Some(first), Some(point)) = (self.series.samples.first(), points.first().copied()) {
            let y = start.unwrap_or(point.y);
            points.insert(0, Point { x: first.from_s, y });
        }
        points
    }

    /// A figure of each sample, at its end; samples without one are left out.
    fn points(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<Point> {
        let samples = self.series.samples.iter();
        let point = |sample: &Sample| {
            let x = sample.to_s;
            figure(sample).map(|y| Point { x, y })
        };
        samples.filter_map(point).collect()
    }

    fn over_time(&self) -> String {
        let language = self.language;
        let connections = self.plot(
            language.of("Open connections", "在线连接"),
            "",
            |value| count(myriad_units::whole(value)),
            vec![line(
                language.of("open", "在线"),
                0,
                Shape::Area,
                self.connected(),
            )],
        );
        connections + &self.rates() + &self.errors()
    }

    /// How many clients were open at the end of each sample, and between two of them where there were fewer.
    fn connected(&self) -> Vec<Point> {
        let ends = self.points_from(Some(0.0), |sample| Some(float(sample.connected)));
        let Some((first, ends)) = ends.split_first() else {
            return Vec::new();
        };
        let (mut points, mut before) = (vec![*first], first.y);
        for (sample, end) in self.series.samples.iter().zip(ends) {
            let least = sample.connected_least.map(float);
            if let Some(y) = least.filter(|&least| least < before.min(end.y)) {
                let x = f64::midpoint(sample.from_s, sample.to_s);
                points.push(Point { x, y });
            }
            points.push(*end);
            before = end.y;
        }
        points
    }

    fn rates(&self) -> String {
        let language = self.language;
        let received = self.points(|it| Some(it.messages_per_s));
        let answered = self.points(|it| Some(it.answered_per_s));
        // Where each message is an answer, one line would hide the other.
        let pairs = received.iter().zip(&answered);
        let are_alike = pairs.fold(true, |alike, (one, other)| {
            alike && (one.y - other.y).abs() <= 0.02 * one.y.max(other.y)
        });
        let received = match are_alike {
            true => Vec::new(),
            false => received,
        };
        let rates = [
            (
                language.of("sent", "发出"),
                Shape::Area,
                self.points(|it| Some(it.sent_per_s)),
            ),
            (
                language.of("messages received", "收到消息"),
                Shape::Line,
                received,
            ),
            (language.of("answered", "应答"), Shape::Line, answered),
            (
                language.of("connected", "新建连接"),
                Shape::Line,
                self.points(|it| Some(it.opened_per_s)),
            ),
        ];
        let rates = rates.into_iter().enumerate();
        let rates = rates.filter(|(_, (_, _, points))| points.iter().any(|point| point.y > 0.0));
        let rates = rates.map(|(index, (name, shape, points))| line(name, index, shape, points));
        self.plot(language.of("Rates", "速率"), "", rate, rates.collect())
    }

    fn errors(&self) -> String {
        let language = self.language;
        let errors = self.points(|sample| Some(float(sample.errors)));
        let lost = self.points(|sample| Some(float(sample.lost)));
        let any = errors.iter().chain(&lost).any(|point| point.y > 0.0);
        if !any {
            return String::new();
        }
        self.plot(
            language.of("Errors and lost connections", "错误与断开"),
            "",
            |value| count(myriad_units::whole(value)),
            vec![
                line(language.of("errors", "错误"), 1, Shape::Area, errors),
                line(
                    language.of("connections lost", "断开连接"),
                    2,
                    Shape::Line,
                    lost,
                ),
            ],
        )
    }

    fn latency(&self, heat: &HeatMap) -> String {
        let language = self.language;
        let name = name_of(&heat.of, language);
        let of = |figure: fn(&SampleTimes) -> f64| {
            self.points(|sample| sample.times.get(&heat.of).map(figure))
        };
        let lines = vec![
            line("p50", 0, Shape::Line, of(|times| times.p50_ms)),
            line("p99", 1, Shape::Line, of(|times| times.p99_ms)),
            line(
                language.of("max", "最大"),
                2,
                Shape::Line,
                of(|times| times.max_ms),
            ),
        ];
        let values = lines.iter().flat_map(|line| &line.points);
        let percentiles = Plot {
            title: self.titled(name, "percentiles", "百分位"),
            note: String::new(),
            x: self.time_axis(),
            y: self.axis("", Scale::suiting(values.map(|point| point.y)), ticks::time),
            lines,
            y_most: None,
        };
        plot(&percentiles) + &heat_map(&self.heat(heat, name))
    }

    fn titled(&self, name: &str, english: &'static str, chinese: &'static str) -> String {
        let colon = self.language.of(": ", "：");
        format!("{name}{colon}{}", self.language.of(english, chinese))
    }

    fn heat(&self, heat: &HeatMap, name: &str) -> Heat {
        let language = self.language;
        let mut cells = Vec::new();
        for (sample, counts) in self.series.samples.iter().zip(&heat.counts) {
            for (index, (&count, &high)) in counts.iter().zip(&heat.bounds_ms).enumerate() {
                // A row is a tenth of a power of ten.
                let low = match index {
                    0 => high / 10_f64.powf(0.1),
                    _ => heat.bounds_ms[index - 1],
                };
                if count > 0 {
                    cells.push(Cell {
                        x: (sample.from_s, sample.to_s),
                        y: (low, high),
                        count,
                    });
                }
            }
        }
        Heat {
            title: self.titled(name, "heat map", "热力图"),
            note: language
                .of("the stronger, the more", "颜色越浓数量越多")
                .to_owned(),
            x: self.time_axis(),
            y: self.axis("", Scale::Logarithmic, ticks::time),
            cells,
        }
    }

    fn arrivals(&self) -> String {
        let language = self.language;
        let named = |(index, curve): (usize, &ArrivalCurve)| {
            let name = match (curve.of.as_str(), curve.sequence) {
                ("all", _) => language.of("all pushes", "全部推送").to_owned(),
                ("fastest", Some(number)) => {
                    format!("{} ({number})", language.of("fastest", "最快"))
                }
                (_, number) => format!(
                    "{} ({})",
                    language.of("slowest", "最慢"),
                    number.unwrap_or(0)
                ),
            };
            let points = curve.points.iter().map(|&(x, y)| Point { x, y });
            line(&name, index, Shape::Line, points.collect())
        };
        let lines: Vec<Line> = self.series.arrivals.iter().enumerate().map(named).collect();
        if lines.is_empty() {
            return String::new();
        }
        let times = self.series.arrivals.iter().flat_map(|curve| &curve.points);
        plot(&Plot {
            title: language.of("Arrival", "到达曲线").to_owned(),
            note: language
                .of(
                    "share of clients reached, since publishing",
                    "发布后已到达客户端的比例",
                )
                .to_owned(),
            x: self.axis(
                language.of("time since the push", "发布后时间"),
                Scale::suiting(times.map(|point| point.0)),
                ticks::time,
            ),
            y: self.axis("", Scale::Linear, ticks::share),
            lines,
            y_most: Some(1.0),
        })
    }

    fn machine(&self) -> String {
        let language = self.language;
        let (crowd, server) = (
            language.of("generator", "压测机"),
            language.of("server", "服务器"),
        );
        let shares = self.plot_most(
            language.of("Processors: generator and machine", "处理器：压测机与整机"),
            language.of(
                "share of what it may use, in the busiest second",
                "占可用处理器的比例（最忙的一秒）",
            ),
            ticks::share,
            vec![
                line(
                    crowd,
                    0,
                    Shape::Line,
                    self.points_from(None, |it| Some(it.cpu_share)),
                ),
                line(
                    language.of("whole machine", "整机"),
                    1,
                    Shape::Line,
                    self.points_from(None, |it| Some(it.machine_cpu_share)),
                ),
            ],
            Some(1.0),
        );
        let memory = self.points_from(None, |it| Some(float(it.rss_anon_bytes)));
        let of_server = self.points(|it| Some(float(it.server?.rss_bytes?)));
        let mut lines = vec![line(crowd, 0, Shape::Line, memory)];
        if !of_server.is_empty() {
            lines.push(line(server, 1, Shape::Line, of_server));
        }
        let memory = self.plot_bytes(language.of("Memory", "内存"), lines);
        shares + &memory + &self.server_cpus(server)
    }

    fn server_cpus(&self, server: &str) -> String {
        let language = self.language;
        let cpus = self.points(|it| it.server?.cpus);
        if cpus.is_empty() {
            return String::new();
        }
        let title = language.of("Processors of the server", "服务器处理器占用");
        let note = language.of("processors kept busy", "占用的处理器数");
        let lines = vec![line(server, 1, Shape::Area, cpus)];
        // Up to one at least: hundredths of a processor are no picture.
        self.plot_most(title, note, |value| format!("{value:.1}"), lines, Some(1.0))
    }

    fn plot(&self, title: &str, note: &str, format: fn(f64) -> String, lines: Vec<Line>) -> String {
        self.plot_most(title, note, format, lines, None)
    }

    fn plot_most(
        &self,
        title: &str,
        note: &str,
        format: fn(f64) -> String,
        lines: Vec<Line>,
        y_most: Option<f64>,
    ) -> String {
        let points = lines.iter().flat_map(|line| &line.points);
        if !points.into_iter().any(|point| point.y > 0.0) {
            return String::new();
        }
        plot(&Plot {
            title: title.to_owned(),
            note: note.to_owned(),
            x: self.time_axis(),
            y: self.axis("", Scale::Linear, format),
            lines,
            y_most,
        })
    }

    fn plot_bytes(&self, title: &str, lines: Vec<Line>) -> String {
        plot(&Plot {
            title: title.to_owned(),
            note: String::new(),
            x: self.time_axis(),
            y: Axis {
                steps: Steps::Binary,
                ..self.axis("", Scale::Linear, |value| {
                    myriad_units::bytes(myriad_units::whole(value))
                })
            },
            lines,
            y_most: None,
        })
    }
}

fn line(label: &str, index: usize, shape: Shape, points: Vec<Point>) -> Line {
    Line {
        label: label.to_owned(),
        mark: Mark::of(index),
        shape,
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_were_away_between_two_samples_are_a_dip() {
        let sample = |second: u32, connected_least| Sample {
            from_s: f64::from(second),
            to_s: f64::from(second + 1),
            connected: 1_000,
            connected_least,
            ..Sample::default()
        };
        // The first second has everybody connect, and the last sample is that of an earlier version.
        let samples = vec![
            sample(0, Some(0)),
            sample(1, Some(1_000)),
            sample(2, Some(400)),
            sample(3, None),
        ];
        let series = Series {
            samples,
            ..Series::default()
        };
        let painter = Painter {
            series: &series,
            language: Language::English,
        };
        let points: Vec<(f64, f64)> = painter
            .connected()
            .iter()
            .map(|point| (point.x, point.y))
            .collect();
        let expected = [
            (0.0, 0.0),
            (1.0, 1_000.0),
            (2.0, 1_000.0),
            (2.5, 400.0),
            (3.0, 1_000.0),
            (4.0, 1_000.0),
        ];
        assert_eq!(points, expected);
    }
}

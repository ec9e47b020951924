//! What the dashboard looks like: connections and rates, percentiles over time, the generator, errors, events.

use super::Board;
use crate::report::text;
use myriad_report::{Phase, Sample, SampleTimes};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};

/// Rows below which there are figures and no pictures.
const ROWS_OF_PICTURES: u16 = 24;

/// Above this share of its processors the crowd has no rest.
const BUSY_SHARE: f64 = 0.9;

/// What is timed, the most important first, and what it is called.
const TIMED: [(&str, &str); 7] = [
    ("push", "pushes"),
    ("delivery", "deliveries"),
    ("flow", "flows"),
    ("echo", "echoes"),
    ("client_publish", "publications"),
    ("request", "requests"),
    ("ping", "pings"),
];

type Points = Vec<(f64, f64)>;

/// A rate of a sample: its name and its colour.
type Rate = (&'static str, Color, fn(&Sample) -> f64);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let area = frame.area();
    let has_pictures = area.height >= ROWS_OF_PICTURES;
    let below = if has_pictures { 9 } else { 6 };
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(below),
    ]);
    let [head, middle, foot] = rows.areas(area);
    frame.render_widget(Paragraph::new(headlines(board)), head);
    if has_pictures {
        let halves = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]);
        let [upper, lower] = halves.areas(middle);
        let [left, right] = columns(upper);
        connections(frame, left, board);
        rates(frame, right, board);
        latency(frame, lower, board);
    } else {
        let block = Block::bordered().title(" figures ");
        frame.render_widget(Paragraph::new(figures(board)).block(block), middle);
    }
    let [left, right] = columns(foot);
    let generator_block = Block::bordered().title(" generator ");
    frame.render_widget(
        Paragraph::new(generator(board)).block(generator_block),
        left,
    );
    let rows = usize::from(right.height.saturating_sub(2));
    let block = Block::bordered().title(" errors and events ");
    frame.render_widget(Paragraph::new(troubles(board, rows)).block(block), right);
}

fn columns(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area)
}

fn headlines(board: &Board) -> Vec<Line<'static>> {
    let progress = &board.progress;
    let phase = match board.phase {
        Some(Phase::Connecting) | None => "connecting",
        Some(Phase::Connected) => "connected",
        Some(Phase::Pushing) => "pushing",
        Some(Phase::Draining) => "closing",
        Some(Phase::Unknown) => "",
    };
    vec![
        Line::from(vec![
            " myriad swarm ".bold(),
            Span::raw(board.title.clone()),
        ]),
        Line::from(vec![
            Span::raw(format!(" {}  ", clock(progress.elapsed_s))),
            phase.cyan(),
            Span::raw(format!(
                "  {} of {} clients",
                text::count(progress.connected),
                text::count(progress.connections_wanted)
            )),
            Span::styled(
                format!("  {} lost", text::count(progress.lost)),
                bad_if(progress.lost > 0),
            ),
            Span::styled(
                format!("  {} missing", text::count(progress.missed)),
                bad_if(progress.missed > 0),
            ),
            "   Ctrl-C ends the run, with its report".dark_gray(),
        ]),
    ]
}

/// `00:01:23`.
fn clock(seconds: f64) -> String {
    let seconds = myriad_units::truncate(seconds);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn bad_if(is_bad: bool) -> Style {
    if is_bad {
        Style::new().fg(Color::Red)
    } else {
        Style::new().fg(Color::DarkGray)
    }
}

fn points(board: &Board, figure: impl Fn(&Sample) -> Option<f64>) -> Points {
    let samples = board.samples.iter();
    samples
        .filter_map(|sample| Some((sample.to_s, figure(sample)?)))
        .collect()
}

fn connections(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let progress = &board.progress;
    let title = format!(
        " connections: {}, {} under way ",
        text::count(progress.connected),
        text::count(progress.connecting)
    );
    let open = points(board, |it| Some(crate::report::float(it.connected)));
    let count = |value| text::count(myriad_units::whole(value));
    chart(
        frame,
        area,
        title,
        &[(String::new(), Color::Cyan, open)],
        count,
    );
}

fn rates(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let last = board.samples.back();
    let now = |figure: fn(&Sample) -> f64| text::rate(last.map_or(0.0, figure));
    let lines: [Rate; 3] = [
        ("received", Color::Green, |it| it.messages_per_s),
        ("sent", Color::Yellow, |it| it.sent_per_s),
        ("new", Color::Magenta, |it| it.opened_per_s),
    ];
    // A rate that was never above zero takes no room.
    let lines = lines.into_iter();
    let lines = lines.filter(|(_, _, figure)| board.samples.iter().any(|it| figure(it) > 0.0));
    let lines = lines.map(|(name, colour, figure)| {
        let label = format!("{name} {}", now(figure));
        (label, colour, points(board, |it| Some(figure(it))))
    });
    chart(
        frame,
        area,
        " rates ".to_owned(),
        &lines.collect::<Vec<_>>(),
        text::rate,
    );
}

/// The most important kind of time that was measured, and what it is called.
fn timed(board: &Board) -> Option<(&'static str, &'static str)> {
    let is_in = |of: &str| board.samples.iter().any(|it| it.times.contains_key(of));
    TIMED.into_iter().find(|(of, _)| is_in(of))
}

fn latency(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let Some((of, name)) = timed(board) else {
        let block = Block::bordered().title(" latency: nothing timed yet ");
        frame.render_widget(block, area);
        return;
    };
    let newest = board.samples.iter().rev().find_map(|it| it.times.get(of));
    let now = newest.copied().unwrap_or_default();
    let line = |name: &str, colour, figure: fn(&SampleTimes) -> f64| {
        let label = format!("{name} {}", text::time(figure(&now)));
        let points = points(board, |it| it.times.get(of).map(figure));
        (label, colour, points)
    };
    let lines = [
        line("p50", Color::Cyan, |times| times.p50_ms),
        line("p99", Color::Yellow, |times| times.p99_ms),
        line("max", Color::Red, |times| times.max_ms),
    ];
    chart(
        frame,
        area,
        format!(" latency of {name} "),
        &lines,
        text::time,
    );
}

/// Lines from zero on, with a legend in the title.
fn chart(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    lines: &[(String, Color, Points)],
    label: impl Fn(f64) -> String,
) {
    let all = || lines.iter().flat_map(|(_, _, points)| points);
    let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = all().map(|point| point.0).fold(1.0, f64::max);
    let first = if first < last { first } else { 0.0 };
    let most = all().map(|point| point.1).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.05 } else { 1.0 };
    let datasets = lines.iter().map(|(_, colour, points)| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(*colour))
            .data(points)
    });
    let mut legend = vec![Span::raw(title)];
    for (name, colour, _) in lines.iter().filter(|(name, _, _)| !name.is_empty()) {
        legend.push(Span::styled(
            format!("\u{25a0} {name}  "),
            Style::new().fg(*colour),
        ));
    }
    let dim = Style::new().fg(Color::DarkGray);
    let x = Axis::default()
        .style(dim)
        .bounds([first, last])
        .labels([clock(first), clock(last)])
        .labels_alignment(Alignment::Right);
    let y = Axis::default().style(dim).bounds([0.0, top]).labels([
        "0".to_owned(),
        label(top / 2.0),
        label(top),
    ]);
    let chart = Chart::new(datasets.collect())
        .block(Block::bordered().title(Line::from(legend)))
        .legend_position(None)
        .x_axis(x)
        .y_axis(y);
    frame.render_widget(chart, area);
}

/// The same as the pictures, in words.
fn figures(board: &Board) -> Vec<Line<'static>> {
    let progress = &board.progress;
    let mut lines = vec![
        Line::raw(format!(
            "connecting {}, {}",
            text::count(progress.connecting),
            text::rate(progress.setup_rate_per_s)
        )),
        Line::raw(format!(
            "messages {}, {}",
            text::count(progress.messages),
            text::rate(progress.message_rate_per_s)
        )),
    ];
    if let Some((of, name)) = timed(board)
        && let Some(times) = board.samples.iter().rev().find_map(|it| it.times.get(of))
    {
        lines.push(Line::raw(format!(
            "{name}: p50 {}, p99 {}, max {}",
            text::time(times.p50_ms),
            text::time(times.p99_ms),
            text::time(times.max_ms)
        )));
    }
    lines
}

/// Whether the crowd itself is the limit, and what the server uses.
fn generator(board: &Board) -> Vec<Line<'static>> {
    let progress = &board.progress;
    let busy = progress.cpu_share > BUSY_SHARE;
    let verdict = if busy {
        "  no rest: the crowd may be the limit".red()
    } else {
        "  has rest".green()
    };
    let last = board.samples.back();
    let machine = last.map_or(0.0, |it| it.machine_cpu_share);
    let each = progress
        .user_bytes_per_client
        .map_or_else(String::new, |bytes| {
            format!(", {} a client", text::bytes(bytes))
        });
    let mut lines = vec![
        Line::from(vec![
            Span::raw(format!("processors {}", text::share(progress.cpu_share))),
            verdict,
        ]),
        Line::raw(format!("whole machine {}", text::share(machine))),
        Line::raw(format!(
            "memory {}{each}",
            myriad_units::bytes(progress.rss_anon_bytes)
        )),
    ];
    if let Some(server) = last.and_then(|it| it.server) {
        let cpus = server
            .cpus
            .map(|cpus| format!(" {}", myriad_units::cores(cpus)));
        let memory = server
            .rss_bytes
            .map(|bytes| format!(" {}", myriad_units::bytes(bytes)));
        let open = server
            .connections
            .map(|count| format!(" {}", text::counted(count, "connection")));
        let parts = [cpus, memory, open]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        lines.push(Line::raw(format!("server{}", parts.join(","))));
    }
    lines
}

/// Errors by kind, then the newest events, in so many rows.
fn troubles(board: &Board, rows: usize) -> Vec<Line<'static>> {
    let errors = board.progress.errors.iter();
    let closes = board.progress.closes.iter();
    let errors = errors.map(|(kind, count)| format!("{kind} {}", text::count(*count)));
    let closes = closes.map(|(code, count)| format!("close {code} {}", text::count(*count)));
    let mut lines: Vec<Line<'static>> = errors
        .chain(closes)
        .take(rows.div_ceil(2))
        .map(|text| Line::from(text.red()))
        .collect();
    if lines.is_empty() {
        lines.push(Line::from("no errors".green()));
    }
    let left = rows.saturating_sub(lines.len());
    let events = board
        .events
        .iter()
        .skip(board.events.len().saturating_sub(left));
    lines.extend(events.map(|event| Line::raw(event.trim().to_owned())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{Progress, ServerSample};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn board() -> Board {
        let sample = |second: u32| Sample {
            from_s: f64::from(second),
            to_s: f64::from(second + 1),
            connected: 1_000 * u64::from(second),
            messages_per_s: 2_500.0,
            machine_cpu_share: 0.8,
            server: Some(ServerSample {
                cpus: Some(1.25),
                rss_bytes: Some(64 << 20),
                connections: Some(9_000),
            }),
            times: [(
                "echo".to_owned(),
                SampleTimes {
                    count: 10,
                    p50_ms: 0.2,
                    p99_ms: 12.0,
                    max_ms: 40.0,
                },
            )]
            .into(),
            ..Sample::default()
        };
        Board {
            title: "ws://127.0.0.1:8000/echo".to_owned(),
            phase: Some(Phase::Connected),
            progress: Progress {
                elapsed_s: 83.4,
                connected: 9_000,
                connections_wanted: 10_000,
                lost: 3,
                cpu_share: 0.97,
                rss_anon_bytes: 12 << 20,
                errors: [("handshake_timeout".to_owned(), 7)].into(),
                ..Progress::default()
            },
            samples: (0..10).map(sample).collect(),
            events: ["note: using epoll".to_owned()].into(),
        }
    }

    fn drawn(board: &Board, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, board)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_large_terminal_has_pictures_and_all_figures() {
        let screen = drawn(&board(), 120, 40);
        for text in [
            "ws://127.0.0.1:8000/echo",
            "00:01:23",
            "9,000 of 10,000 clients",
            "3 lost",
            "0 missing",
            "latency of echoes",
            "p99 12.0 ms",
            "received 2,500/s",
            "no rest",
            "server 1.25 cores, 64 MiB, 9,000 connections",
            "handshake_timeout 7",
            "using epoll",
        ] {
            assert!(screen.contains(text), "{text} in\n{screen}");
        }
        let dots = screen
            .chars()
            .filter(|it| ('\u{2801}'..='\u{28ff}').contains(it));
        assert!(dots.count() > 20, "{screen}");
    }

    #[test]
    fn a_small_terminal_has_the_figures() {
        let screen = drawn(&board(), 60, 16);
        for text in [
            "echoes: p50 200 µs, p99 12.0 ms",
            "no rest",
            "handshake_timeout 7",
        ] {
            assert!(screen.contains(text), "{text} in\n{screen}");
        }
    }

    #[test]
    fn no_size_and_no_content_is_too_little() {
        for (columns, rows) in [(1, 1), (5, 3), (20, 30), (300, 2), (80, 24)] {
            drawn(&board(), columns, rows);
            drawn(&Board::default(), columns, rows);
        }
    }
}

//! What an agent that is lost was to send: what falls due there after it was heard last is sent by nobody.

use crate::clock::Nanos;
use crate::engine::deal::Slice;
use crate::engine::flows::plan::{FlowPlan, Route};
use crate::engine::pacing::{Pacing, Share};
use crate::engine::plan::Plan;
use crate::engine::shared::{Due, Span};

/// Messages of an agent's part of the crowd that have fallen due by now. Of flows with a time to think that is not known: there the
/// next message depends on the answer to the one before.
pub(super) fn due_of(plan: &Plan, slice: Slice, window: Span, now: Nanos) -> Due {
    let by_now = |pacing: Pacing| pacing.due_before(window.until, now);
    let of_threads = |rate_per_s: f64| {
        let threads = slice.thread_numbers();
        let shares = threads.map(|it| Share::of(rate_per_s, plan, plan.part(it)));
        shares.map(|it| by_now(it.pacing(window.from))).sum()
    };
    let of_callers = |rate_per_s: f64| {
        let part = f64::from(slice.terminals) / f64::from(plan.connections);
        by_now(Pacing::new(Some(rate_per_s * part), window.from))
    };
    let of_flow = |flow: &FlowPlan| {
        let rate_per_s = flow.pace.rate_per_s()?;
        Some(match flow.route {
            Route::Http(_) => of_callers(rate_per_s),
            _ => of_threads(rate_per_s),
        })
    };
    let flows = plan.flows.iter().flat_map(|it| &it.flows);
    Due {
        answered: plan.answered.map_or(0, |it| of_threads(it.rate_per_s)),
        flows: flows.map(|it| of_flow(it).unwrap_or_default()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Dealt, Echo};
    use crate::engine::deal::Deal;
    use crate::target::Target;
    use std::time::Duration;

    #[test]
    fn all_agents_together_are_to_send_what_the_rate_says() {
        let slice = |at: u32| Slice {
            first_thread: at * 2,
            threads: 2,
            first_terminal: at * 10,
            terminals: 10,
        };
        let slices = vec![slice(0), slice(1)];
        let target = Target::parse("ws://127.0.0.1:1/").unwrap();
        let mut config = Config::new(vec![target], 20);
        config.echo = Some(Echo {
            rate_per_s: 100.0,
            payload_bytes: 64,
            warmup: Duration::ZERO,
        });
        config.dealt = Some(Dealt {
            deal: Deal::of(slices.clone(), None).unwrap(),
            run: 1,
            seed: 1,
        });
        let plan = config.prepare().unwrap().plan;
        let second = |number: u64| Nanos(number * 1_000_000_000);
        let window = Span {
            from: second(2),
            until: second(9),
        };
        let due = |now: Nanos| {
            let due = slices.iter().map(|it| due_of(&plan, *it, window, now));
            due.map(|it| it.answered).collect::<Vec<_>>()
        };
        assert_eq!(due(second(1)), [0, 0]);
        assert_eq!(due(second(60)), [350, 350]);
    }
}

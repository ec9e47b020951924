//! Publishes the server's time at intervals.

use crate::config::Announcement;
use crate::control::Stage;
use crate::debug_log::PublishLog;
use myriad_shard::{Mesh, Payload};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Announces until the server drains. Ticks keep the schedule of the first one, even if one of them runs late.
pub(crate) async fn announce(
    announcement: Announcement,
    mesh: Mesh,
    log: Arc<PublishLog>,
    mut stage: watch::Receiver<Stage>,
) {
    let Announcement { channel, every } = announcement;
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stage.wait_for(|stage| *stage != Stage::Serving) => return,
        }
        let payload = Payload::Text(message(SystemTime::now()).into());
        let bytes = PublishLog::bytes_shown(&payload);
        match mesh.publish(&channel, payload, None) {
            Ok(()) => log.announced(&channel, bytes),
            Err(refused) => tracing::warn!("announcement to {channel} skipped: {refused:?}"),
        }
    }
}

fn message(time: SystemTime) -> String {
    // A clock before 1970 is set wrong; the announcement then says so by its value.
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!(
        "{{\"time\":\"{}\",\"unix_ms\":{}}}",
        rfc3339(since_1970),
        since_1970.as_millis()
    )
}

/// UTC with milliseconds, as in RFC 3339.
fn rfc3339(since_1970: Duration) -> String {
    format!("{}.{:03}Z", second(since_1970), since_1970.subsec_millis())
}

/// UTC with microseconds, as lines of the log have it.
pub(crate) fn rfc3339_us(since_1970: Duration) -> String {
    format!("{}.{:06}Z", second(since_1970), since_1970.subsec_micros())
}

/// UTC up to the second.
fn second(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn date(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_078_012_800_001, "2004-02-29T00:00:00.001Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = Duration::from_millis(ms);
            assert_eq!(rfc3339(time), text);
            let finer = format!("{}000Z", text.trim_end_matches('Z'));
            assert_eq!(rfc3339_us(time), finer);
        }
    }

    #[test]
    fn a_message_is_json_with_both_forms_of_the_time() {
        let message = message(UNIX_EPOCH + Duration::from_millis(1_767_225_599_123));
        let value: serde_json::Value = serde_json::from_str(&message).unwrap();
        assert_eq!(value["time"], "2025-12-31T23:59:59.123Z");
        assert_eq!(value["unix_ms"], 1_767_225_599_123_u64);
    }
}

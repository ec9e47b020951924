//! Sets with time in the test's hand. `fetch.rs` has requests to real servers.

use super::super::algorithm::Algorithm;
use super::*;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use tokio::time::{advance, sleep};

const URL: &str = "https://keys.example/";

/// A set with one key of RFC 8037 under each name.
fn set(names: &[&str]) -> Set {
    let key = |name: &&str| {
        format!(
            r#"{{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"{name}"}}"#
        )
    };
    let keys: Vec<_> = names.iter().map(key).collect();
    Set::read(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).unwrap()
}

/// What an endpoint answers: names of keys, or nothing that can be used. The last one is repeated.
#[derive(Default)]
struct Plan {
    answers: Mutex<VecDeque<Option<Vec<&'static str>>>>,
    requests: AtomicUsize,
}

impl Plan {
    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    fn then(&self, answer: Option<&[&'static str]>) {
        let mut answers = locked(&self.answers);
        answers.clear();
        answers.push_back(answer.map(Into::into));
    }
}

fn sets(answer: Option<&[&'static str]>) -> (KeySets, Arc<Plan>) {
    let plan = Arc::<Plan>::default();
    plan.then(answer);
    let planned = Arc::clone(&plan);
    let fetch: Arc<Fetch> = Arc::new(move |_| {
        let plan = Arc::clone(&planned);
        Box::pin(async move {
            plan.requests.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(100)).await;
            let answer = locked(&plan.answers).front().cloned().flatten();
            answer
                .map(|names| set(&names))
                .ok_or(fetch::FetchError::NoKeys)
        })
    });
    (KeySets::with(fetch), plan)
}

async fn ask(sets: &KeySets, name: &str) -> Result<(), KeyFault> {
    let found = sets.key(URL, name, Algorithm::Ed25519).await;
    found.map(drop)
}

#[tokio::test(start_paused = true)]
async fn one_request_serves_all_who_wait_and_an_hour_after() {
    let (sets, plan) = sets(Some(&["a", "b"]));
    let all = tokio::join!(ask(&sets, "a"), ask(&sets, "b"), ask(&sets, "a"));
    assert_eq!(all, (Ok(()), Ok(()), Ok(())));
    assert_eq!(plan.requests(), 1);
    advance(REFRESH_AFTER - Duration::from_secs(1)).await;
    ask(&sets, "a").await.unwrap();
    assert_eq!(plan.requests(), 1);
    // Then it is fetched in the background, once.
    advance(Duration::from_secs(2)).await;
    let began = Instant::now();
    ask(&sets, "a").await.unwrap();
    ask(&sets, "a").await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(PAUSE).await;
    assert_eq!(plan.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_and_one_that_went_is_forgotten() {
    let (sets, plan) = sets(Some(&["old"]));
    ask(&sets, "old").await.unwrap();
    plan.then(Some(&["new"]));
    sleep(PAUSE).await;
    ask(&sets, "new").await.unwrap();
    assert_eq!(plan.requests(), 2);
    assert_eq!(ask(&sets, "old").await, Err(KeyFault::Unknown));
}

#[tokio::test(start_paused = true)]
async fn unknown_names_make_few_requests() {
    let (sets, plan) = sets(Some(&["a"]));
    ask(&sets, "a").await.unwrap();
    let began = Instant::now();
    for nth in 0..10 {
        let name = format!("made-up-{nth}");
        assert_eq!(ask(&sets, &name).await, Err(KeyFault::Unknown));
        ask(&sets, "a").await.unwrap();
    }
    // Each waits for the next request, and there are seconds between two of them.
    assert_eq!(plan.requests(), 11);
    assert!(began.elapsed() >= PAUSE * 10);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_bounded() {
    let (sets, _plan) = sets(Some(&["a"]));
    let sets = Arc::new(sets);
    let waiting: Vec<_> = (0..=WAITING_MAX)
        .map(|_| {
            let sets = Arc::clone(&sets);
            tokio::spawn(async move { ask(&sets, "b").await })
        })
        .collect();
    let mut unavailable = 0;
    for one in waiting {
        match one.await.unwrap() {
            Err(KeyFault::Unavailable) => unavailable += 1,
            found => assert_eq!(found, Err(KeyFault::Unknown)),
        }
    }
    assert_eq!(unavailable, 1);
}

#[tokio::test(start_paused = true)]
async fn old_keys_stay_for_a_day_while_the_endpoint_is_down() {
    let (sets, plan) = sets(Some(&["a"]));
    ask(&sets, "a").await.unwrap();
    plan.then(None);
    advance(FRESH).await;
    // The first waits for the request that fails, the next ones do not.
    ask(&sets, "a").await.unwrap();
    let began = Instant::now();
    ask(&sets, "a").await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(ask(&sets, "b").await, Err(KeyFault::Unavailable));
    advance(KEPT - FRESH - Duration::from_mins(1)).await;
    ask(&sets, "a").await.unwrap();
    advance(Duration::from_mins(2)).await;
    assert_eq!(ask(&sets, "a").await, Err(KeyFault::Unavailable));
    // It comes back.
    plan.then(Some(&["a"]));
    sleep(PAUSE).await;
    ask(&sets, "a").await.unwrap();
    let counts = sets.fetches();
    assert_eq!(counts.succeeded.load(Ordering::Relaxed), 2);
    assert!(counts.failed.load(Ordering::Relaxed) >= 2);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_down_makes_nobody_wait_twice() {
    let (sets, plan) = sets(None);
    assert_eq!(ask(&sets, "a").await, Err(KeyFault::Unavailable));
    let began = Instant::now();
    assert_eq!(ask(&sets, "a").await, Err(KeyFault::Unavailable));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(plan.requests(), 1);
    plan.then(Some(&["a"]));
    sleep(PAUSE).await;
    ask(&sets, "a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_on_when_nobody_waits_any_more() {
    let (sets, plan) = sets(Some(&["a"]));
    let short = Duration::from_millis(1);
    let gave_up = tokio::time::timeout(short, ask(&sets, "a")).await;
    assert!(gave_up.is_err());
    sleep(Duration::from_secs(1)).await;
    ask(&sets, "a").await.unwrap();
    assert_eq!(plan.requests(), 1);
}

fn count(sets: &KeySets) -> usize {
    locked(&sets.sets).len()
}

#[tokio::test(start_paused = true)]
async fn made_up_urls_do_not_push_out_sets_that_are_proven() {
    let (sets, plan) = sets(Some(&["a"]));
    ask(&sets, "a").await.unwrap();
    sets.verified(URL);
    // Nobody uses it for hours, while strangers make up names; some of them bring sets.
    for round in 0..100 {
        plan.then((round % 2 == 0).then_some(&["a"]));
        for nth in 0..2 * UNPROVEN_MAX {
            let url = format!("https://keys.example/{round}/{nth}");
            let _ = sets.key(&url, "a", Algorithm::Ed25519).await;
            assert!(count(&sets) <= UNPROVEN_MAX + 1);
        }
        sleep(Duration::from_mins(2)).await;
    }
    let before = plan.requests();
    plan.then(None);
    ask(&sets, "a").await.unwrap();
    assert!(plan.requests() <= before + 1, "it was there");
}

#[tokio::test(start_paused = true)]
async fn made_up_urls_make_few_requests_and_leave_room_for_new_ones() {
    let (sets, plan) = sets(None);
    let mut refused = 0;
    for nth in 0..3 * UNPROVEN_MAX {
        let url = format!("https://keys.example/{nth}");
        let before = plan.requests();
        let found = sets.key(&url, "a", Algorithm::Ed25519).await;
        assert_eq!(found.err(), Some(KeyFault::Unavailable));
        refused += usize::from(plan.requests() == before);
    }
    assert!(refused > UNPROVEN_MAX, "{refused}");
    // One that has just failed is not asked again.
    let before = plan.requests();
    let again = sets.key("https://keys.example/0", "a", Algorithm::Ed25519);
    assert!(again.await.is_err());
    assert_eq!(plan.requests(), before);
    sleep(PAUSE).await;
    plan.then(Some(&["a"]));
    let found = sets.key("https://keys.example/new", "a", Algorithm::Ed25519);
    assert!(found.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_proven_sets_the_one_that_was_not_used_for_longest_makes_room() {
    let (sets, _plan) = sets(Some(&["a"]));
    sets.warm_up(URL);
    for nth in 0..PROVEN_MAX {
        sleep(PAUSE).await;
        let url = format!("https://keys.example/{nth}");
        sets.key(&url, "a", Algorithm::Ed25519).await.unwrap();
        sets.verified(URL);
        sets.verified(&url);
    }
    assert_eq!(count(&sets), PROVEN_MAX);
    let is_there = |url: &str| locked(&sets.sets).contains_key(url);
    assert!(is_there(URL) && !is_there("https://keys.example/0"));
    assert!(is_there("https://keys.example/1"));
}

#[tokio::test(start_paused = true)]
async fn the_first_token_finds_a_set_that_was_warmed_up() {
    let (sets, plan) = sets(Some(&["a"]));
    sets.warm_up(URL);
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    ask(&sets, "a").await.unwrap();
    sets.warm_up(URL);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(plan.requests(), 1);
    assert_eq!(began.elapsed(), Duration::from_secs(9));
    assert_eq!(sets.age(), Some(Duration::from_millis(9_900)));
}

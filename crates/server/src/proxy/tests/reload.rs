//! What stays of the application when the configuration changes.

use super::app::{Act, App};
use super::faults::until;
use super::*;
use myriad_reserved_port::ReservedPort;
use tokio::sync::Semaphore;

/// What answers connects and what answers methods.
fn asked(connect: &ProxySettings, rpc: &ProxySettings) -> ApplicationSettings {
    ApplicationSettings {
        connect: Some(connect.clone()),
        rpc: Some(rpc.clone()),
        methods: Methods {
            without_namespace: Some("default".into()),
            ..Methods::default()
        },
        ..ApplicationSettings::default()
    }
}

fn reloaded(settings: ApplicationSettings, before: Option<&Application>) -> Application {
    let metrics = ProxyMetrics::registered(&mut Registry::default());
    Application::with(settings, Arc::default(), false, &metrics, before).unwrap()
}

fn named(name: &str, address: SocketAddr) -> ProxySettings {
    ProxySettings {
        name: name.into(),
        ..settings(address)
    }
}

#[test]
fn a_proxy_that_is_the_same_keeps_its_circuit_and_another_begins_anew() {
    let nobody = ReservedPort::take().unwrap();
    let dead = nobody.address();
    run(async {
        let (connects, methods) = (named("connects", dead), named("methods", dead));
        let first = reloaded(asked(&connects, &methods), None);
        for _ in 0..10 {
            let failed = first.answer(&asker(), &connect(None)).await;
            assert!(matches!(failed, AskAnswer::Unavailable));
        }
        let app = App::always(Act::Answer("{\"result\": {}}".into())).await;
        let moved = named("methods", app.address);
        let second = reloaded(asked(&connects, &moved), Some(&first));
        let (before, after) = (first.connect.unwrap(), second.connect.clone().unwrap());
        assert!(
            Arc::ptr_eq(&before, &after),
            "the same proxy with its open circuit"
        );
        let answer = second.answer(&asker(), &rpc("a", json("1"))).await;
        assert!(matches!(answer, AskAnswer::Rpc(_)), "{answer:?}");
        let moved = named("connects", app.address);
        let third = reloaded(asked(&moved, &methods), Some(&second));
        let answer = third.answer(&asker(), &connect(None)).await;
        assert!(matches!(answer, AskAnswer::Connect(_)), "{answer:?}");
    });
}

#[test]
fn connections_are_kept_over_a_reload() {
    run(async {
        let app = App::always(Act::Answer("{\"result\": {}}".into())).await;
        let connects = named("connects", app.address);
        let mut application = reloaded(asked(&connects, &connects), None);
        for timeout in 1..4 {
            let answer = application.answer(&asker(), &connect(None)).await;
            assert!(matches!(answer, AskAnswer::Connect(_)), "{answer:?}");
            // The proxy is another one each time, and reached in the same way.
            let changed = ProxySettings {
                timeout: PATIENCE + Duration::from_secs(timeout),
                ..connects.clone()
            };
            application = reloaded(asked(&changed, &connects), Some(&application));
        }
        assert_eq!(app.connections(), 1);
    });
}

#[test]
fn calls_under_way_end_as_they_began() {
    run(async {
        let gate = Arc::new(Semaphore::new(0));
        let act = Act::Gated(Arc::clone(&gate), "{\"result\": {}}".into());
        let (old, new) = (App::always(act.clone()).await, App::always(act).await);
        let first = named("connects", old.address);
        let first = Arc::new(reloaded(asked(&first, &first), None));
        let asking = Arc::clone(&first);
        let under_way = tokio::spawn(async move { asking.answer(&asker(), &connect(None)).await });
        until(|| old.seen().len() == 1).await;
        let moved = named("connects", new.address);
        let second = reloaded(asked(&moved, &moved), Some(&first));
        drop(first);
        gate.add_permits(2);
        let answer = second.answer(&asker(), &connect(None)).await;
        assert!(matches!(answer, AskAnswer::Connect(_)), "{answer:?}");
        let answer = under_way.await.unwrap();
        assert!(matches!(answer, AskAnswer::Connect(_)), "{answer:?}");
        assert_eq!((old.seen().len(), new.seen().len()), (1, 1));
    });
}

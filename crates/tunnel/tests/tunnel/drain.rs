//! Shutdown of either side: no new streams, open ones continue.

use std::{sync::atomic::Ordering, time::Duration};

use chandler_tunnel::{CloseReason, OpenError};

use crate::harness::{OPEN_LIMIT, Options, Tunnel, run, within};

#[test]
fn an_agent_that_stops_keeps_its_open_streams() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let mut connected = tunnel.connect().await.unwrap();
        tunnel.shutdown.cancel();
        let refused = async {
            while tunnel.hub.is_usable() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(refused).await;
        let error = tunnel.hub.open(OPEN_LIMIT).await.unwrap_err();
        assert_eq!(error, OpenError::Closing);
        assert!(error.is_worth_another_connection());
        connected.ping_pong().await;
        connected.finish().await;
        assert_eq!(within(tunnel.hub.closed()).await, CloseReason::Closed);
        assert_eq!(within(tunnel.serving).await.unwrap(), CloseReason::ClosedHere);
        assert_eq!(tunnel.agent.drained.load(Ordering::SeqCst), 0, "only the hub's drain is reported");
    });
}

#[test]
fn a_hub_that_stops_sends_its_agent_elsewhere_and_keeps_open_streams() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let mut connected = tunnel.connect().await.unwrap();
        let stopping = tokio::spawn({
            let hub = tunnel.hub.clone();
            async move { hub.shutdown(Duration::from_secs(20)).await }
        });
        let draining = async {
            while tunnel.agent.drained.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(draining).await;
        assert_eq!(tunnel.hub.open(OPEN_LIMIT).await.err(), Some(OpenError::Closing));
        connected.ping_pong().await;
        assert!(!stopping.is_finished());
        connected.finish().await;
        assert_eq!(within(stopping).await.unwrap(), CloseReason::Closed);
        assert_eq!(within(tunnel.serving).await.unwrap(), CloseReason::ClosedHere);
    });
}

#[test]
fn streams_that_do_not_end_are_cut_at_the_deadline() {
    run(async {
        let mut tunnel = Tunnel::start(Options::default()).await;
        let connected = tunnel.connect().await.unwrap();
        let started = tokio::time::Instant::now();
        let reason = within(tunnel.hub.shutdown(Duration::from_secs(5))).await;
        assert_eq!((reason, started.elapsed().as_secs()), (CloseReason::DrainTimeout, 5));
        assert!(within(connected.pumping).await.unwrap().is_err());

        let mut tunnel = Tunnel::start(Options::default()).await;
        let connected = tunnel.connect().await.unwrap();
        let started = tokio::time::Instant::now();
        tunnel.shutdown.cancel();
        assert_eq!(within(tunnel.serving).await.unwrap(), CloseReason::DrainTimeout);
        assert_eq!(started.elapsed().as_secs(), 30);
        assert!(within(connected.pumping).await.unwrap().is_err());
    });
}

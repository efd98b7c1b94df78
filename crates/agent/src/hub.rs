//! All connections to one hub.

use std::{sync::Arc, time::Duration};

use chandler_tunnel::HubEndpoint;
use jiff::Timestamp;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    renewal,
    session::{self, SessionError},
    spread,
    supervisor::Shared,
};

/// How long a connection that is to end at another replica may take.
const EXTRA_CONNECTION_LIMIT: Duration = Duration::from_secs(20);

/// Keeps the connections to one hub until it is stopped.
pub struct Hub {
    pub shared: Arc<Shared>,
    /// The entry of the hub, whose token and authority may change.
    pub endpoint: watch::Receiver<HubEndpoint>,
    pub stop: CancellationToken,
}

/// The slots of a hub in the order of their creation. Each keeps one connection.
#[derive(Default)]
struct Slots {
    open: Vec<(u64, CancellationToken)>,
    tasks: JoinSet<()>,
}

impl Hub {
    pub async fn run(self) {
        let mut slots = Slots::default();
        for _ in 0..self.shared.settings.config.connections {
            self.add_slot(&mut slots);
        }
        tokio::select! {
            () = self.renew() => {}
            () = self.spread(&mut slots) => {}
            () = self.stop.cancelled() => {}
        }
        while slots.tasks.join_next().await.is_some() {}
    }

    fn add_slot(&self, slots: &mut Slots) -> u64 {
        let slot = self.shared.next_slot();
        let stop = self.stop.child_token();
        slots.open.push((slot, stop.clone()));
        slots.tasks.spawn(keep_connected(self.shared.clone(), self.endpoint.clone(), slot, stop));
        slot
    }

    /// Renews the certificate when it is due, although the connections live on.
    async fn renew(&self) {
        loop {
            let hub = self.endpoint.borrow().clone();
            // The slots log why there is no certificate.
            let certificate = self.shared.credentials.certificate(&hub).await.ok();
            let facts = certificate.as_deref().map(|certificate| &certificate.facts);
            sleep(renewal::wait(facts, Timestamp::now())).await;
        }
    }

    /// Moves connections that end at the same replica of the hub to others, if there are others. A connection is closed only
    /// after the one that replaces it is up.
    async fn spread(&self, slots: &mut Slots) {
        let mut attempts = 0;
        loop {
            sleep(spread::wait(attempts, fastrand::f64())).await;
            while slots.tasks.try_join_next().is_some() {}
            if !spread::is_uneven(&borrowed(&self.replicas(slots))) {
                attempts = 0;
                continue;
            }
            attempts += 1;
            let extra = self.add_slot(slots);
            let mut status = self.shared.status.subscribe();
            let connected = status.wait_for(|status| status.connections.contains_key(&extra));
            // If it does not connect, it is the one to close.
            let _ = timeout(EXTRA_CONNECTION_LIMIT, connected).await;
            if let Some(surplus) = spread::surplus(&borrowed(&self.replicas(slots))) {
                slots.close(surplus);
            }
        }
    }

    /// Returns the replica of each slot.
    fn replicas(&self, slots: &Slots) -> Vec<(u64, Option<String>)> {
        let status = self.shared.status.borrow();
        let replica = |slot| status.connections.get(slot).and_then(|connection| connection.replica.clone());
        slots.open.iter().map(|(slot, _)| (*slot, replica(slot))).collect()
    }
}

fn borrowed(replicas: &[(u64, Option<String>)]) -> Vec<spread::Slot<'_>> {
    replicas.iter().map(|(slot, replica)| (*slot, replica.as_deref())).collect()
}

impl Slots {
    /// Closes a slot. Its open streams may end until the deadline.
    fn close(&mut self, slot: u64) {
        self.open.retain(|(open, stop)| {
            if *open == slot {
                stop.cancel();
            }
            *open != slot
        });
    }
}

/// Keeps one connection to a hub until it is stopped.
async fn keep_connected(
    shared: Arc<Shared>,
    mut endpoint: watch::Receiver<HubEndpoint>,
    slot: u64,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::default();
    while !stop.is_cancelled() {
        let hub = endpoint.borrow_and_update().clone();
        let ended = session::run(&shared, &hub, slot, &stop).await;
        if matches!(ended.error, SessionError::Stopped) {
            return;
        }
        let delay = backoff.next(ended.lasted, fastrand::f64());
        tracing::warn!(hub = hub.address, retry = ?delay, "not connected: {}", ended.error);
        tokio::select! {
            () = sleep(delay) => {}
            () = stop.cancelled() => return,
            // A new token or authority is worth an attempt at once.
            changed = endpoint.changed() => if changed.is_err() { return },
        }
    }
}

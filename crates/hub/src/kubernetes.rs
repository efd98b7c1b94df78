//! The hub's connection to the management cluster: it watches ClusterTunnels, writes the part of their status that this
//! replica owns, publishes Events, and renews a Lease. It reads no Secrets: the keys are mounted.

mod lease;
mod objects;
mod status;
mod watch;

use std::{sync::Arc, time::Duration};

use chandler_tunnel::TunnelKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter as EventReporter},
};
use tokio::{sync::watch as watch_channel, task::JoinSet};

use self::{lease::ReplicaLease, objects::Objects, status::StatusWriter};
use crate::{
    directory::{Directory, DirectoryReceiver},
    locks::Mutex,
    metrics::Metrics,
    report::{AgentRecord, JoinReport, Reporter},
};

/// How long the last updates of status may take when the hub stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The reporter in Events.
const CONTROLLER: &str = "chandler-hub";

/// How this replica appears in the management cluster.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The name of the replica, and of its Pod.
    pub name: String,
    /// The namespace of the Lease.
    pub namespace: String,
}

/// The running tasks. Dropping it ends them.
pub struct Kubernetes {
    directory: DirectoryReceiver,
    reporter: Arc<KubernetesReporter>,
    lease: ReplicaLease,
    tasks: JoinSet<()>,
}

impl Kubernetes {
    /// Starts the watch, the writer of status and the Lease.
    pub fn start(client: Client, replica: Replica, metrics: Metrics) -> Self {
        let Replica { name, namespace } = replica;
        let objects = Arc::new(Mutex::new(Objects::new(name.clone())));
        let status = StatusWriter::new(client.clone(), name.clone(), objects.clone(), metrics);
        let (sender, directory) = watch_channel::channel(Arc::new(Directory::unlisted()));
        let lease = ReplicaLease::new(client.clone(), &namespace, name.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::run(client.clone(), objects.clone(), sender, status.clone()));
        tasks.spawn(status.clone().run());
        tasks.spawn(lease.clone().run());
        let event_reporter = EventReporter { controller: CONTROLLER.to_owned(), instance: Some(name) };
        let recorder = Recorder::new(client, event_reporter);
        let reporter = Arc::new(KubernetesReporter { objects, status, recorder });
        Self { directory, reporter, lease, tasks }
    }

    pub fn directory(&self) -> DirectoryReceiver {
        self.directory.clone()
    }

    pub fn reporter(&self) -> Arc<dyn Reporter> {
        self.reporter.clone()
    }

    /// Writes what has changed, and releases the Lease. Called after the hub has closed its connections.
    pub async fn stop(mut self) {
        self.reporter.status.flush(FLUSH_TIMEOUT).await;
        self.tasks.shutdown().await;
        self.lease.release().await;
    }
}

/// Reports to the status and Events of ClusterTunnels.
struct KubernetesReporter {
    objects: Arc<Mutex<Objects>>,
    status: StatusWriter,
    recorder: Recorder,
}

impl KubernetesReporter {
    /// Publishes in the background. A lost Event is acceptable: the log has the same information.
    fn publish(&self, tunnel: TunnelKey, type_: EventType, reason: &str, note: String) {
        let Some(regarding) = self.reference(tunnel) else { return };
        let reason = reason.to_owned();
        let event = Event { type_, action: reason.clone(), reason, note: Some(note), secondary: None };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &regarding).await {
                tracing::warn!(%error, reason = event.reason, "cannot publish an Event");
            }
        });
    }

    fn reference(&self, tunnel: TunnelKey) -> Option<ObjectReference> {
        Some(self.objects.lock().of(tunnel)?.reference.clone())
    }
}

impl Reporter for KubernetesReporter {
    fn agents_changed(&self, tunnel: TunnelKey, agents: Vec<AgentRecord>) {
        self.status.set_agents(tunnel, agents);
    }

    fn join(&self, tunnel: TunnelKey, report: JoinReport) {
        match report {
            JoinReport::Joined { epoch, from } => {
                self.status.set_join(tunnel, epoch, Timestamp::now());
                let note = format!("An agent at {from} has joined with a token of epoch {epoch}");
                self.publish(tunnel, EventType::Normal, "AgentJoined", note);
            }
            JoinReport::Renewed { epoch } => self.status.set_join(tunnel, epoch, Timestamp::now()),
            JoinReport::Refused { from, message } => {
                let note = format!("An agent at {from} was refused: {message}");
                self.publish(tunnel, EventType::Warning, "JoinRefused", note);
            }
        }
    }
}

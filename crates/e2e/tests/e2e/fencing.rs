//! Fencing: a leader that has lost its Lease does not disturb its successor, whatever has happened to it. The audit log of the
//! workload cluster decides.

use std::sync::Arc;

use chandler_e2e::{manager::Manager, signals::send_signal, wait::eventually, world::World};
use chandler_sandbox::{
    fault_proxy::{FaultProxy, Mode},
    plane::Plane,
    requests::AuditEntry,
};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::json;

use crate::leadership::{release_lease, wait_ended, wait_leading, wait_standby};

const LEASE_SECONDS: u32 = 9;
const LEASE_TIMES: [&str; 4] = ["--lease-renew-deadline-seconds", "6", "--lease-retry-seconds", "2"];

/// A leader whose driver is in the middle of an installation that does not end, and a standby.
struct Scene {
    world: World,
    alpha: Arc<Plane>,
    /// The way of the leader to the management cluster.
    proxy: FaultProxy,
    leader: Manager,
    standby: Manager,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let world = World::new(name).await;
        let alpha = world.create_cluster("alpha").await;
        let (proxy, kubeconfig) = world.management_proxy().await;
        let arguments = [&["--kubeconfig", kubeconfig.as_str()], LEASE_TIMES.as_slice()].concat();
        let leader = Manager::start(&world, LEASE_SECONDS, &arguments);
        wait_leading(&leader).await;
        // The hook does not end. Without fencing, the first driver would write this failure after 30 seconds.
        let spec = json!({"valuesTemplate": "hold: true", "options": {"timeout": "30s"}});
        world.apply_placement("slow", "slow", spec).await;
        crate::crash::wait_helm_status(&world, &alpha, "pending-install").await;
        let standby = Manager::start(&world, LEASE_SECONDS, &LEASE_TIMES);
        wait_standby(&standby).await;
        Self { world, alpha, proxy, leader, standby }
    }

    /// Performs `fault`, waits until the standby has made a revision of its own, performs `recover`, and checks that the first
    /// driver did not write the record of its revision any more.
    async fn check_takeover(self, fault: impl AsyncFnOnce(&Self), recover: impl FnOnce(&Self)) {
        let mut audit = self.alpha.audit_log();
        fault(&self).await;
        wait_leading(&self.standby).await;
        let mut writes = Vec::new();
        let created = eventually("the successor makes a revision of its own", || {
            writes.extend(audit.read().unwrap().into_iter().filter(AuditEntry::is_write));
            std::future::ready(created_revision(&writes))
        })
        .await;
        recover(&self);
        wait_ended(&self.leader).await;
        self.world
            .wait_status("slow", "alpha", "failed at revision 2", |status| {
                status.revision == Some(2) && status.last_failure.is_some()
            })
            .await;
        writes.extend(audit.read().unwrap().into_iter().filter(AuditEntry::is_write));
        let is_late =
            |write: &&AuditEntry| write.name == "sh.helm.release.v1.slow.v1" && write.received > created;
        let late: Vec<_> = writes.iter().filter(is_late).collect();
        assert!(late.is_empty(), "the first driver still wrote: {late:#?}");
        self.standby.stop().await;
    }
}

/// Returns when a record was created.
fn created_revision(writes: &[AuditEntry]) -> Option<Timestamp> {
    let is_created = |write: &&AuditEntry| write.resource == "secrets" && write.verb == "create";
    writes.iter().find(is_created).map(|write| write.received)
}

/// The driver of a manager that is stopped goes on until the Lease ends, and not longer.
#[tokio::test]
async fn a_stopped_leader_and_its_driver_never_disturb_the_successor() {
    let stop = async |scene: &Scene| send_signal(scene.leader.pid(), Signal::STOP);
    let resume = |scene: &Scene| send_signal(scene.leader.pid(), Signal::CONT);
    Scene::new("fenced").await.check_takeover(stop, resume).await;
}

#[tokio::test]
async fn a_leader_that_is_stopped_together_with_its_driver_never_disturbs_the_successor() {
    let processes = |scene: &Scene| [scene.leader.driver_pids(), vec![scene.leader.pid()]].concat();
    let stop =
        async |scene: &Scene| processes(scene).into_iter().for_each(|pid| send_signal(pid, Signal::STOP));
    // The drivers first: they do not see their manager end.
    let resume = |scene: &Scene| processes(scene).into_iter().for_each(|pid| send_signal(pid, Signal::CONT));
    Scene::new("fenced-both").await.check_takeover(stop, resume).await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_from_the_management_cluster_ends_before_another_leads() {
    let cut = async |scene: &Scene| scene.proxy.set_mode(Mode::Drop);
    let heal = |scene: &Scene| {
        assert!(!scene.leader.is_running(), "it still runs although another one leads");
        scene.proxy.drop_open_connections();
        scene.proxy.set_mode(Mode::Forward);
    };
    Scene::new("partition").await.check_takeover(cut, heal).await;
}

#[tokio::test]
async fn a_leader_that_loses_its_lease_during_an_installation_ends_it() {
    let release = async |scene: &Scene| release_lease(&scene.world).await;
    Scene::new("lost-lease").await.check_takeover(release, |_| {}).await;
}

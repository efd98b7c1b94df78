//! How long a failover takes.

use std::time::{Duration, Instant};

use chandler_e2e::{signals::send_signal, world::World};
use rustix::process::Signal;
use serde_json::json;

use crate::leadership::wait_standby;

/// The limits are for the default times of the Lease: until a change that was made during the failover is applied.
#[tokio::test]
async fn a_failover_takes_no_longer_than_promised() {
    let world = World::exclusive("failover").await;
    let _alpha = world.create_cluster("alpha").await;
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    let mut leader = world.start_manager();
    world.wait_ready("hello", "alpha", 1).await;
    let limits = [("SIGTERM", Duration::from_secs(10)), ("SIGKILL", Duration::from_secs(40))];
    for ((what, limit), revision) in limits.into_iter().zip(2..) {
        let standby = world.start_manager();
        wait_standby(&standby).await;
        leader.wait_idle().await;
        let start = Instant::now();
        if what == "SIGTERM" {
            send_signal(leader.pid(), Signal::TERM);
        } else {
            leader.kill().await;
        }
        world.patch_placement("hello", json!({"valuesTemplate": format!("greeting: {what}")})).await;
        world.wait_ready("hello", "alpha", revision).await;
        println!("{what}: a change was applied after {:?}", start.elapsed());
        assert!(start.elapsed() < limit, "{what}: {:?}", start.elapsed());
        leader = standby;
    }
    leader.stop().await;
}

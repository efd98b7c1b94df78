//! Clients that open connections and send nothing.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::env::{ScriptedHandler, TestEnv};

/// Many more than the server keeps open, so that they would fill its queue for longer than Cluster API waits.
const ATTACKERS: usize = 300;
/// How long an attacker waits before it replaces a connection that was closed.
const PAUSE: Duration = Duration::from_secs(3);
/// Cluster API gives up a call after ten seconds, and calls again.
const DISCOVERED_WITHIN: Duration = Duration::from_secs(30);

/// Keeps idle connections open. Each that the server closes is replaced.
async fn attack(address: SocketAddr) {
    loop {
        let Ok(stream) = TcpStream::connect(address).await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        // It becomes readable when the server closes it.
        let _ = stream.readable().await;
        sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn idle_connections_do_not_keep_cluster_api_out() {
    let env = TestEnv::new("idle-connections").await;
    let handler = Arc::new(ScriptedHandler::default());
    let mut attackers = JoinSet::new();
    for _ in 0..ATTACKERS {
        attackers.spawn(attack(env.options.address));
    }
    let _server = env.serve(&handler).await;
    timeout(DISCOVERED_WITHIN, env.wait_for_discovery()).await.expect("the hooks are discovered");
    attackers.shutdown().await;
    chandler_hooks::unregister(&env.client, &env.namespace).await.unwrap();
}

//! Connections to the hooks that stay idle.

use std::{net::SocketAddr, time::Duration};

use tokio::{io::AsyncReadExt as _, net::TcpStream, task::JoinSet};

use crate::tenants::attack::Attack;

/// As many as the manager accepts at the same time.
const CONNECTIONS: usize = 128;
const PAUSE: Duration = Duration::from_millis(250);

pub fn attack(hooks: SocketAddr) -> Attack {
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(keep_connected(hooks));
    }
    Attack { running: vec![Box::new(connections)], ..Attack::default() }
}

/// Connects, sends nothing, and connects again when the manager closes the connection.
async fn keep_connected(hooks: SocketAddr) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(hooks).await {
            // Ends with zero bytes or an error when the connection is closed.
            let _ = stream.read(&mut [0; 1]).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

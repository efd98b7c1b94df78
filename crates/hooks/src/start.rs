//! Starts the server and the registration of the hooks.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Error, FailurePolicy, HookHandler, Registration,
    certificates::Certificates,
    reachability::Reachability,
    registrar::Registrar,
    server::{self, Handling, ServerState},
};

/// How hooks are served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub address: SocketAddr,
    pub registration: Registration,
    /// What Cluster API does if it cannot call a hook that runs before an upgrade or a deletion. It ignores failures of all
    /// other hooks.
    pub failure_policy: FailurePolicy,
    /// Validity of a certificate, usually [`crate::CERTIFICATE_LIFETIME`]. Certificates are renewed after two thirds of it.
    pub certificate_lifetime: Duration,
    /// How long Cluster API may fail to discover the hooks before they are unregistered, usually
    /// [`crate::UNREACHABLE_LIMIT`].
    pub unreachable_limit: Duration,
}

/// The running hook server. Dropping it stops the server.
pub struct HookServer {
    registrar: AbortOnDropHandle<()>,
    server: AbortOnDropHandle<()>,
}

impl HookServer {
    /// Stops the server and the registrar, and waits until both have ended. The ExtensionConfig is left in place for the next
    /// leader.
    pub async fn stop(self) {
        for task in [self.registrar, self.server] {
            task.abort();
            // The task always ends as aborted.
            let _ = task.await;
        }
    }
}

/// Serves hooks, and registers them once they are served.
///
/// Only the leader may call this, after its caches are synced: the ExtensionConfig then contains only the certificate
/// authority of this process.
pub async fn start(
    client: Client,
    options: Options,
    handler: Arc<dyn HookHandler>,
) -> Result<HookServer, Error> {
    let Options { address, registration, failure_policy, certificate_lifetime, unreachable_limit } = options;
    let (certificates, resolver) =
        Certificates::new(registration.endpoint.host(), certificate_lifetime, Timestamp::now())?;
    let tls = server::tls(resolver)?;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    tracing::info!(%address, "serving runtime hooks for Cluster API");
    let control_plane_steps = Arc::new(AtomicBool::new(false));
    let handler = Handling::new(handler);
    let state = ServerState { handler, control_plane_steps: control_plane_steps.clone(), failure_policy };
    let registrar = Registrar {
        client,
        registration,
        certificates,
        control_plane_steps,
        reachability: Reachability::new(failure_policy, unreachable_limit),
        logged: String::new(),
    };
    Ok(HookServer {
        server: AbortOnDropHandle::new(tokio::spawn(server::run(listener, tls, state))),
        registrar: AbortOnDropHandle::new(tokio::spawn(registrar.run())),
    })
}

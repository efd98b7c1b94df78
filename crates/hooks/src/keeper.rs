//! Serves, keeps Cluster API informed, renews certificates.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Answers, Error, FailurePolicy, Registration,
    certificates::Certificates,
    registration::knows_control_plane_steps,
    server::{self, Site},
};

/// When the ExtensionConfig is put right though nothing of ours has changed.
const RESYNC: Duration = Duration::from_mins(10);
/// Cluster API that starts at the same time gives up after a minute.
const RETRY: Duration = Duration::from_secs(3);

/// How hooks are served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub address: SocketAddr,
    pub registration: Registration,
    /// What Cluster API does with an upgrade when nobody answers. All else goes on.
    pub before_upgrade: FailurePolicy,
    /// How long a certificate is good for: [`crate::LIFETIME`]. It is renewed after two thirds of it.
    pub lifetime: Duration,
}

/// Hooks are served while this lives.
pub struct Serving {
    keeper: AbortOnDropHandle<()>,
    server: AbortOnDropHandle<()>,
}

impl Serving {
    /// Returns when nothing is served or written any more. The ExtensionConfig stays, for whoever comes next.
    pub async fn stop(self) {
        for task in [self.keeper, self.server] {
            task.abort();
            // That it was aborted is no news.
            let _ = task.await;
        }
    }
}

struct Keeper {
    client: Client,
    registration: Registration,
    certificates: Certificates,
    control_plane_steps: Arc<AtomicBool>,
}

/// Serves hooks, and registers them once they are served.
///
/// For the process that leads and only when its caches are filled: it alone can answer, and each process that calls
/// this has Cluster API trust itself and nobody else.
pub async fn start(client: Client, options: Options, answers: Arc<dyn Answers>) -> Result<Serving, Error> {
    let Options { address, registration, before_upgrade, lifetime } = options;
    let (certificates, served) = Certificates::new(registration.endpoint.host(), lifetime, Timestamp::now())?;
    let tls = server::tls(served)?;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    tracing::info!(%address, "serving the hooks of Cluster API");
    let control_plane_steps = Arc::new(AtomicBool::new(false));
    let site = Site { answers, control_plane_steps: control_plane_steps.clone(), before_upgrade };
    let keeper = Keeper { client, registration, certificates, control_plane_steps };
    Ok(Serving {
        server: AbortOnDropHandle::new(tokio::spawn(server::run(listener, tls, site))),
        keeper: AbortOnDropHandle::new(tokio::spawn(keeper.run())),
    })
}

impl Keeper {
    async fn run(mut self) {
        let mut told = String::new();
        loop {
            if let Err(error) = self.publish().await {
                let error = error.to_string();
                if told != error {
                    tracing::warn!(error, "Cluster API is not told of the hooks; trying again");
                    told = error;
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
            told.clear();
            let rest = self.certificates.rest(Timestamp::now()).min(RESYNC);
            tokio::time::sleep(rest).await;
            if let Err(error) = self.certificates.turn(Timestamp::now()) {
                tracing::error!(%error, "the certificate of the hooks is not renewed; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn publish(&self) -> Result<(), Error> {
        // Before it asks which hooks there are.
        let steps = knows_control_plane_steps(&self.client).await?;
        self.control_plane_steps.store(steps, Ordering::Release);
        self.registration.apply(&self.client, &self.certificates.bundle()).await
    }
}

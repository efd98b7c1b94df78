//! Injects faults.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chandler_sandbox::fault_proxy::Mode;

use super::Run;
use crate::{
    action::{Fault, PlaneId},
    etcd,
};

/// Slows an operation of a dozen requests down to some seconds.
const DELAY: Duration = Duration::from_millis(150);

const RECONNECT_TIMEOUT: Duration = Duration::from_secs(20);

impl Run<'_> {
    pub(super) async fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Delay(id) => self.set_mode(id, Mode::Delay(DELAY))?,
            Fault::Reset(id) => self.set_mode(id, Mode::Reset)?,
            Fault::Hold(id) => self.set_mode(id, Mode::Hold)?,
            Fault::DropConnections(id) => self.environment.plane(id)?.proxy.drop_open_connections(),
            Fault::KillManager(management) => self.environment.managers(management)?.kill().await?,
            Fault::SuspendManager(management) => self.environment.managers(management)?.suspend(),
            Fault::ReplaceManager(management) => self.environment.managers(management)?.replace()?,
            Fault::KillDriver(management) => self.environment.managers(management)?.kill_drivers(),
            Fault::SuspendDriver(management) => {
                let suspended = self.environment.managers(management)?.suspend_drivers();
                self.events.suspended_drivers.extend(suspended);
            }
            Fault::RestartApiServer(id) => self.restart_api_server(id).await?,
            Fault::RestartEtcd(id) => {
                self.environment.plane(id)?.plane.restart().await?;
                self.wait_reconnected(id).await?;
            }
            Fault::Compact(id) => {
                etcd::compact(self.environment.plane(id)?.plane.dir()).await?;
                // The API server keeps recent events in memory; without a restart it would not need those of etcd.
                self.restart_api_server(id).await?;
            }
        }
        Ok(())
    }

    fn set_mode(&self, id: PlaneId, mode: Mode) -> Result<()> {
        self.environment.plane(id)?.proxy.set_mode(mode);
        Ok(())
    }

    /// An upgrade to the same version restarts everything but etcd.
    async fn restart_api_server(&self, id: PlaneId) -> Result<()> {
        let plane = &self.environment.plane(id)?.plane;
        plane.upgrade(self.environment.assets(plane.version())?).await?;
        self.wait_reconnected(id).await
    }

    /// Waits until requests of users succeed again: open connections of their client ended with the API server.
    pub(super) async fn wait_reconnected(&self, id: PlaneId) -> Result<()> {
        let client = &self.environment.plane(id)?.client;
        let deadline = Instant::now() + RECONNECT_TIMEOUT;
        while let Err(error) = client.apiserver_version().await {
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("connecting to {} again", id.name()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

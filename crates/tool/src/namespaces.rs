//! The processes of a package tool: one for each namespace with calls, so that what one tenant's packages do affects no other.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::supervisor::{CallRequest, Controls, ProcessGuard, Supervisor, SupervisorConfig, ToolError};

/// A process without calls ends after this time. Starting another one costs CPU time, and what it knows about clusters.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// With more namespaces than this, those without a process are forgotten.
const MANY_NAMESPACES: usize = 64;
/// The owner of the process for calls that belong to no namespace. They get no input of tenants.
const SHARED: &str = "";

/// The processes of a package tool. Clones share them.
#[derive(Clone, Debug)]
pub struct NamespaceProcesses(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: SupervisorConfig,
    controls: Arc<Controls>,
    closed: CancellationToken,
    supervisors: Mutex<HashMap<String, Supervisor>>,
}

impl NamespaceProcesses {
    /// `controls` and `closed` are shared with other tools.
    pub fn new(config: SupervisorConfig, controls: Arc<Controls>, closed: CancellationToken) -> Self {
        let config = SupervisorConfig { idle_timeout: config.idle_timeout.or(Some(IDLE_TIMEOUT)), ..config };
        Self(Arc::new(Inner { config, controls, closed, supervisors: Mutex::default() }))
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        &self.0.config.path
    }

    /// Returns the process of a namespace; starts one if there is none. If there are too many processes, it waits for its turn.
    pub async fn acquire(&self, namespace: &str, request: CallRequest) -> Result<ProcessGuard, ToolError> {
        self.supervisor(namespace).acquire_for(request).await
    }

    /// Ends the process for calls that belong to no namespace, after its calls.
    pub fn end_shared(&self) {
        self.supervisor(SHARED).retire();
    }

    fn supervisor(&self, namespace: &str) -> Supervisor {
        let Inner { config, controls, closed, supervisors } = &*self.0;
        let mut supervisors = supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = supervisors.get(namespace) {
            return known.clone();
        }
        if supervisors.len() >= MANY_NAMESPACES {
            supervisors.retain(|_, supervisor| !supervisor.is_unused());
        }
        let (config, owner) = (config.clone(), namespace.to_owned());
        let new = Supervisor::sharing(config, owner.clone(), controls.clone(), closed.clone());
        supervisors.insert(owner, new.clone());
        new
    }
}

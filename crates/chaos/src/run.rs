//! One run of a sequence: performs its steps, ends all faults, and checks the invariants.

mod faults;
mod retry;
mod users;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chandler_sandbox::{
    apply::apply,
    dynamic_api::{self, ignore_not_found},
    progress::ProgressReporter,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    action::{Action, Cluster, ManagementCluster, Placement, PlacementKind, Step, UserAction},
    environment::Environment,
    facts::{EndState, Events},
    invariants::{check_end_state, check_events, check_hooks, check_ready_is_true},
    model::Model,
    objects,
    observe::{self, AuditLogs},
};

/// How long a step may take. Restarts of a control plane are the slowest.
const STEP_TIMEOUT: Duration = Duration::from_mins(2);
/// How long Chandler may take to reach the end state. Longer than a connection that was dropped silently is used, and than
/// the first delays of a backoff.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long statuses may still change after the end state was reached.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// How long Chandler must not write in the end.
const QUIET_TIME: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// A run of a sequence in a namespace of its own.
pub struct Run<'a> {
    environment: &'a mut Environment,
    progress: &'a dyn ProgressReporter,
    /// The namespace of its objects on the management clusters, and the prefix of the names of all releases.
    namespace: String,
    model: Model,
    events: Events,
    logs: AuditLogs,
    /// The number of credentials that were created.
    credentials: u32,
}

/// Runs steps and returns the violations of invariants. Errors are failures of the environment, not of Chandler.
pub async fn run(
    environment: &mut Environment,
    namespace: &str,
    steps: &[Step],
    progress: &dyn ProgressReporter,
) -> Result<Vec<String>> {
    within(STEP_TIMEOUT, environment.replace_upgraded_clusters()).await.context("replacing clusters")?;
    let logs = AuditLogs::new(environment)?;
    let mut run = Run {
        environment,
        progress,
        namespace: namespace.to_owned(),
        model: Model::default(),
        events: Events::default(),
        logs,
        credentials: 0,
    };
    within(STEP_TIMEOUT, run.create_clusters()).await.context("creating the clusters")?;
    for step in steps {
        tokio::time::sleep(Duration::from_millis(step.wait_ms)).await;
        run.progress.advance(&step.to_string());
        run.perform(step.action).await.with_context(|| format!("in step {step}"))?;
    }
    let mut violations = run.check().await?;
    if violations.is_empty() {
        violations = run.remove_placements().await?;
    }
    within(STEP_TIMEOUT, run.clean_up(!violations.is_empty())).await.context("cleaning up")?;
    Ok(violations)
}

impl Run<'_> {
    async fn create_clusters(&mut self) -> Result<()> {
        for management in ManagementCluster::ALL {
            apply(self.environment.management(management)?, &objects::namespace(&self.namespace)).await?;
        }
        let ca = objects::ca_secret(&self.namespace, self.environment.repository.ca_pem());
        apply(self.environment.management(ManagementCluster::A)?, &ca).await?;
        let is_extension = |placement: &Placement| placement.kind() == PlacementKind::ExtensionInstance;
        for placement in Placement::ALL.into_iter().filter(is_extension) {
            let repository = self.environment.repository.url();
            let extension = objects::extension(&self.namespace, placement, repository);
            apply(self.environment.management(ManagementCluster::A)?, &extension).await?;
        }
        for cluster in Cluster::ALL {
            self.create_cluster(cluster).await?;
        }
        Ok(())
    }

    /// Performs an action and records it in the model, unless it is not possible now.
    async fn perform(&mut self, action: Action) -> Result<()> {
        self.environment.supervise()?;
        if !self.model.allows(action) {
            return Ok(());
        }
        let is_performed = match action {
            Action::User(action) => within(STEP_TIMEOUT, self.perform_user_action(action)).await?,
            Action::Fault(fault) => {
                within(STEP_TIMEOUT, self.inject(fault)).await?;
                true
            }
            Action::Heal => {
                self.environment.heal();
                true
            }
        };
        if is_performed {
            self.model.apply(action);
        }
        Ok(())
    }

    /// Ends all faults and pauses and checks the invariants.
    async fn check(&mut self) -> Result<Vec<String>> {
        self.perform(Action::Heal).await?;
        self.environment.end_replaced_managers().await;
        for action in self.model.closing_actions() {
            self.perform(Action::User(action)).await?;
        }
        let (state, mut violations) = self.converge().await?;
        violations.extend(self.check_quiet().await?);
        violations.extend(check_events(&self.model, &self.events));
        violations.extend(check_hooks(&state, &self.events));
        Ok(violations)
    }

    /// Waits until the end state is as the model predicts. Returns the state, and the differences that are left at the
    /// timeout.
    async fn converge(&mut self) -> Result<(EndState, Vec<String>)> {
        let deadline = Instant::now() + CONVERGENCE_TIMEOUT;
        loop {
            self.environment.supervise()?;
            let observing = observe::end_state(self.environment, &self.namespace);
            let state = within(STEP_TIMEOUT, observing).await.context("reading the end state")?;
            let mut violations = check_end_state(&self.model, &state);
            // What a manager writes after a restart is part of reaching the end state, also if nothing was left to do.
            if violations.is_empty() && !self.environment.managers_are_leading() {
                violations.push("a manager has not become the leader".to_owned());
            }
            if violations.is_empty() {
                return Ok((state, Vec::new()));
            }
            self.progress.advance(&format!("waiting for the end state: {}", violations.join("; ")));
            if Instant::now() > deadline {
                violations.extend(check_ready_is_true(&self.model, &state));
                return Ok((state, violations));
            }
            within(STEP_TIMEOUT, self.retry_stalled()).await.context("trying stalled releases again")?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Checks that Chandler does not write any more.
    async fn check_quiet(&mut self) -> Result<Vec<String>> {
        tokio::time::sleep(SETTLE_TIME).await;
        self.logs.read(&self.namespace, &mut self.events)?;
        tokio::time::sleep(QUIET_TIME).await;
        let writes = self.logs.read(&self.namespace, &mut self.events)?;
        Ok(writes.into_iter().map(|write| format!("a write without a change: {write}")).collect())
    }

    /// Deletes all placements and waits until their releases are removed.
    async fn remove_placements(&mut self) -> Result<Vec<String>> {
        for placement in Placement::ALL {
            self.perform(Action::User(UserAction::DeletePlacement(placement))).await?;
        }
        let (_, violations) = self.converge().await?;
        Ok(violations.into_iter().map(|violation| format!("after the end: {violation}")).collect())
    }

    /// Removes all objects from the management clusters, so that they do not affect the next run. After a failure, also
    /// replaces the managers.
    async fn clean_up(&mut self, has_failed: bool) -> Result<()> {
        for management in ManagementCluster::ALL {
            for (api_version, kind) in objects::custom_kinds().chain([("v1", "Secret")]) {
                self.delete_all(management, api_version, kind).await?;
            }
        }
        if has_failed {
            self.environment.reset_managers().await?;
        }
        Ok(())
    }

    async fn delete_all(&self, management: ManagementCluster, api_version: &str, kind: &str) -> Result<()> {
        let api = dynamic_api::namespaced(
            self.environment.management(management)?,
            &self.namespace,
            api_version,
            kind,
        );
        let strip = Patch::Merge(json!({"metadata": {"finalizers": []}}));
        for object in api.list(&ListParams::default()).await? {
            let name = object.metadata.name.unwrap_or_default();
            ignore_not_found(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
            ignore_not_found(api.patch(&name, &PatchParams::default(), &strip).await)?;
        }
        Ok(())
    }
}

/// Awaits a future and fails after a timeout.
async fn within<T>(limit: Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, future).await.with_context(|| format!("not within {limit:?}"))?
}

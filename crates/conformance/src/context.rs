//! What a case works with: a namespace of its own, the tool, and the Helm CLI that has to agree.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use chandler_core::digest::Digest;
use chandler_tool::{
    generated::tool::{
        ApplyAction, ApplyOptions, ApplyRequest, Failure, FailureCategory, Package, Release, ReleaseState,
        ReleaseStatus, RemoveOptions, RemoveRequest, Target,
    },
    target_message,
};
use tempfile::TempDir;

use super::{
    CaseError, Environment,
    chart::Chart,
    helm::Helm,
    order::{self, LIMIT, Order as _},
    tool::{Ended, Tool, expect_category},
};

/// One case's own corner of the environment.
pub struct Context {
    pub environment: Arc<Environment>,
    /// Shared with other cases: not to be killed.
    pub tool: Tool,
    pub namespace: String,
    folder: TempDir,
    counter: AtomicU32,
}

impl Context {
    pub fn new(environment: Arc<Environment>, tool: Tool, case: &str) -> Result<Self, CaseError> {
        Ok(Self {
            environment,
            tool,
            namespace: case.replace('/', "-"),
            folder: tempfile::Builder::new().prefix("chandler-conformance-").tempdir()?,
            counter: AtomicU32::new(0),
        })
    }

    /// A process of the case's own, which it may kill.
    pub fn own_tool(&self) -> Tool {
        Tool::new(self.environment.tool.clone())
    }

    pub fn target(&self) -> Target {
        target_message(&self.environment.target)
    }

    pub fn release(&self, name: &str) -> Release {
        Release { name: name.to_owned(), namespace: self.namespace.clone() }
    }

    pub fn helm(&self) -> Helm {
        Helm {
            path: self.environment.helm.clone(),
            kubeconfig: self.environment.kubeconfig.clone(),
            namespace: self.namespace.clone(),
            home: self.folder.path().to_owned(),
        }
    }

    /// Packs a chart to the disk.
    pub fn pack(&self, chart: &Chart) -> Result<Package, CaseError> {
        let content = self.environment.host.pack(&chart.files()).map_err(CaseError::Host)?;
        self.package(&content)
    }

    /// Puts any content to the disk as if it were a package.
    pub fn package(&self, content: &[u8]) -> Result<Package, CaseError> {
        let path = self.path(&format!("package-{}.tgz", self.next()));
        std::fs::write(&path, content)?;
        Ok(Package { path: path.to_string_lossy().into_owned(), digest: Digest::of(content).to_string() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn install(&self, name: &str, package: &Package, values: &str) -> ApplyRequest {
        self.order(name, package, values, ApplyAction::Install)
    }

    pub fn upgrade(&self, name: &str, package: &Package, values: &str) -> ApplyRequest {
        self.order(name, package, values, ApplyAction::Upgrade)
    }

    fn order(&self, name: &str, package: &Package, values: &str, action: ApplyAction) -> ApplyRequest {
        ApplyRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            package: Some(package.clone()),
            values: vec![order::text(values)],
            action: action.into(),
            options: Some(ApplyOptions { timeout: order::duration(LIMIT), ..ApplyOptions::default() }),
            input_digest: Digest::of(format!("{}{values}", package.digest)).hex()[..40].to_owned(),
            recover: false,
        }
    }

    pub fn removal(&self, name: &str) -> RemoveRequest {
        RemoveRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            options: Some(RemoveOptions { timeout: order::duration(LIMIT), ..RemoveOptions::default() }),
        }
    }

    fn operation_id(&self) -> String {
        format!("{}-{}", self.namespace, self.next())
    }

    fn next(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Applies, expects success, and everyone agrees on it.
    pub async fn applied(&self, request: ApplyRequest) -> Result<ReleaseState, CaseError> {
        let inputs = request.input_digest.clone();
        let ended = self.tool.apply(request).await?;
        self.settled(ended, &inputs).await
    }

    /// An Apply that ended well, and everyone agrees on it.
    pub async fn settled(&self, ended: Ended, inputs: &str) -> Result<ReleaseState, CaseError> {
        let state = ended.state()?;
        ensure!(
            state.status() == ReleaseStatus::Deployed,
            "revision {} is {} after a successful Apply",
            state.revision,
            state.status().as_str_name()
        );
        ensure!(
            state.input_digest == inputs,
            "revision {} records the input {:?}, given was {inputs:?}",
            state.revision,
            state.input_digest
        );
        self.agree(&state).await?;
        Ok(state)
    }

    /// Applies and expects a failure; whatever state it reports, everyone agrees on that.
    pub async fn refused(
        &self,
        request: ApplyRequest,
        category: FailureCategory,
    ) -> Result<Failure, CaseError> {
        let ended = self.tool.apply(request).await?;
        self.failed(ended, category).await
    }

    /// An operation that failed; whatever state it reports, everyone agrees on that.
    pub async fn failed(&self, ended: Ended, category: FailureCategory) -> Result<Failure, CaseError> {
        let failure = ended.failure(category)?;
        if let Some(state) = &failure.state {
            self.agree(state).await?;
        }
        Ok(failure)
    }

    /// Removes, expects nothing to be left, and everyone agrees on it.
    pub async fn removed(&self, request: RemoveRequest) -> Result<(), CaseError> {
        let name = request.release.clone().unwrap_or_default().name;
        self.tool.remove(request).await?.absent()?;
        self.agree_absent(&name).await
    }

    /// Removes and expects the history to be kept.
    pub async fn retired(&self, name: &str) -> Result<ReleaseState, CaseError> {
        let request = self.removal(name).with(|options| options.keep_history = true);
        let state = self.tool.remove(request).await?.state()?;
        ensure!(
            state.status() == ReleaseStatus::Uninstalled,
            "a removed release with kept history is {}",
            state.status().as_str_name()
        );
        self.agree(&state).await?;
        Ok(state)
    }

    /// As the tool sees it now.
    pub async fn observe(&self, name: &str) -> Result<Option<ReleaseState>, CaseError> {
        let seen = self.tool.observe(self.target(), self.release(name), 0).await?;
        seen.map_err(|failure| CaseError::Broken(format!("Observe failed: {}", failure.message)))
    }

    /// As the tool sees it now; it must be there.
    pub async fn observed(&self, name: &str) -> Result<ReleaseState, CaseError> {
        let seen = self.observe(name).await?;
        seen.ok_or_else(|| CaseError::Broken(format!("Observe sees no release {name}")))
    }

    /// The tool and the Helm CLI see this very state.
    pub async fn agree(&self, state: &ReleaseState) -> Result<(), CaseError> {
        let name = &state.release.clone().unwrap_or_default().name;
        let seen = self.observed(name).await?;
        ensure!(&seen == state, "the operation reported\n  {state:?}\nand Observe sees\n  {seen:?}");

        let helm = self.helm();
        let (listed, history) = (helm.list(name).await?, helm.history(name).await?);
        let status = word(state.status());
        let chart = format!("{}-{}", state.package_name, state.package_version);
        ensure!(
            listed.as_ref().is_some_and(|listed| listed.revision == state.revision.to_string()
                && listed.status == status
                && listed.chart == chart),
            "reported was revision {} {status} of {chart}, `helm list` shows {listed:?}",
            state.revision
        );
        let last = history.as_ref().and_then(|history| history.last());
        ensure!(
            last.is_some_and(|last| last.revision == state.revision && last.status == status),
            "reported was revision {} {status}, `helm history` shows {history:?}",
            state.revision
        );
        let values = helm.values(name, state.revision).await?;
        let canonical = self.canonical(&values).await?;
        ensure!(
            canonical == state.values_digest,
            "the digest of the values is {}, that of `helm get values` is {canonical}",
            state.values_digest
        );
        Ok(())
    }

    /// Neither the tool nor the Helm CLI see the release.
    pub async fn agree_absent(&self, name: &str) -> Result<(), CaseError> {
        let seen = self.observe(name).await?;
        ensure!(seen.is_none(), "Observe still sees {seen:?}");
        let helm = self.helm();
        let (listed, history) = (helm.list(name).await?, helm.history(name).await?);
        ensure!(listed.is_none(), "`helm list` still shows {listed:?}");
        ensure!(history.is_none(), "`helm history` still shows {history:?}");
        Ok(())
    }

    /// The digest of what these values mean to the tool; `helm get values` says `null` for none.
    async fn canonical(&self, values: &str) -> Result<String, CaseError> {
        let values = if values.trim() == "null" { "{}" } else { values };
        match self.tool.canonicalize(vec![order::json(values)]).await? {
            Ok(canonical) => Ok(canonical.digest),
            Err(failure) => {
                Err(CaseError::Broken(format!("Canonicalize refuses {values}: {}", failure.message)))
            }
        }
    }
}

/// Helm's word for a status.
fn word(status: ReleaseStatus) -> String {
    let name = status.as_str_name().trim_start_matches("RELEASE_STATUS_");
    name.to_ascii_lowercase().replace('_', "-")
}

/// Observe failed, with this category.
pub fn unobservable(
    seen: Result<Option<ReleaseState>, Failure>,
    category: FailureCategory,
) -> Result<Failure, CaseError> {
    match seen {
        Err(failure) => expect_category(failure, category),
        Ok(state) => Err(CaseError::Broken(format!("Observe answered {state:?}"))),
    }
}

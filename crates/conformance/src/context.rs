//! What a case works with: its own namespace, the tool, and requests to it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use chandler_core::{digest::Digest, package_format::PackageFormat};
use chandler_tool::{
    generated::tool::{
        ApplyAction, ApplyOptions, ApplyRequest, CompareRequest, Failure, FailureCategory, Package, Release,
        ReleaseState, ReleaseStatus, RemoveOptions, RemoveRequest, RenderRequest, RollbackOptions,
        RollbackRequest, Target, TestRequest,
    },
    target_message,
};
use tempfile::TempDir;

use super::{
    CaseError, Environment, bundle,
    chart::Chart,
    helm::Helm,
    package::TestPackage,
    profile::Profile,
    request::{self, IntoValues, RequestExt as _, TIMEOUT},
    tool::{Ended, Tool, expect_category},
};

/// The processes that all cases share. A case must not kill them.
#[derive(Clone, Debug)]
pub struct Shared {
    pub tool: Tool,
    pub templates: Option<Tool>,
    pub profile: Arc<Profile>,
}

/// One case's part of the environment.
pub struct Context {
    pub environment: Arc<Environment>,
    pub tool: Tool,
    pub templates: Option<Tool>,
    pub profile: Arc<Profile>,
    pub namespace: String,
    folder: TempDir,
    counter: AtomicU32,
}

impl Context {
    pub fn new(environment: Arc<Environment>, shared: Shared, case: &str) -> Result<Self, CaseError> {
        let Shared { tool, templates, profile } = shared;
        Ok(Self {
            environment,
            tool,
            templates,
            profile,
            namespace: case.replace('/', "-"),
            folder: tempfile::Builder::new().prefix("chandler-conformance-").tempdir()?,
            counter: AtomicU32::new(0),
        })
    }

    /// Starts a separate process of the tool, which the case may kill.
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

    /// Packs a test package in the tool's format.
    pub async fn pack(&self, package: &TestPackage) -> Result<Package, CaseError> {
        let content = self.profile.packer.pack(&self.environment, package).await?;
        self.write_package(&content)
    }

    /// Packs a Helm chart.
    pub fn pack_chart(&self, chart: &Chart) -> Result<Package, CaseError> {
        let content = self.environment.host.pack_chart(&chart.files()).map_err(CaseError::Host)?;
        self.write_package(&content)
    }

    /// Writes any content as a package.
    pub fn write_package(&self, content: &[u8]) -> Result<Package, CaseError> {
        let path = self.path(&format!("package-{}", self.next()));
        std::fs::write(&path, content)?;
        Ok(Package {
            path: path.to_string_lossy().into_owned(),
            digest: Digest::of(content).to_string(),
            format: String::new(),
        })
    }

    /// Packs a bundle of format `manifests/v1` from its files.
    pub fn pack_bundle(&self, files: &[(&str, String)]) -> Result<Package, CaseError> {
        let package = self.write_package(&bundle::pack(files)?)?;
        Ok(Package { format: PackageFormat::MANIFESTS.to_owned(), ..package })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn install(&self, name: &str, package: &Package, values: impl IntoValues) -> ApplyRequest {
        self.request(name, package, values, ApplyAction::Install)
    }

    pub fn upgrade(&self, name: &str, package: &Package, values: impl IntoValues) -> ApplyRequest {
        self.request(name, package, values, ApplyAction::Upgrade)
    }

    fn request(
        &self,
        name: &str,
        package: &Package,
        values: impl IntoValues,
        action: ApplyAction,
    ) -> ApplyRequest {
        let values = values.into_values();
        ApplyRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            package: Some(package.clone()),
            input_digest: Digest::of(format!("{}{values:?}", package.digest)).hex()[..40].to_owned(),
            values: vec![values],
            action: action.into(),
            options: Some(ApplyOptions { timeout: request::duration(TIMEOUT), ..ApplyOptions::default() }),
            recover: false,
        }
    }

    /// Returns a request that restores the newest revision with the input digest `restored`, because the inputs with the
    /// digest `failed` have failed.
    pub fn rollback(&self, name: &str, restored: &str, failed: &str) -> RollbackRequest {
        RollbackRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            revision: 0,
            options: Some(RollbackOptions {
                timeout: request::duration(TIMEOUT),
                ..RollbackOptions::default()
            }),
            input_digest: restored.to_owned(),
            rolled_back_digest: failed.to_owned(),
            recover: false,
            roll_back_deployed: false,
        }
    }

    /// Returns a request that compares all objects of a revision.
    pub fn comparison(&self, name: &str, revision: u32) -> CompareRequest {
        CompareRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            revision,
            timeout: request::duration(TIMEOUT),
            ..CompareRequest::default()
        }
    }

    /// Returns a request that renders what an Apply with these inputs would apply.
    pub fn rendering(&self, name: &str, package: &Package, values: impl IntoValues) -> RenderRequest {
        RenderRequest {
            target: Some(self.target()),
            release: Some(self.release(name)),
            package: Some(package.clone()),
            values: vec![values.into_values()],
            options: Some(ApplyOptions::default()),
        }
    }

    /// Returns a request that runs the tests of a revision.
    pub fn tests(&self, name: &str, revision: u32) -> TestRequest {
        TestRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            revision,
            timeout: request::duration(TIMEOUT),
            logs: false,
        }
    }

    pub fn removal(&self, name: &str) -> RemoveRequest {
        RemoveRequest {
            operation_id: self.operation_id(),
            target: Some(self.target()),
            release: Some(self.release(name)),
            options: Some(RemoveOptions { timeout: request::duration(TIMEOUT), ..RemoveOptions::default() }),
        }
    }

    fn operation_id(&self) -> String {
        format!("{}-{}", self.namespace, self.next())
    }

    fn next(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Applies, expects success, and checks that everything agrees on the result.
    pub async fn apply(&self, request: ApplyRequest) -> Result<ReleaseState, CaseError> {
        let digest = request.input_digest.clone();
        let ended = self.tool.apply(request).await?;
        self.check_applied(ended, &digest).await
    }

    /// Applies inputs that are deployed, and checks that the tool returns the revision and reports that nothing changed.
    pub async fn apply_unchanged(
        &self,
        request: ApplyRequest,
        deployed: &ReleaseState,
    ) -> Result<(), CaseError> {
        let ended = self.tool.apply(request).await?;
        let unchanged = ended.unchanged;
        let state = ended.state()?;
        ensure!(unchanged, "the result does not say that nothing was changed");
        ensure!(state == *deployed, "the result is {state:?}, deployed is {deployed:?}");
        self.agree(&state).await
    }

    /// Checks that an Apply succeeded and created a revision, and that everything agrees on the result.
    pub async fn check_applied(&self, ended: Ended, input_digest: &str) -> Result<ReleaseState, CaseError> {
        ensure!(!ended.unchanged, "the tool changed nothing, although these inputs were not deployed");
        let state = ended.state()?;
        ensure!(
            state.status() == ReleaseStatus::Deployed,
            "revision {} is {} after a successful Apply",
            state.revision,
            state.status().as_str_name()
        );
        ensure!(
            state.input_digest == input_digest,
            "revision {} has the input digest {:?}, requested was {input_digest:?}",
            state.revision,
            state.input_digest
        );
        self.agree(&state).await?;
        Ok(state)
    }

    /// Applies and expects a failure of this category. Everything must agree on the state that it reports, if any.
    pub async fn apply_fails(
        &self,
        request: ApplyRequest,
        category: FailureCategory,
    ) -> Result<Failure, CaseError> {
        let ended = self.tool.apply(request).await?;
        self.check_failed(ended, category).await
    }

    /// Checks that an operation failed. Everything must agree on the state that it reports, if any.
    pub async fn check_failed(&self, ended: Ended, category: FailureCategory) -> Result<Failure, CaseError> {
        let failure = ended.failure(category)?;
        if let Some(state) = &failure.state {
            self.agree(state).await?;
        }
        Ok(failure)
    }

    /// Removes a release, and checks that nothing of it is left.
    pub async fn remove(&self, request: RemoveRequest) -> Result<(), CaseError> {
        let name = request.release.clone().unwrap_or_default().name;
        self.tool.remove(request).await?.absent()?;
        self.agree_absent(&name).await
    }

    /// Removes a release and keeps its history.
    pub async fn remove_keeping_history(&self, name: &str) -> Result<ReleaseState, CaseError> {
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

    /// Returns the release as the tool observes it, or `None` if it does not exist.
    pub async fn observe(&self, name: &str) -> Result<Option<ReleaseState>, CaseError> {
        let observed = self.tool.observe(self.target(), self.release(name), 0).await?;
        observed.map_err(|failure| CaseError::Violation(format!("Observe failed: {}", failure.message)))
    }

    /// Returns the release as the tool observes it. It must exist.
    pub async fn observe_existing(&self, name: &str) -> Result<ReleaseState, CaseError> {
        let observed = self.observe(name).await?;
        observed.ok_or_else(|| CaseError::Violation(format!("Observe does not find the release {name}")))
    }
}

/// Checks that Observe failed with this category.
pub fn observe_failed(
    observed: Result<Option<ReleaseState>, Failure>,
    category: FailureCategory,
) -> Result<Failure, CaseError> {
    match observed {
        Err(failure) => expect_category(failure, category),
        Ok(state) => Err(CaseError::Violation(format!("Observe returned {state:?}"))),
    }
}

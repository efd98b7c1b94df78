//! The Helm driver renders charts exactly as the helm CLI does.

mod awkward;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use chandler_api::extensions::{CrdsPolicy, FieldConflicts};
use chandler_core::{
    addresses::AddressPolicy,
    digest::{Digest, InputDigest},
    identity::{ClusterKey, ReleaseId, ToolId},
    package_format::PackageFormat,
    release::{ExecutionOptions, RenderingOptions},
};
use chandler_e2e::{programs, third_party::REAL_CHARTS};
use chandler_sandbox::{assets::Binary, chart::Package, plane::Plane, testing};
use chandler_tool::{ApplyKind, ApplyOrder, PackageFile, PackageTool, Supervisor, SupervisorConfig};
use chandler_workload::target_from_kubeconfig;
use tokio_util::sync::CancellationToken;

use self::awkward::{AWKWARD_CHART, AWKWARD_VALUES};

/// A cluster on which the renderings of the driver and the CLI are compared.
struct Comparison {
    plane: Plane,
    tool: PackageTool,
    helm: PathBuf,
    folder: PathBuf,
}

impl Comparison {
    async fn new() -> Self {
        // The cluster listens on the loopback address.
        let addresses =
            AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() };
        let driver = SupervisorConfig {
            environment: vec![addresses.environment()],
            ..SupervisorConfig::new(programs::package_tool())
        };
        Self {
            plane: testing::bare_plane().await.unwrap(),
            tool: PackageTool::new(ToolId(0), Supervisor::new(driver)),
            helm: testing::assets().await.unwrap().path(Binary::Helm).to_owned(),
            folder: testing::fresh_dir("fidelity").await.unwrap(),
        }
    }

    /// Checks that the driver stores what the CLI renders.
    async fn assert_equal(&self, name: &str, chart: &Path, values: &str) {
        let bytes = Package::pack(chart, None).unwrap().bytes;
        let (package, file) =
            (self.folder.join(format!("{name}.tgz")), self.folder.join(format!("{name}.yaml")));
        fs::write(&package, &bytes).unwrap();
        fs::write(&file, values).unwrap();
        let (archive, file) = (package.to_str().unwrap(), file.to_str().unwrap());
        let expected = self.helm(name, &["template", name, archive, "--values", file, "--dry-run=server"]);

        let packaged = PackageFile {
            path: package.clone(),
            digest: Digest::of(&bytes),
            format: PackageFormat::default(),
        };
        self.apply(name, packaged, values).await;
        let stored =
            self.helm(name, &["get", "manifest", name]) + "\n" + &self.helm(name, &["get", "hooks", name]);
        let (expected, stored) = (documents(&expected), documents(&stored));
        assert!(!expected.is_empty(), "{name} renders nothing");
        for (expected, stored) in expected.iter().zip(&stored) {
            assert_eq!(stored, expected, "{name}");
        }
        assert_eq!(stored.len(), expected.len(), "{name}");
    }

    async fn apply(&self, name: &str, package: PackageFile, values: &str) {
        let order = ApplyOrder {
            operation_id: name.to_owned(),
            target: target_from_kubeconfig(&ClusterKey::new("fidelity", "bare"), self.plane.kubeconfig())
                .unwrap(),
            release: ReleaseId::new(name, name),
            package,
            values: values.to_owned(),
            kind: ApplyKind::Install,
            inputs: InputDigest::parse(&"0".repeat(40)).unwrap(),
            // No Pods run on this cluster, so no hook would complete. Hooks are stored even if they are disabled.
            rendering: RenderingOptions { disable_hooks: true, ..RenderingOptions::default() },
            execution: ExecutionOptions {
                create_namespace: true,
                wait: false,
                wait_for_jobs: false,
                atomic: false,
                take_ownership: false,
                force: false,
                cleanup_on_fail: false,
                max_history: 0,
                timeout: Duration::from_mins(1),
                keep_history: false,
                removal_description: String::new(),
                conflicts: FieldConflicts::Fail,
                crds: CrdsPolicy::Create,
                replace_unsafe_crds: false,
            },
        };
        let process = self.tool.process(name, &CancellationToken::new()).await.unwrap();
        let applied = process.apply(order, &CancellationToken::new(), |_| {}).await;
        applied.unwrap_or_else(|failed| panic!("{name}: {}: {}", failed.failure.category, failed.failure));
    }

    fn helm(&self, namespace: &str, arguments: &[&str]) -> String {
        let output = Command::new(&self.helm)
            .args(arguments)
            .args(["--namespace", namespace, "--kubeconfig"])
            .arg(self.plane.kubeconfig_path())
            .env_clear()
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the sorted documents of a manifest; helm prints hooks separately.
fn documents(text: &str) -> Vec<String> {
    let text = format!("\n{text}");
    let mut documents: Vec<_> = text
        .split("\n---\n")
        .map(|document| document.trim().to_owned())
        .filter(|document| !document.is_empty())
        .collect();
    documents.sort();
    documents
}

#[tokio::test]
async fn real_charts_render_as_with_helm() {
    let comparison = Comparison::new().await;
    for chart in REAL_CHARTS {
        comparison.assert_equal(chart.name(), &chart.path().await, chart.values).await;
    }
}

#[tokio::test]
async fn awkward_values_render_as_with_helm() {
    let comparison = Comparison::new().await;
    let chart = comparison.folder.join("awkward");
    for (name, content) in AWKWARD_CHART {
        let path = chart.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    comparison.assert_equal("awkward", &chart, AWKWARD_VALUES).await;
}

//! The commands of the guide to `chandler-sandbox`.

use chandler_e2e::shell::{Shell, processes_using};
use chandler_sandbox::{assets::KubernetesVersion, testing};

use crate::documents::commands_of;

#[tokio::test]
async fn the_commands_of_the_sandbox_guide_work_in_order() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let shell = Shell::new("guide").await;
    let kubeconfig = |plane: &str| shell.home.join(plane).to_string_lossy().into_owned();
    let (management, alpha) = (kubeconfig("management"), kubeconfig("alpha"));
    let mut checked = Vec::new();
    for line in commands_of("docs/guides/sandbox.md") {
        let stdout = shell.expect(&line, &[("KUBECONFIG", &management)]).await;
        match line.as_str() {
            "chandler-sandbox status" => {
                for plane in ["management", "alpha", "bravo", "charlie"] {
                    assert!(stdout.contains(plane), "{stdout}");
                }
                let json = shell.expect("chandler-sandbox status --output json", &[]).await;
                let state: serde_json::Value = serde_json::from_str(&json).unwrap();
                assert_eq!(state["planes"].as_array().unwrap().len(), 4, "{json}");
                checked.push("status");
            }
            "chandler-sandbox kubeconfig management" => std::fs::write(&management, stdout).unwrap(),
            "chandler-sandbox kubeconfig alpha" => {
                std::fs::write(&alpha, stdout).unwrap();
                assert_eq!(node_version(&shell, &alpha).await, "v1.34.4");
                checked.push("kubeconfig");
            }
            _ if line.starts_with("chandler-sandbox kubectl wait cluster alpha") => {
                assert_eq!(node_version(&shell, &alpha).await, "v1.35.4");
                checked.push("upgrade");
            }
            _ => {}
        }
    }
    assert_eq!(checked, ["status", "kubeconfig", "upgrade"], "the guide contains other commands");
    assert_eq!(processes_using(&shell.home), [] as [String; 0], "no process is left");
}

/// Returns the version of the only Node, which must be Ready.
async fn node_version(shell: &Shell, kubeconfig: &str) -> String {
    let nodes = shell.expect("kubectl get nodes --no-headers", &[("KUBECONFIG", kubeconfig)]).await;
    let columns: Vec<_> = nodes.split_whitespace().collect();
    assert_eq!(columns[1], "Ready", "{nodes}");
    columns[4].to_owned()
}

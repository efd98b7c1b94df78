//! `chandler-sandbox`, as its guide prints it.

use chandler_e2e::shell::{Shell, processes_of};
use chandler_sandbox::{assets::KubernetesVersion, testing};

use crate::documents::commands_of;

#[tokio::test]
async fn the_commands_of_the_guide_work_in_their_order() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let shell = Shell::new("guide").await;
    let config = |plane: &str| shell.home.join(plane).to_string_lossy().into_owned();
    let (management, alpha) = (config("management"), config("alpha"));
    let mut checked = Vec::new();
    for line in commands_of("docs/guides/sandbox.md") {
        let printed = shell.expect(&line, &[("KUBECONFIG", &management)]).await;
        match line.as_str() {
            "chandler-sandbox status" => {
                for plane in ["management", "alpha", "bravo", "charlie"] {
                    assert!(printed.contains(plane), "{printed}");
                }
                let json = shell.expect("chandler-sandbox status --output json", &[]).await;
                let state: serde_json::Value = serde_json::from_str(&json).unwrap();
                assert_eq!(state["planes"].as_array().unwrap().len(), 4, "{json}");
                checked.push("status");
            }
            "chandler-sandbox kubeconfig management" => std::fs::write(&management, printed).unwrap(),
            "chandler-sandbox kubeconfig alpha" => {
                std::fs::write(&alpha, printed).unwrap();
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
    assert_eq!(checked, ["status", "kubeconfig", "upgrade"], "the guide shows other commands");
    assert_eq!(processes_of(&shell.home), [] as [String; 0], "nothing is left behind");
}

/// Of the only Node, which has to be Ready.
async fn node_version(shell: &Shell, config: &str) -> String {
    let nodes = shell.expect("kubectl get nodes --no-headers", &[("KUBECONFIG", config)]).await;
    let columns: Vec<_> = nodes.split_whitespace().collect();
    assert_eq!(columns[1], "Ready", "{nodes}");
    columns[4].to_owned()
}

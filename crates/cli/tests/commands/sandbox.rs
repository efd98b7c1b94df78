//! `chandler sandbox`, as its guide prints it.

use crate::{
    documents::{commands, document},
    shell::{Shell, processes_of},
};

#[tokio::test]
async fn the_commands_of_the_guide_work_in_their_order() {
    let shell = Shell::new("guide").await;
    for line in commands(&document("docs/guides/sandbox.md")) {
        let printed = shell.expect(&line, &[]).await;
        match line.as_str() {
            "chandler sandbox status" => {
                for plane in ["management", "alpha", "bravo", "charlie"] {
                    assert!(printed.contains(plane), "{printed}");
                }
                let json = shell.expect("chandler sandbox status --output json", &[]).await;
                let state: serde_json::Value = serde_json::from_str(&json).unwrap();
                assert_eq!(state["planes"].as_array().unwrap().len(), 4, "{json}");
            }
            "chandler sandbox kubeconfig alpha" => {
                let config = shell.home.join("alpha");
                std::fs::write(&config, printed).unwrap();
                let config = config.to_string_lossy().into_owned();
                let nodes = shell.expect("kubectl get nodes", &[("KUBECONFIG", &config)]).await;
                assert!(nodes.contains("Ready"), "{nodes}");
            }
            _ => {}
        }
    }
    assert_eq!(processes_of(&shell.home), [] as [String; 0], "nothing is left behind");
}

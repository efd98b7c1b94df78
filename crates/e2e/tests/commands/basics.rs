//! Completion, the kubectl plugin, and error messages.

use std::time::Duration;

use chandler_e2e::{
    programs,
    shell::{Shell, text},
};

#[tokio::test]
async fn completion_scripts_and_crds_are_printed() {
    let shell = Shell::new("basics").await;
    for which in ["bash", "zsh", "fish"] {
        assert!(shell.expect(&format!("chandler completion {which}"), &[]).await.contains("chandler"));
        let script = shell.expect(&format!("chandler-sandbox completion {which}"), &[]).await;
        assert!(script.contains("chandler-sandbox"));
    }
    let crds = shell.expect("chandler crds", &[]).await;
    let count = crds.matches("kind: CustomResourceDefinition").count();
    assert_eq!(count, chandler_api::crds().len());
}

#[tokio::test]
async fn chandler_works_as_a_kubectl_plugin() {
    let shell = Shell::new("plugin").await;
    std::os::unix::fs::symlink(programs::chandler(), shell.home.join("kubectl-chandler")).unwrap();
    let plugin = format!("PATH={}:$PATH kubectl chandler", shell.home.display());
    assert!(shell.expect(&format!("{plugin} get --help"), &[]).await.contains("Usage: kubectl chandler get"));
    assert!(shell.expect(&format!("{plugin} crds"), &[]).await.contains("helmchartproxies"));
    assert!(shell.expect("chandler get --help", &[]).await.contains("Usage: chandler get"));
}

#[tokio::test]
async fn errors_say_what_to_do_next() {
    let shell = Shell::new("errors").await;
    let rows = [
        ("chandler manager --tool /nowhere", "cargo xtask build"),
        ("chandler manager --kubeconfig /nowhere --tool /bin/true", "/nowhere"),
        ("chandler-sandbox kubeconfig alpha", "chandler-sandbox status"),
        ("chandler-sandbox kubectl get nodes", "chandler-sandbox status"),
        ("chandler-sandbox demo --chandler /nowhere", "cargo xtask build"),
    ];
    for (line, hint) in rows {
        let output = shell.run(line, &[], Duration::from_secs(20)).await;
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "`{line}` succeeded");
        assert!(stderr.contains(hint), "`{line}`: {stderr}");
    }
}

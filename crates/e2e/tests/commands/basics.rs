//! Completion, the kubectl plugin, and error messages.

use std::{net::TcpListener, process::Command, time::Duration};

use chandler_e2e::{
    programs,
    shell::{Shell, text},
    terminal::OnTerminal,
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
    assert!(
        shell.expect(&format!("{plugin} plan --help"), &[]).await.contains("Usage: kubectl chandler plan")
    );
    assert!(shell.expect(&format!("{plugin} crds"), &[]).await.contains("helmchartproxies"));
    assert!(shell.expect("chandler get --help", &[]).await.contains("Usage: chandler get"));
}

/// A management cluster that accepts connections and answers nothing.
#[tokio::test]
async fn slow_commands_show_their_progress_on_a_terminal() {
    let shell = Shell::new("progress").await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let kubeconfig = shell.home.join("silent.kubeconfig");
    let content = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&kubeconfig, content).unwrap();
    let mut command = Command::new(programs::chandler());
    command.args(["diff", "hcp/hello", "--namespace", "fleet"]).env("KUBECONFIG", kubeconfig);
    command.env("CHANDLER_TOOL", programs::package_tool()).env("HOME", &shell.home);
    let mut terminal = OnTerminal::spawn(command);
    let progress = "\r\u{1b}[Kreading: 0 helmchartproxies";
    tokio::task::spawn_blocking(move || terminal.wait_for(progress)).await.unwrap();
}

#[tokio::test]
async fn errors_say_what_to_do_next() {
    let shell = Shell::new("errors").await;
    let rows = [
        ("chandler manager --tool /nowhere", "cargo xtask build"),
        ("chandler manager --kubeconfig /nowhere --tool /bin/true", "/nowhere"),
        ("chandler plan -f /nowhere.yaml", "/nowhere.yaml"),
        ("chandler diff pod/hello", "unknown kind `pod`"),
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

//! The manager of an installation, run as a process with the ServiceAccount of its Deployment.

use std::path::Path;

use chandler_e2e::{programs, wait::until};
use chandler_sandbox::{
    plane::Plane,
    process::{Child, Spec},
    service_account,
};

/// Starts a manager with additional arguments, and waits until its watches are synchronized.
pub async fn start(plane: &Plane, home: &Path, arguments: &[&str]) -> Child {
    let account = service_account::kubeconfig(plane, "chandler-system", "chandler-manager").await.unwrap();
    let kubeconfig = home.join("manager-kubeconfig");
    std::fs::write(&kubeconfig, account).unwrap();
    let tool = programs::package_tool();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let args = ["manager", "--kubeconfig", &text(&kubeconfig), "--store", &text(&home.join("store"))]
        .into_iter()
        .chain(["--tool", tool, "--metrics-address", "127.0.0.1:0", "--log-format", "json"])
        .chain(["--allow-address", "127.0.0.1"])
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect();
    let (name, program, env) = ("manager".to_owned(), programs::chandler().into(), Vec::new());
    let manager = Child::spawn(&Spec { name, program, args, env, home: home.to_owned() }).unwrap();
    let log_start = usize::try_from(manager.log_start()).unwrap();
    until("the manager is running", async || {
        let log = std::fs::read_to_string(manager.log()).unwrap_or_default();
        assert!(manager.is_running(), "{log}");
        log[log_start..].contains("watches are synchronised")
    })
    .await;
    manager
}

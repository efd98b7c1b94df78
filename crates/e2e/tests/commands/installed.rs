//! What the Deployment of an installation would run, with the ServiceAccount and the rights that came with it.

use std::path::Path;

use chandler_e2e::{programs, wait::until};
use chandler_sandbox::{
    plane::Plane,
    process::{Child, Spec},
    service_account,
};

/// A manager that works.
pub async fn manager(plane: &Plane, home: &Path, further: &[&str]) -> Child {
    let account = service_account::kubeconfig(plane, "chandler-system", "chandler-manager").await.unwrap();
    let config = home.join("manager-kubeconfig");
    std::fs::write(&config, account).unwrap();
    let tool = programs::package_tool();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let args = ["manager", "--kubeconfig", &text(&config), "--store", &text(&home.join("store"))]
        .into_iter()
        .chain(["--tool", tool, "--metrics-address", "127.0.0.1:0", "--log-format", "json"])
        .chain(["--allow-source-address", "127.0.0.1"])
        .chain(further.iter().copied())
        .map(str::to_owned)
        .collect();
    let (name, program, env) = ("manager".to_owned(), programs::chandler().into(), Vec::new());
    let manager = Child::spawn(&Spec { name, program, args, env, home: home.to_owned() }).unwrap();
    let told = std::fs::metadata(manager.log()).map_or(0, |log| log.len());
    until("the manager works", async || {
        let log = std::fs::read_to_string(manager.log()).unwrap_or_default();
        assert!(manager.is_running(), "{log}");
        log[usize::try_from(told).unwrap()..].contains("watches are synchronised")
    })
    .await;
    manager
}

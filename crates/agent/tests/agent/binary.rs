//! Runs the binary.

use std::process::Stdio;

use chandler_tunnel::TunnelId;
use secrecy::ExposeSecret as _;
use tokio::{process::Command, time::timeout};

use crate::{
    Site, echo,
    test_hub::{LIMIT, TestHub},
};

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chandler-agent"));
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn the_binary_serves_until_it_is_terminated() {
    let (site, tunnel) = (Site::start().await, TunnelId::random().unwrap());
    let hub = TestHub::start(tunnel).await;
    let path = site.folder.path().join("agent.yaml");
    let endpoint = hub.endpoint(24);
    let config = site.config(tunnel, vec![endpoint.clone()]);
    std::fs::write(&path, config.to_yaml().unwrap().expose_secret()).unwrap();
    let running = agent().arg("--config").arg(&path).args(["--log-format", "json"]).spawn().unwrap();
    let pid = running.id().unwrap().to_string();
    let connected = hub.connected().await;
    echo(&connected.connection).await;

    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = timeout(LIMIT, running.wait_with_output()).await.expect("the agent does not stop").unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    timeout(LIMIT, connected.connection.closed()).await.expect("the connection does not end");
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
    assert!(log.contains("connected"), "{log}");
    assert!(!log.contains(endpoint.token.expose_secret()), "{log}");
}

#[tokio::test]
async fn the_command_line_is_explained() {
    let rows: [(&[&str], i32, &str); 4] = [
        (&["--help"], 0, "--config FILE"),
        (&["--version"], 0, env!("CARGO_PKG_VERSION")),
        (&["--unknown"], 2, "unknown argument `--unknown`"),
        (&["--config", "/nonexistent/agent.yaml"], 1, "cannot read /nonexistent/agent.yaml"),
    ];
    for (arguments, code, text) in rows {
        let output =
            timeout(LIMIT, agent().args(arguments).output()).await.expect("it does not exit").unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(text), "{arguments:?}: {printed}");
    }
}

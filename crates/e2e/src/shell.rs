//! Runs commands as a person would, and looks at what is left behind.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use chandler_sandbox::{assets::Binary, testing};

use crate::programs;

/// A shell with a home of its own, on whose `PATH` are `chandler`, `chandler-sandbox` and `kubectl`.
pub struct Shell {
    pub home: PathBuf,
    path: String,
}

impl Shell {
    pub async fn new(name: &str) -> Self {
        let home = testing::fresh_dir(name).await.unwrap();
        let kubectl = testing::assets().await.unwrap().path(Binary::Kubectl).parent().unwrap().to_owned();
        let [chandler, sandbox] = [programs::chandler(), programs::sandbox()].map(Path::new);
        let folders = [chandler.parent().unwrap(), sandbox.parent().unwrap(), &kubectl];
        let path = folders.map(|folder| format!("{}:", folder.display())).concat();
        Self { home, path: path + &std::env::var("PATH").unwrap() }
    }

    /// Only what a person has who just cloned the repository: none of the programs are on its `PATH`.
    pub async fn newcomer(name: &str) -> Self {
        Self { home: testing::fresh_dir(name).await.unwrap(), path: std::env::var("PATH").unwrap() }
    }

    /// In which there is clusterctl too, with a config.
    pub async fn with_clusterctl(name: &str) -> Self {
        let mut shell = Self::new(name).await;
        let clusterctl = testing::installer(Binary::Clusterctl).await.unwrap();
        shell.path = format!("{}:{}", clusterctl.parent().unwrap().display(), shell.path);
        shell
    }

    /// Where clusterctl looks for its config.
    pub fn configure_clusterctl(&self, config: &str) {
        let folder = self.home.join(".config/cluster-api");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("clusterctl.yaml"), config).unwrap();
    }

    /// Runs a line; it may take `limit`.
    pub async fn run(&self, line: &str, environment: &[(&str, &str)], limit: Duration) -> Output {
        let mut command = Command::new("timeout");
        command.arg(limit.as_secs().to_string()).args(["sh", "-c", line]);
        command.env("PATH", &self.path).env("XDG_STATE_HOME", self.home.join("state"));
        command.env("XDG_CONFIG_HOME", self.home.join(".config"));
        // What clusterctl installs comes from folders; it would ask a server for its own newest version.
        command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command.env("KUBECACHEDIR", self.home.join("kube")).envs(environment.iter().copied());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a line that has to succeed; returns what it printed.
    pub async fn expect(&self, line: &str, environment: &[(&str, &str)]) -> String {
        let output = self.run(line, environment, Duration::from_mins(2)).await;
        let (printed, complained) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{line}` failed:\n{printed}\n{complained}");
        printed
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Processes whose command line names `folder`.
pub fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| text(&line).replace('\0', " ")).filter(|line| line.contains(&folder)).collect()
}

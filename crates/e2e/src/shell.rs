//! Runs shell commands as a user would, and finds processes that they leave behind.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use chandler_sandbox::{assets::Binary, testing};

use crate::programs;

/// A shell with its own home folder and with `chandler`, `chandler-sandbox` and `kubectl` on its `PATH`.
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

    /// Returns a shell as after a fresh clone of the repository: its `PATH` contains none of the programs.
    pub async fn without_programs(name: &str) -> Self {
        Self { home: testing::fresh_dir(name).await.unwrap(), path: std::env::var("PATH").unwrap() }
    }

    /// Returns a shell that also has `clusterctl` on its `PATH`.
    pub async fn with_clusterctl(name: &str) -> Self {
        let mut shell = Self::new(name).await;
        let clusterctl = testing::installer(Binary::Clusterctl).await.unwrap();
        shell.path = format!("{}:{}", clusterctl.parent().unwrap().display(), shell.path);
        shell
    }

    /// Writes the config file of clusterctl.
    pub fn configure_clusterctl(&self, config: &str) {
        let folder = self.home.join(".config/cluster-api");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("clusterctl.yaml"), config).unwrap();
    }

    /// Runs a command line, and stops it after `limit`.
    pub async fn run(&self, line: &str, environment: &[(&str, &str)], limit: Duration) -> Output {
        let mut command = Command::new("timeout");
        command.arg(limit.as_secs().to_string()).args(["sh", "-c", line]);
        command.env("PATH", &self.path).env("XDG_STATE_HOME", self.home.join("state"));
        command.env("XDG_CONFIG_HOME", self.home.join(".config"));
        // Otherwise clusterctl would send a request for its newest version.
        command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command.env("KUBECACHEDIR", self.home.join("kube")).envs(environment.iter().copied());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a command line that must succeed. Returns its stdout.
    pub async fn expect(&self, line: &str, environment: &[(&str, &str)]) -> String {
        let output = self.run(line, environment, Duration::from_mins(2)).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{line}` failed:\n{stdout}\n{stderr}");
        stdout
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the command lines of processes that contain `folder`.
pub fn processes_using(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| text(&line).replace('\0', " ")).filter(|line| line.contains(&folder)).collect()
}

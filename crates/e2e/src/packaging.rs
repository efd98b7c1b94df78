//! The output of `cargo xtask dist`, built once per test process.

use std::path::{Path, PathBuf};

use chandler_sandbox::{assets::Binary, testing};
use tokio::{process::Command, sync::OnceCell};

static DIST: OnceCell<PathBuf> = OnceCell::const_new();

/// Returns the folder with all files of a release.
pub async fn dist() -> &'static Path {
    DIST.get_or_init(|| async {
        let out = testing::fresh_dir("dist").await.unwrap();
        let output = xtask_dist(&["--out", &out.to_string_lossy()]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        out
    })
    .await
}

/// Runs `cargo xtask dist` with additional arguments. It uses the sandbox's helm, so that no other program is built.
pub async fn xtask_dist(arguments: &[&str]) -> std::process::Output {
    let helm = testing::assets().await.unwrap().path(Binary::Helm).to_string_lossy();
    run(&[&["dist", "--helm", &*helm], arguments].concat()).await
}

/// Runs a task that must succeed.
pub async fn xtask(arguments: &[&str]) {
    let output = run(arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn run(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO"));
    command.arg("xtask").args(arguments).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.output().await.unwrap()
}

/// Returns the path of the packaged chart.
pub async fn chart() -> PathBuf {
    dist().await.join(format!("chandler-{}.tgz", env!("CARGO_PKG_VERSION")))
}

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
    let mut command = Command::new(env!("CARGO"));
    command.args(["xtask", "dist", "--helm"]).arg(testing::assets().await.unwrap().path(Binary::Helm));
    command.args(arguments).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.output().await.unwrap()
}

/// Returns the path of the packaged chart.
pub async fn chart() -> PathBuf {
    dist().await.join(format!("chandler-{}.tgz", env!("CARGO_PKG_VERSION")))
}

//! Folders of Go modules in Go's module cache, so that no copy of third-party files is checked in.

use std::path::{Path, PathBuf};

use chandler_sandbox::assets;

/// Returns the folder of a module at the version that the programs of the sandbox are built with.
pub async fn of_sandbox(module: &str) -> PathBuf {
    folder(&programs("kubernetes-1.34"), module).await
}

/// Returns the folder of Fleet's module at the version that its programs are built with.
pub async fn of_fleet() -> PathBuf {
    folder(&programs("fleet"), "github.com/rancher/fleet").await
}

/// Returns the folder of a `go.mod` that pins programs.
fn programs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/modules").join(name)
}

/// Returns the folder of a module, downloading it if needed. `query` is `module@version`, or a module that the `go.mod`
/// in `folder` requires.
pub async fn folder(folder: &Path, query: &str) -> PathBuf {
    assert!(folder.is_dir(), "there is no folder {}", folder.display());
    assets::dependency_folder(folder, query).await.unwrap_or_else(|error| panic!("{query}: {error}"))
}

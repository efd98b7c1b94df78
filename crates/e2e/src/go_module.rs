//! Folders of Go modules in Go's module cache, so that no copy of third-party files is checked in.

use std::path::{Path, PathBuf};

use chandler_sandbox::assets;

/// Returns the folder of a module at the version that the programs of the sandbox are built with.
pub async fn of_sandbox(module: &str) -> PathBuf {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/modules");
    folder(&modules.join("kubernetes-1.34"), module).await
}

/// Returns the folder of a module, downloading it if needed. `query` is `module@version`, or a module that the `go.mod`
/// in `folder` requires.
pub async fn folder(folder: &Path, query: &str) -> PathBuf {
    assert!(folder.is_dir(), "there is no folder {}", folder.display());
    assets::dependency_folder(folder, query).await.unwrap_or_else(|error| panic!("{query}: {error}"))
}

//! The programs of each Kubernetes version. Missing ones are built in the background, so that clusters of other versions
//! do not wait and the waiting ones can report their state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::assets::{Assets, Error, KubernetesVersion};
use crate::progress::Silent;

/// The state of the programs of a version.
#[derive(Debug)]
pub(super) enum Programs {
    Available(Assets),
    /// A build is running. `last_error` is the error of the previous build.
    Building {
        last_error: Option<String>,
    },
}

/// The programs of all versions. Those of `assets` are available from the start.
#[derive(Debug)]
pub(super) struct ProgramVersions {
    assets: Assets,
    builds: Arc<Mutex<HashMap<KubernetesVersion, Build>>>,
}

#[derive(Debug, Default)]
struct Build {
    running: bool,
    last_error: Option<String>,
}

impl ProgramVersions {
    pub(super) fn new(assets: &Assets) -> Self {
        Self { assets: assets.clone(), builds: Arc::default() }
    }

    /// Returns the programs of a version. If they are missing, starts a build and calls `on_built` when it has ended.
    pub(super) async fn get(
        &self,
        version: KubernetesVersion,
        on_built: impl FnOnce() + Send + 'static,
    ) -> Result<Programs, Error> {
        if let Some(assets) = self.assets.find_version(version).await? {
            return Ok(Programs::Available(assets));
        }
        let last_error = {
            let mut builds = lock(&self.builds);
            let build = builds.entry(version).or_default();
            if build.running {
                return Ok(Programs::Building { last_error: build.last_error.clone() });
            }
            build.running = true;
            build.last_error.clone()
        };
        let (assets, builds) = (self.assets.clone(), self.builds.clone());
        tokio::spawn(async move {
            tracing::info!(%version, "building the programs of another Kubernetes version");
            let last_error = assets.with_version(version, &Silent).await.err().map(|error| error.to_string());
            lock(&builds).insert(version, Build { running: false, last_error });
            on_built();
        });
        Ok(Programs::Building { last_error })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

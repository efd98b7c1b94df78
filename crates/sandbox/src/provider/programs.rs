//! The programs of each Kubernetes version. What has to be built is built in the background, so that clusters of other
//! versions do not wait and whoever does wait is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::assets::{Assets, Error, KubernetesVersion};
use crate::progress::Silent;

/// How the programs of a version are to be had.
#[derive(Debug)]
pub(super) enum Programs {
    AtHand(Assets),
    /// Being built; the error is that of the attempt before.
    Awaited {
        failure: Option<String>,
    },
}

/// The programs of all versions; those of one of them are there from the beginning.
#[derive(Debug)]
pub(super) struct Versions {
    assets: Assets,
    builds: Arc<Mutex<HashMap<KubernetesVersion, Build>>>,
}

#[derive(Debug, Default)]
struct Build {
    running: bool,
    failure: Option<String>,
}

impl Versions {
    pub(super) fn new(assets: &Assets) -> Self {
        Self { assets: assets.clone(), builds: Arc::default() }
    }

    /// The programs of a version; `then` is called when a build has ended.
    pub(super) async fn get(
        &self,
        version: KubernetesVersion,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Programs, Error> {
        if let Some(assets) = self.assets.find_version(version).await? {
            return Ok(Programs::AtHand(assets));
        }
        let failure = {
            let mut builds = lock(&self.builds);
            let build = builds.entry(version).or_default();
            if build.running {
                return Ok(Programs::Awaited { failure: build.failure.clone() });
            }
            build.running = true;
            build.failure.clone()
        };
        let (assets, builds) = (self.assets.clone(), self.builds.clone());
        tokio::spawn(async move {
            tracing::info!(%version, "building the programs of another Kubernetes version");
            let failure = assets.with_version(version, &Silent).await.err().map(|error| error.to_string());
            lock(&builds).insert(version, Build { running: false, failure });
            then();
        });
        Ok(Programs::Awaited { failure })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What a test stands in: an authority, a folder, and packages of its own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use chandler_core::release::PackageReference;
use chandler_sandbox::{certificates::Authority, chart};
use chandler_source::{
    Access, AddressPolicy, Credentials, Limits, Packages, ProxyMatcher, SourceError, SourceOptions, Store,
    StoredPackage,
};

pub struct World {
    pub folder: tempfile::TempDir,
    pub authority: Authority,
}

impl World {
    pub fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(&folder.path().join("pki"), "test").unwrap();
        Self { folder, authority }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Trusts the world's authority, and has no credentials.
    pub fn access(&self) -> Access {
        Access { ca_pem: Some(self.authority.certificate().as_bytes().to_vec()), ..Access::default() }
    }

    /// With the data of a Secret.
    pub fn access_with(&self, data: &[(&str, &str)]) -> Access {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let credentials = Credentials::from_secret(data, "config.json").unwrap();
        Access { credentials: Some(credentials), ..self.access() }
    }

    /// Packages from this machine, with little patience.
    pub fn packages(&self) -> Packages {
        self.packages_with(options())
    }

    pub fn packages_with(&self, options: SourceOptions) -> Packages {
        Packages::new(Store::open(self.path("store")).unwrap(), options)
    }

    /// A chart's folder.
    pub fn chart(&self, name: &str) -> PathBuf {
        write_chart(&self.path(name), name)
    }
}

pub fn options() -> SourceOptions {
    SourceOptions {
        addresses: AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], refused: vec![] },
        proxies: ProxyMatcher::builder().build(),
        limits: Limits {
            pause: Duration::from_secs(2),
            overall: Duration::from_secs(4),
            ..Limits::default()
        },
        ..SourceOptions::default()
    }
}

pub fn write_chart(folder: &Path, name: &str) -> PathBuf {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    chart::write(folder, &[("Chart.yaml", &metadata), ("templates/x.yaml", "kind: ConfigMap\n")]).unwrap()
}

pub fn reference(repository: &str, name: &str, version: Option<&str>) -> PackageReference {
    PackageReference {
        repository: repository.to_owned(),
        name: name.to_owned(),
        version: version.map(str::to_owned),
    }
}

/// Resolves and fetches.
pub async fn get(
    packages: &Packages,
    repository: &str,
    access: &Access,
) -> Result<StoredPackage, SourceError> {
    let resolved = packages.resolve(&reference(repository, "web", Some("1.0.0")), access).await?;
    packages.fetch(&resolved, access).await
}

/// The message of the failure that someone sees.
pub fn failure(result: Result<StoredPackage, SourceError>) -> String {
    let failure = chandler_core::failure::Failure::from(result.unwrap_err());
    format!("{}: {}", failure.category, failure.message)
}

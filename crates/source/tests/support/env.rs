//! The environment of a test: a certificate authority, a directory, and its own package store.

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

pub struct TestEnv {
    pub directory: tempfile::TempDir,
    pub authority: Authority,
}

impl TestEnv {
    pub fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(&directory.path().join("pki"), "test").unwrap();
        Self { directory, authority }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns an access that trusts the authority, without credentials.
    pub fn access(&self) -> Access {
        Access { ca_pem: Some(self.authority.certificate().as_bytes().to_vec()), ..Access::default() }
    }

    /// Returns an access with the credentials of a Secret.
    pub fn access_with(&self, data: &[(&str, &str)]) -> Access {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let credentials = Credentials::from_secret(data, "config.json").unwrap();
        Access { credentials: Some(credentials), ..self.access() }
    }

    /// Returns packages that allow local sources.
    pub fn packages(&self) -> Packages {
        self.packages_with(options())
    }

    pub fn packages_with(&self, options: SourceOptions) -> Packages {
        Packages::new(Store::open(self.path("store")).unwrap(), options)
    }

    /// Writes a chart, and returns its directory.
    pub fn chart(&self, name: &str) -> PathBuf {
        write_chart(&self.path(name), name)
    }
}

pub fn options() -> SourceOptions {
    SourceOptions {
        addresses: AddressPolicy { allowed: vec!["127.0.0.1".parse().unwrap()], ..AddressPolicy::default() },
        proxies: ProxyMatcher::builder().build(),
        limits: Limits {
            // Long enough for programs that start on a busy machine.
            read_timeout: Duration::from_secs(20),
            total_timeout: Duration::from_secs(30),
            ..Limits::default()
        },
        ..SourceOptions::default()
    }
}

pub fn write_chart(directory: &Path, name: &str) -> PathBuf {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    chart::write(directory, &[("Chart.yaml", &metadata), ("templates/x.yaml", "kind: ConfigMap\n")]).unwrap()
}

pub fn reference(repository: &str, name: &str, version: Option<&str>) -> PackageReference {
    PackageReference {
        repository: repository.to_owned(),
        name: name.to_owned(),
        version: version.map(str::to_owned),
    }
}

/// Resolves and fetches version 1.0.0 of the chart `web`.
pub async fn get(
    packages: &Packages,
    repository: &str,
    access: &Access,
) -> Result<StoredPackage, SourceError> {
    let resolved = packages.resolve(&reference(repository, "web", Some("1.0.0")), access).await?;
    packages.fetch(&resolved, access).await
}

/// Returns the category and the message of the failure, as users see it.
pub fn failure(result: Result<StoredPackage, SourceError>) -> String {
    let failure = chandler_core::failure::Failure::from(result.unwrap_err());
    format!("{}: {}", failure.category, failure.message)
}

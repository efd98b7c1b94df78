//! An OCI registry as a local process, with a certificate of the sandbox's authority.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::assets::{Assets, Binary};
use crate::certificates::{self, Authority, write_private};
use crate::chart::Package;
use crate::plane::{NoFreePort, free_port};
use crate::process::{self, Child, GRACE_PERIOD, Spec};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// An error while running the registry or pushing a chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Certificates(#[from] certificates::Error),
    #[error(transparent)]
    Port(#[from] NoFreePort),
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error("the registry did not respond within {} s", READY_TIMEOUT.as_secs())]
    NotReady,
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot run helm: {source}")]
    RunHelm { source: io::Error },
    #[error("helm push failed: {output}")]
    Push { output: String },
}

/// A running registry. Its process ends when it is dropped or when this process ends.
pub struct Registry {
    host: String,
    authority: String,
    home: PathBuf,
    helm: PathBuf,
    authenticated: bool,
    child: Child,
}

/// The user and password of a registry that requires authentication.
pub const CREDENTIALS: (&str, &str) = ("sandbox", "canary-of-the-registry");
/// [`CREDENTIALS`] as an htpasswd file. The registry supports only bcrypt.
const HTPASSWD: &str = "sandbox:$2b$05$V6rUctlGMAkNXd/B.0w2I.tvzV4OODXIb6/99hTpyI.Zjal7ec9A.\n";

impl Registry {
    pub async fn start(assets: &Assets, authority: &Authority, home: &Path) -> Result<Self, Error> {
        Self::run(assets, authority, home, false).await
    }

    /// Like [`Registry::start`], but the registry requires [`CREDENTIALS`].
    pub async fn start_with_authentication(
        assets: &Assets,
        authority: &Authority,
        home: &Path,
    ) -> Result<Self, Error> {
        Self::run(assets, authority, home, true).await
    }

    async fn run(
        assets: &Assets,
        authority: &Authority,
        home: &Path,
        authenticated: bool,
    ) -> Result<Self, Error> {
        process::terminate_orphans(home);
        let port = free_port()?;
        let (certificate, key) = authority.server(&[])?.write(home, "registry")?;
        write_private(&home.join("ca.pem"), authority.certificate())?;
        // JSON is YAML.
        let mut config = json!({
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": home.join("data")}, "delete": {"enabled": true}},
            "http": {"addr": format!("127.0.0.1:{port}"), "tls": {"certificate": certificate, "key": key}},
        });
        if authenticated {
            let passwords = home.join("passwords");
            write_private(&passwords, HTPASSWD)?;
            config["auth"] = json!({"htpasswd": {"realm": "sandbox", "path": passwords}});
        }
        write_private(&home.join("config.yaml"), &config.to_string())?;
        let child = Child::spawn(&Spec {
            name: Binary::Registry.file_name().to_owned(),
            program: assets.path(Binary::Registry).to_owned(),
            args: vec!["serve".to_owned(), "config.yaml".to_owned()],
            // Without this variable, the registry tries to connect to a trace collector.
            env: vec![("OTEL_TRACES_EXPORTER".to_owned(), "none".to_owned())],
            home: home.to_owned(),
        })?;
        if !child.accepts_connections(port, READY_TIMEOUT).await? {
            return Err(Error::NotReady);
        }
        Ok(Self {
            host: format!("127.0.0.1:{port}"),
            authority: authority.certificate().to_owned(),
            home: home.to_owned(),
            helm: assets.path(Binary::Helm).to_owned(),
            authenticated,
            child,
        })
    }

    /// Returns host and port, such as `127.0.0.1:20123`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the URL to which the name of a chart is appended, such as `oci://127.0.0.1:20123/charts`.
    pub fn url(&self) -> String {
        format!("oci://{}/charts", self.host)
    }

    /// Returns the certificate of the authority in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority
    }

    /// Returns the file with the certificate of the authority.
    pub fn ca_file(&self) -> PathBuf {
        self.home.join("ca.pem")
    }

    /// Pushes a chart with the helm CLI.
    pub async fn push(&self, package: &Package) -> Result<(), Error> {
        let path = self.home.join(package.file_name());
        tokio::fs::write(&path, &package.bytes)
            .await
            .map_err(|source| Error::Write { path: path.clone(), source })?;
        let mut command = Command::new(&self.helm);
        command.arg("push").arg(&path).arg(self.url()).arg("--ca-file").arg(self.ca_file());
        if self.authenticated {
            command.args(["--username", CREDENTIALS.0, "--password", CREDENTIALS.1]);
        }
        let output = command
            .env_clear()
            .env("HOME", &self.home)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| Error::RunHelm { source })?;
        if !output.status.success() {
            return Err(Error::Push { output: String::from_utf8_lossy(&output.stderr).into_owned() });
        }
        Ok(())
    }

    pub async fn stop(self) {
        self.child.stop(GRACE_PERIOD).await;
    }
}

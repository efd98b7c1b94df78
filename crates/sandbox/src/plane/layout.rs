//! The files in a control plane's folder: keys, kubeconfigs and policies. They are created once and reused by a restart.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::components::SHARED_ETCD_LINK;
use super::ports::is_free;
use super::{Error, Network, endpoint};
use crate::assets::KubernetesVersion;
use crate::certificates::{self, Authority, write_private, write_signing_key};
use crate::kubeconfig;

/// Logs a watch when it starts and all other requests when they complete. Omits requests of the control plane's own
/// components.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager, system:kube-scheduler, sandbox:kwok, sandbox:probe]
- level: None
  userGroups: [system:serviceaccounts:kube-system]
- level: Metadata
";

/// Users of a control plane other than the administrator.
pub(super) const CONTROLLER_MANAGER: &str = "controller-manager";
pub(super) const SCHEDULER: &str = "scheduler";
pub(super) const KWOK: &str = "kwok";
pub(super) const PROBE: &str = "probe";

const USERS: [(&str, &str, &[&str]); 4] = [
    (CONTROLLER_MANAGER, "system:kube-controller-manager", &[]),
    (SCHEDULER, "system:kube-scheduler", &[]),
    (KWOK, "sandbox:kwok", &["system:masters"]),
    (PROBE, "sandbox:probe", &["system:masters"]),
];

/// The paths in a control plane's folder.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.root.join(format!("{user}.kubeconfig"))
    }

    /// Returns the port of the last start, if it is still free.
    pub(super) fn previous_port(&self) -> Option<u16> {
        let port = fs::read_to_string(self.root.join("port")).ok()?.parse().ok()?;
        is_free(port).then_some(port)
    }

    pub(super) fn store_port(&self, port: u16) -> Result<(), Error> {
        Ok(write_private(&self.root.join("port"), &port.to_string())?)
    }

    /// Returns the version of the API server that ran last.
    pub(super) fn stored_version(&self) -> Option<KubernetesVersion> {
        fs::read_to_string(self.root.join("version")).ok()?.parse().ok()
    }

    pub(super) fn store_version(&self, version: KubernetesVersion) -> Result<(), Error> {
        Ok(write_private(&self.root.join("version"), &version.to_string())?)
    }

    /// Links the folder of a shared etcd. The path of its socket may be too long otherwise.
    pub(super) fn link_etcd(&self, etcd: &Path) -> Result<(), Error> {
        let path = self.root.join(SHARED_ETCD_LINK);
        match std::os::unix::fs::symlink(etcd, &path) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::Folder { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Creates missing files and returns the administrator's kubeconfig.
    pub(super) fn prepare(&self, name: &str, network: &Network, port: u16) -> Result<String, Error> {
        let server = &endpoint(SocketAddr::new(network.address, port));
        fs::create_dir_all(&self.root).map_err(|source| Error::Folder { path: self.root.clone(), source })?;
        restrict_permissions(&self.root)?;
        let authority = self.authority(name)?;
        write_signing_key(&self.pki(), "service-account")?;
        if !self.pki().join("apiserver.key").is_file() {
            let own = network.names();
            let mut names = vec!["kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1"];
            names.extend(own.iter().map(String::as_str));
            authority.server(&names)?.write(&self.pki(), "apiserver")?;
        }
        write_private(&self.root.join("audit-policy.yaml"), AUDIT_POLICY)?;
        for (user, common_name, groups) in USERS {
            let pair = authority.client(common_name, groups)?;
            let yaml = kubeconfig::render(user, server, authority.certificate(), &pair);
            write_private(&self.kubeconfig(user), &yaml)?;
        }
        self.admin_kubeconfig(name, server, &authority)
    }

    /// Returns the administrator's kubeconfig with the name of another cluster.
    pub(super) fn rename(&self, name: &str, network: &Network, port: u16) -> Result<String, Error> {
        let path = self.root.join("kubeconfig");
        fs::remove_file(&path).map_err(|source| Error::Folder { path, source })?;
        let server = endpoint(SocketAddr::new(network.address, port));
        self.admin_kubeconfig(name, &server, &self.authority(name)?)
    }

    /// Returns the certificate authority. Creates it if it does not exist.
    pub(super) fn authority(&self, name: &str) -> Result<Authority, certificates::Error> {
        Authority::open(&self.pki(), &format!("sandbox {name}"))
    }

    /// Returns a new kubeconfig of an administrator, with the user name and the lifetime that Cluster API chooses.
    pub(super) fn issue_kubeconfig(
        &self,
        name: &str,
        server: &str,
        lifetime: Duration,
    ) -> Result<String, certificates::Error> {
        let authority = self.authority(name)?;
        let pair = authority.expiring_client("kubernetes-admin", &["system:masters"], lifetime)?;
        Ok(kubeconfig::render_admin(name, server, authority.certificate(), &pair))
    }

    fn admin_kubeconfig(&self, name: &str, server: &str, authority: &Authority) -> Result<String, Error> {
        let path = self.root.join("kubeconfig");
        if let Ok(yaml) = fs::read_to_string(&path)
            && yaml.contains(server)
        {
            return Ok(yaml);
        }
        let pair = authority.client("sandbox:admin", &["system:masters"])?;
        let yaml = kubeconfig::render(name, server, authority.certificate(), &pair);
        write_private(&path, &yaml)?;
        Ok(yaml)
    }
}

/// Makes the folder accessible only to its owner, because the etcd socket in it gives full access to the cluster.
pub(super) fn restrict_permissions(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(|source| Error::Folder { path: path.to_owned(), source })
}

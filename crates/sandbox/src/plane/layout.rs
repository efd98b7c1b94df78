//! What a plane keeps in its folder: keys, kubeconfigs, policies; all made once and found again by a restart.

use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use super::ports::is_free;
use crate::assets::KubernetesVersion;
use crate::certificates::{Authority, write_private, write_signing_key};
use crate::kubeconfig;

/// Watches are logged when they begin, everything else when it ends. The plane's own machinery stays out.
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

/// Users of a plane besides the administrator.
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

/// Paths inside a plane's folder.
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

    /// The port of the last start, if nobody has taken it since.
    pub(super) fn previous_port(&self) -> Option<u16> {
        let port = fs::read_to_string(self.root.join("port")).ok()?.parse().ok()?;
        is_free(port).then_some(port)
    }

    pub(super) fn keep_port(&self, port: u16) -> Result<(), Error> {
        Ok(write_private(&self.root.join("port"), &port.to_string())?)
    }

    /// The version whose API server has written the data last.
    pub(super) fn kept_version(&self) -> Option<KubernetesVersion> {
        fs::read_to_string(self.root.join("version")).ok()?.parse().ok()
    }

    pub(super) fn keep_version(&self, version: KubernetesVersion) -> Result<(), Error> {
        Ok(write_private(&self.root.join("version"), &version.to_string())?)
    }

    /// Makes what is missing and returns the administrator's kubeconfig.
    pub(super) fn prepare(&self, name: &str, server: &str) -> Result<String, Error> {
        fs::create_dir_all(&self.root).map_err(|source| Error::Folder { path: self.root.clone(), source })?;
        restrict(&self.root)?;
        let authority = Authority::open(&self.pki(), &format!("sandbox {name}"))?;
        write_signing_key(&self.pki(), "service-account")?;
        if !self.pki().join("apiserver.key").is_file() {
            let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1"];
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

/// The etcd socket in here is as good as the administrator's key.
fn restrict(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(|source| Error::Folder { path: path.to_owned(), source })
}

//! The processes of a control plane and their flags.

use std::net::SocketAddr;
use std::path::Path;

use super::layout::{CONTROLLER_MANAGER, KWOK, Layout, SCHEDULER};
use crate::assets::{Assets, Binary};
use crate::process::Spec;

// Relative to the control plane's folder, because the path of a socket is limited to 107 characters.
const ETCD: &str = "unix://etcd.sock:0";
const ETCD_PEER: &str = "unix://etcd-peer.sock:0";
const SHARED_ETCD: &str = "unix://shared-etcd/etcd.sock:0";
/// The link in the folder of a control plane to that of a shared etcd.
pub(super) const SHARED_ETCD_LINK: &str = "shared-etcd";

/// Controllers that are disabled because there are no machines, volumes or load balancers.
const DISABLED_CONTROLLERS: [&str; 9] = [
    "node-ipam-controller",
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "ttl-controller",
    "bootstrap-signer-controller",
    "token-cleaner-controller",
];

pub(super) fn etcd(assets: &Assets, home: &Path) -> Spec {
    spec(
        assets,
        Binary::Etcd,
        home,
        vec![
            "--name=sandbox".to_owned(),
            "--data-dir=etcd".to_owned(),
            // Faster. A power failure may destroy the data of a sandbox, which is acceptable.
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            format!("--listen-peer-urls={ETCD_PEER}"),
            format!("--initial-advertise-peer-urls={ETCD_PEER}"),
            format!("--initial-cluster=sandbox={ETCD_PEER}"),
            "--log-level=warn".to_owned(),
        ],
    )
}

/// The API server. `prefix` is that of its data in a shared etcd; `None` means an etcd of its own.
pub(super) fn apiserver(
    assets: &Assets,
    home: &Path,
    address: SocketAddr,
    bare: bool,
    prefix: Option<&str>,
) -> Spec {
    let layout = Layout::new(home);
    let pki = |file: &str| layout.pki().join(file).display().to_string();
    let mut args = vec![
        format!("--etcd-servers={}", if prefix.is_some() { SHARED_ETCD } else { ETCD }),
        format!("--bind-address={}", address.ip()),
        format!("--advertise-address={}", address.ip()),
        format!("--secure-port={}", address.port()),
        format!("--client-ca-file={}", pki("ca.pem")),
        format!("--tls-cert-file={}", pki("apiserver.pem")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--service-account-key-file={}", pki("service-account.pub")),
        format!("--service-account-signing-key-file={}", pki("service-account.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        "--audit-policy-file=audit-policy.yaml".to_owned(),
        format!("--audit-log-path={}", layout.audit_log().display()),
        "--audit-log-maxsize=256".to_owned(),
        "--audit-log-maxbackup=1".to_owned(),
    ];
    if let Some(prefix) = prefix {
        args.push(format!("--etcd-prefix=/{prefix}"));
    }
    if bare {
        // Without the controller manager there are no default ServiceAccounts, and the plugin would reject every Pod.
        args.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    spec(assets, Binary::KubeApiserver, home, args)
}

/// Returns the processes that a full control plane has in addition to etcd and the API server.
pub(super) fn controllers(assets: &Assets, home: &Path) -> [Spec; 3] {
    [controller_manager(assets, home), scheduler(assets, home), kwok(assets, home)]
}

fn controller_manager(assets: &Assets, home: &Path) -> Spec {
    let layout = Layout::new(home);
    let pki = |file: &str| layout.pki().join(file).display().to_string();
    let disabled = DISABLED_CONTROLLERS.map(|name| format!("-{name}")).join(",");
    spec(
        assets,
        Binary::KubeControllerManager,
        home,
        vec![
            format!("--kubeconfig={}", layout.kubeconfig(CONTROLLER_MANAGER).display()),
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", pki("service-account.key")),
            format!("--root-ca-file={}", pki("ca.pem")),
            format!("--cluster-signing-cert-file={}", pki("ca.pem")),
            format!("--cluster-signing-key-file={}", pki("ca.key")),
            format!("--controllers=*,{disabled}"),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--profiling=false".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ],
    )
}

fn scheduler(assets: &Assets, home: &Path) -> Spec {
    let layout = Layout::new(home);
    spec(
        assets,
        Binary::KubeScheduler,
        home,
        vec![
            format!("--kubeconfig={}", layout.kubeconfig(SCHEDULER).display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--profiling=false".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ],
    )
}

fn kwok(assets: &Assets, home: &Path) -> Spec {
    let layout = Layout::new(home);
    spec(
        assets,
        Binary::Kwok,
        home,
        vec![
            format!("--kubeconfig={}", layout.kubeconfig(KWOK).display()),
            format!("--config={}", assets.kwok_stages().display()),
            "--manage-all-nodes=true".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
        ],
    )
}

fn spec(assets: &Assets, binary: Binary, home: &Path, args: Vec<String>) -> Spec {
    Spec {
        name: binary.file_name().to_owned(),
        program: assets.path(binary).to_owned(),
        args,
        // Some of them write caches to their home directory.
        env: vec![("HOME".to_owned(), home.display().to_string())],
        home: home.to_owned(),
    }
}

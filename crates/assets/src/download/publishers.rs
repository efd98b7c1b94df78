//! Where official builds of programs are published, with the checksums of their publishers.
//!
//! kwok and Cluster API publish no binaries with checksums (kwok: only binaries, Cluster API: only images), so they are part of
//! Chandler's own releases.

use std::env::consts::ARCH;

use crate::{Binary, KubernetesVersion};

pub(super) const GITHUB: &str = "github.com";

/// The files of a publisher that contain a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) host: &'static str,
    /// The path of the program, or of an archive that contains it.
    pub(super) path: String,
    /// The path of a file with its SHA-256 checksum.
    pub(super) checksums: String,
    /// The path of the program in a compressed tar archive.
    pub(super) member: Option<String>,
    /// The arguments that let the program print its version.
    pub(super) version_arguments: &'static [&'static str],
    /// The first line of what it prints then.
    pub(super) version: String,
}

impl Published {
    /// Returns where a program is published, for control planes of a Kubernetes version.
    pub(super) fn of(binary: Binary, kubernetes: KubernetesVersion) -> Option<Self> {
        let architecture = architecture(ARCH)?;
        match binary {
            Binary::Etcd => Some(etcd(&binary.version(kubernetes)?, architecture)),
            Binary::KubeApiserver | Binary::KubeControllerManager | Binary::KubeScheduler => {
                let version = binary.version(kubernetes)?;
                Some(of_kubernetes(binary, &version, architecture, &["--version"], "Kubernetes"))
            }
            Binary::Kubectl => {
                let version = binary.version(kubernetes)?;
                Some(of_kubernetes(
                    binary,
                    &version,
                    architecture,
                    &["version", "--client"],
                    "Client Version:",
                ))
            }
            _ => None,
        }
    }
}

fn of_kubernetes(
    binary: Binary,
    version: &str,
    architecture: &str,
    version_arguments: &'static [&'static str],
    label: &str,
) -> Published {
    let path = format!("/release/{version}/bin/linux/{architecture}/{binary}");
    Published {
        host: "dl.k8s.io",
        checksums: format!("{path}.sha256"),
        path,
        member: None,
        version_arguments,
        version: format!("{label} {version}"),
    }
}

fn etcd(version: &str, architecture: &str) -> Published {
    let release = format!("/etcd-io/etcd/releases/download/{version}");
    let name = format!("etcd-{version}-linux-{architecture}");
    Published {
        host: GITHUB,
        path: format!("{release}/{name}.tar.gz"),
        checksums: format!("{release}/SHA256SUMS"),
        member: Some(format!("{name}/etcd")),
        version_arguments: &["--version"],
        version: format!("etcd Version: {}", version.trim_start_matches('v')),
    }
}

/// Returns Go's name of a processor architecture. `None` if nothing is published for it.
pub(super) fn architecture(rust: &str) -> Option<&'static str> {
    match rust {
        "x86_64" => Some("amd64"),
        "aarch64" => Some("arm64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_contain_the_pinned_versions() {
        let kubernetes =
            of_kubernetes(Binary::KubeScheduler, "v1.34.4", "amd64", &["--version"], "Kubernetes");
        assert_eq!(kubernetes.path, "/release/v1.34.4/bin/linux/amd64/kube-scheduler");
        assert_eq!(kubernetes.checksums, "/release/v1.34.4/bin/linux/amd64/kube-scheduler.sha256");
        assert_eq!(kubernetes.version, "Kubernetes v1.34.4");
        let etcd = etcd("v3.6.8", "arm64");
        assert_eq!(etcd.path, "/etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-linux-arm64.tar.gz");
        assert_eq!(etcd.member.as_deref(), Some("etcd-v3.6.8-linux-arm64/etcd"));
        assert_eq!(etcd.version, "etcd Version: 3.6.8");
    }

    #[test]
    fn every_program_of_a_control_plane_but_kwok_is_published() {
        for kubernetes in KubernetesVersion::SUPPORTED {
            for binary in Binary::FULL_PLANE.into_iter().chain([Binary::Kubectl, Binary::CapiManager]) {
                let expected = ![Binary::Kwok, Binary::CapiManager].contains(&binary);
                assert_eq!(Published::of(binary, kubernetes).is_some(), expected, "{binary}");
            }
        }
        let newer = Published::of(Binary::KubeApiserver, KubernetesVersion::V1_36).unwrap();
        assert_eq!(newer.version, format!("Kubernetes {}", KubernetesVersion::V1_36));
        // The default version's controller manager serves for this one.
        let older = Published::of(Binary::KubeControllerManager, KubernetesVersion::V1_35).unwrap();
        assert_eq!(older.version, format!("Kubernetes {}", KubernetesVersion::default()));
    }

    #[test]
    fn nothing_is_published_for_other_architectures() {
        assert_eq!(["x86_64", "aarch64", "riscv64"].map(architecture), [Some("amd64"), Some("arm64"), None]);
    }
}

//! The kubeconfig Secret of a Cluster, which is treated as Cluster API's kubeadm control plane provider treats it: it is
//! created once, and renewed when less than half of the lifetime of its certificate is left. The renewal keeps only the
//! address of the API server.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use kube::config::{Cluster, Kubeconfig};
use kube::{Resource, ResourceExt};
use x509_parser::pem::parse_x509_pem;

use super::Error;
use super::planes::ClusterKey;
use super::sandbox_control_plane::SandboxControlPlane;
use crate::plane::Plane;

const TYPE: &str = "cluster.x-k8s.io/secret";
const KEY: &str = "value";
const LIFETIME: Duration = Duration::from_hours(365 * 24);
/// A certificate with less time left is renewed.
const RENEW_BEFORE: Duration = Duration::from_hours(365 * 12);

/// Creates, adopts or renews the Secret, as needed.
pub(super) async fn reconcile(
    client: &kube::Client,
    object: &SandboxControlPlane,
    key: &ClusterKey,
    plane: &Plane,
) -> Result<(), Error> {
    let name = format!("{}-kubeconfig", key.name);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
    let Some(owner) = owner_reference(object) else { return Ok(()) };
    let current = secrets.get_opt(&name).await.map_err(Error::read("a kubeconfig Secret"))?;
    let Some(current) = current else {
        let kubeconfig = plane.issue_kubeconfig(&plane.public_endpoint(), LIFETIME)?;
        let secret = new_secret(&name, key, owner, kubeconfig);
        secrets.create(&PostParams::default(), &secret).await.map_err(Error::write("a kubeconfig Secret"))?;
        return Ok(());
    };
    let mut secret = current.clone();
    let of_other_object = controller(&secret).is_some_and(|controller| controller.uid != owner.uid);
    adopt(&mut secret, owner);
    let server = match read(&secret) {
        // An earlier Cluster with the same name has left it, and garbage collection has not removed it yet.
        Some(kubeconfig) if of_other_object && !kubeconfig.trusts(&key.name, &plane.authority()?) => {
            Some(plane.public_endpoint())
        }
        Some(kubeconfig) => kubeconfig.server_to_renew(&key.name, Timestamp::now()),
        None => None,
    };
    if let Some(server) = server {
        let kubeconfig = plane.issue_kubeconfig(&server, LIFETIME)?;
        secret.data.get_or_insert_default().insert(KEY.to_owned(), ByteString(kubeconfig.into_bytes()));
    }
    if secret != current {
        // The resource version makes the API server refuse the update if another client has changed the Secret.
        secrets
            .replace(&name, &PostParams::default(), &secret)
            .await
            .map_err(Error::write("a kubeconfig Secret"))?;
    }
    Ok(())
}

fn owner_reference(object: &SandboxControlPlane) -> Option<OwnerReference> {
    Some(OwnerReference { block_owner_deletion: Some(true), ..object.controller_owner_ref(&())? })
}

fn new_secret(name: &str, key: &ClusterKey, owner: OwnerReference, kubeconfig: String) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(key.namespace.clone()),
            labels: Some([("cluster.x-k8s.io/cluster-name".to_owned(), key.name.clone())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        data: Some([(KEY.to_owned(), ByteString(kubeconfig.into_bytes()))].into()),
        ..Secret::default()
    }
}

fn controller(secret: &Secret) -> Option<&OwnerReference> {
    secret.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Makes the control plane the controller of the Secret, unless a user has written the Secret.
fn adopt(secret: &mut Secret, owner: OwnerReference) {
    let is_current = controller(secret).is_some_and(|controller| controller.uid == owner.uid);
    if is_current || secret.type_.as_deref() != Some(TYPE) {
        return;
    }
    let owners = secret.owner_references_mut();
    owners.retain(|other| other.controller != Some(true) && other.kind != owner.kind);
    owners.push(owner);
}

/// Returns the kubeconfig of the Secret, or `None` if it cannot be read.
fn read(secret: &Secret) -> Option<StoredKubeconfig> {
    let value = secret.data.as_ref()?.get(KEY)?;
    let kubeconfig = Kubeconfig::from_yaml(std::str::from_utf8(&value.0).ok()?).ok()?;
    Some(StoredKubeconfig { kubeconfig, is_owned: controller(secret).is_some_and(is_control_plane) })
}

fn is_control_plane(owner: &OwnerReference) -> bool {
    owner.kind == SandboxControlPlane::kind(&())
}

struct StoredKubeconfig {
    kubeconfig: Kubeconfig,
    /// Whether a control plane is the controller of the Secret. Others are never renewed.
    is_owned: bool,
}

impl StoredKubeconfig {
    fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.kubeconfig.clusters.iter().find(|entry| entry.name == name)?.cluster.as_ref()
    }

    fn trusts(&self, name: &str, authority: &str) -> bool {
        let data = self.cluster(name).and_then(|cluster| cluster.certificate_authority_data.as_deref());
        data == Some(STANDARD.encode(authority).as_str())
    }

    /// Returns the address of the API server if the kubeconfig has to be renewed.
    fn server_to_renew(&self, name: &str, now: Timestamp) -> Option<String> {
        let renew_after = now.checked_add(RENEW_BEFORE).ok()?;
        let users = self.kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
        let mut certificates = users.filter_map(|user| user.client_certificate_data.as_deref());
        let expires = |data: &str| expiry(data).is_some_and(|expiry| expiry < renew_after);
        (self.is_owned && certificates.any(expires)).then(|| self.cluster(name)?.server.clone()).flatten()
    }
}

/// Returns when a base64-encoded certificate in PEM expires.
fn expiry(data: &str) -> Option<Timestamp> {
    let pem = STANDARD.decode(data).ok()?;
    let (_, pem) = parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic fails the test")]

    use super::*;
    use crate::certificates::Authority;
    use crate::kubeconfig;

    const DAY: Duration = Duration::from_hours(24);

    fn owner(kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    fn secret(owners: Vec<OwnerReference>, kubeconfig: &str) -> Secret {
        let key = ClusterKey::new("fleet", "blue");
        let mut secret =
            new_secret("blue-kubeconfig", &key, OwnerReference::default(), kubeconfig.to_owned());
        secret.metadata.owner_references = Some(owners);
        secret
    }

    #[test]
    fn a_kubeconfig_is_renewed_when_less_than_half_of_its_lifetime_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path(), "blue").unwrap();
        let pair = authority.expiring_client("kubernetes-admin", &["system:masters"], LIFETIME).unwrap();
        let yaml = kubeconfig::render_admin("blue", "https://blue:6443", authority.certificate(), &pair);
        let owned = read(&secret(vec![owner("SandboxControlPlane", "1")], &yaml)).unwrap();
        let now = Timestamp::now();
        assert!(owned.trusts("blue", authority.certificate()));
        assert!(!owned.trusts("blue", "another"));
        assert_eq!(owned.server_to_renew("blue", now), None);
        assert_eq!(owned.server_to_renew("blue", now + DAY * 180), None);
        assert_eq!(owned.server_to_renew("blue", now + DAY * 185).as_deref(), Some("https://blue:6443"));
        let of_user = read(&secret(vec![owner("Cluster", "1")], &yaml)).unwrap();
        assert_eq!(of_user.server_to_renew("blue", now + DAY * 185), None);
    }

    #[test]
    fn a_secret_of_cluster_api_gets_the_control_plane_as_its_controller() {
        let ours = || owner("SandboxControlPlane", "new");
        let plain = OwnerReference { controller: None, ..owner("Other", "7") };
        for before in [vec![], vec![owner("Cluster", "1")], vec![owner("SandboxControlPlane", "old")]] {
            let mut adopted = secret([vec![plain.clone()], before].concat(), "");
            adopt(&mut adopted, ours());
            assert_eq!(adopted.owner_references(), [plain.clone(), ours()]);
        }
        let mut of_user = Secret { type_: None, ..secret(vec![plain.clone()], "") };
        adopt(&mut of_user, ours());
        assert_eq!(of_user.owner_references(), [plain]);
    }
}

//! Names and owners of Secrets with values. Chandler does not write to a Secret of somebody else that has the same name.

use chandler_api::FIELD_MANAGER;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube_core::ResourceExt as _;

use super::ReleaseKind;
use crate::{digest::Digest, health::group};

const HASH: usize = 10;
/// The type of Secrets with values.
pub const VALUES_SECRET_TYPE: &str = "Opaque";

/// Returns the name of the Secret with the values of a new release object. The hash of the uid of its placement keeps it apart from
/// Secrets that users name.
fn values_secret_name<R: ReleaseKind>(release: &str, placement_uid: &str) -> String {
    let hash = Digest::of([release, placement_uid].join("\n"));
    format!("{}-{}", former_name::<R>(release), &hash.hex()[..HASH])
}

/// Returns whether a Secret has a name that Chandler gives to Secrets with values of this release object, also after `clusterctl
/// move`, which changes uids. Earlier versions used names without a hash.
pub(super) fn is_values_secret_name<R: ReleaseKind>(name: &str, release: &str) -> bool {
    let Some(rest) = name.strip_prefix(&former_name::<R>(release)) else { return false };
    let is_hash = |hash: &str| hash.len() == HASH && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.is_empty() || rest.strip_prefix('-').is_some_and(is_hash)
}

/// Returns the name of the Secret with the values of a release object: the one that it refers to, or else a new one.
pub fn values_secret_name_of<R: ReleaseKind>(
    existing: Option<&R>,
    release: &str,
    placement_uid: &str,
) -> String {
    let current = existing.and_then(ReleaseKind::values_secret).map(|secret| secret.name);
    let current = current.filter(|name| is_values_secret_name::<R>(name, release));
    current.unwrap_or_else(|| values_secret_name::<R>(release, placement_uid))
}

fn former_name<R: ReleaseKind>(release: &str) -> String {
    format!("{release}{}", R::VALUES_SUFFIX)
}

/// Returns whether Chandler may write values to an existing Secret: the release object or its placement owns it. The uid of the
/// owner does not count: the Secret of a deleted release object may still exist when the next one is created.
///
/// A Secret without owners is accepted if only Chandler has written it: earlier versions set the owner in a second request.
pub fn may_write_values<R: ReleaseKind>(
    secret: &Secret,
    release: &str,
    placement: Option<&OwnerReference>,
) -> bool {
    if secret.type_.as_deref().is_some_and(|of| of != VALUES_SECRET_TYPE) {
        return false;
    }
    let of_release = (group(&R::api_version(&())).to_owned(), R::kind(&()).into_owned(), release.to_owned());
    let identity = |owner: &OwnerReference| {
        (group(&owner.api_version).to_owned(), owner.kind.clone(), owner.name.clone())
    };
    let of_placement = placement.map(identity);
    let is_accepted =
        |owner: &OwnerReference| identity(owner) == of_release || Some(identity(owner)) == of_placement;
    let owners = secret.owner_references();
    owners.iter().any(is_accepted) || owners.is_empty() && is_written_by_chandler(secret)
}

fn is_written_by_chandler(secret: &Secret) -> bool {
    let managers: Vec<_> = secret.managed_fields().iter().map(|entry| entry.manager.as_deref()).collect();
    !managers.is_empty() && managers.iter().all(|manager| *manager == Some(FIELD_MANAGER))
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{AddonRelease, AddonReleaseSpec, ValuesSecret};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_release_keeps_the_name_of_its_secret() {
        let release = |name: &str| {
            let values_secret = Some(ValuesSecret { name: name.to_owned(), digest: "one".to_owned() });
            AddonRelease::new("net-blue", AddonReleaseSpec { values_secret, ..AddonReleaseSpec::default() })
        };
        let name = |existing: Option<&AddonRelease>| values_secret_name_of(existing, "net-blue", "uid");
        let new = name(None);
        assert!(new.starts_with("net-blue-values-") && new.len() == "net-blue-values-".len() + HASH, "{new}");
        assert_ne!(new, values_secret_name::<AddonRelease>("net-blue", "other"));
        let moved = values_secret_name::<AddonRelease>("net-blue", "before clusterctl move");
        for kept in ["net-blue-values", &new, &moved] {
            assert_eq!(name(Some(&release(kept))), kept);
        }
        for other in ["login", "net-blue-values-of-a-user", "net-blue-values-0123456789a", "net-red-values"] {
            assert_eq!(name(Some(&release(other))), new, "{other}");
        }
    }

    #[test]
    fn a_secret_of_somebody_else_is_not_written() {
        let owner = |kind: &str, name: &str| json!([{"apiVersion": "chandler.dev/v1alpha1", "kind": kind, "name": name, "uid": "any"}]);
        let foreign =
            json!([{"apiVersion": "apps/v1", "kind": "AddonRelease", "name": "net-blue", "uid": "1"}]);
        let none = json!([]);
        let instance: Vec<OwnerReference> =
            serde_json::from_value(owner("ExtensionInstance", "net")).unwrap();
        let rows: [(&str, Value, &str, &[&str], bool); 9] = [
            ("of the release", owner("AddonRelease", "net-blue"), "Opaque", &["chandler"], true),
            ("of the instance", owner("ExtensionInstance", "net"), "Opaque", &["clusterctl"], true),
            ("of another release", owner("AddonRelease", "net-red"), "Opaque", &["chandler"], false),
            ("of another instance", owner("ExtensionInstance", "web"), "Opaque", &["chandler"], false),
            ("of another group", foreign, "Opaque", &["chandler"], false),
            ("of another type", owner("AddonRelease", "net-blue"), "kubernetes.io/tls", &["chandler"], false),
            ("of a user", none.clone(), "Opaque", &["kubectl"], false),
            ("overwritten by a user", none.clone(), "Opaque", &["chandler", "kubectl"], false),
            ("without its owner yet", none, "Opaque", &["chandler"], true),
        ];
        for (case, owners, of_type, managers, expected) in rows {
            let managers: Vec<_> = managers.iter().map(|manager| json!({"manager": manager})).collect();
            let secret: Secret = serde_json::from_value(json!({
                "metadata": {"name": "s", "ownerReferences": owners, "managedFields": managers}, "type": of_type,
            }))
            .unwrap();
            let may = may_write_values::<AddonRelease>(&secret, "net-blue", instance.first());
            assert_eq!(may, expected, "{case}");
        }
    }
}

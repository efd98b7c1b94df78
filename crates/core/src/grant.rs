//! ReferenceGrants: which objects of other namespaces may use a Secret.

use chandler_api::grants::{GrantedKind, ReferenceGrantSpec};

/// A kind of objects in a namespace that refers to another namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referrer<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

/// Returns whether any of `grants` lets `referrer` use the Secret. They must be those of the Secret's namespace.
pub fn permits<'a>(
    grants: impl IntoIterator<Item = &'a ReferenceGrantSpec>,
    referrer: Referrer<'_>,
    secret: &str,
) -> bool {
    grants.into_iter().any(|grant| {
        let from = grant.from.iter().any(|from| {
            (&*from.group, &*from.kind, &*from.namespace)
                == (referrer.group, referrer.kind, referrer.namespace)
        });
        let to = grant
            .to
            .iter()
            .any(|to| to.kind == GrantedKind::Secret && to.name.as_deref().is_none_or(|name| name == secret));
        from && to
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(namespace: &str, name: Option<&str>) -> ReferenceGrantSpec {
        serde_json::from_value(serde_json::json!({
            "from": [{"group": "addons.cluster.x-k8s.io", "kind": "HelmChartProxy", "namespace": namespace}],
            "to": [{"kind": "Secret", "name": name}],
        }))
        .unwrap()
    }

    #[test]
    fn grants_apply_to_their_kind_namespace_and_secret_only() {
        let referrer =
            Referrer { group: "addons.cluster.x-k8s.io", kind: "HelmChartProxy", namespace: "fleet" };
        let rows = [
            (vec![], false),
            (vec![grant("fleet", None)], true),
            (vec![grant("fleet", Some("login"))], true),
            (vec![grant("fleet", Some("other"))], false),
            (vec![grant("elsewhere", None)], false),
            (vec![grant("elsewhere", None), grant("fleet", Some("login"))], true),
        ];
        for (grants, expected) in rows {
            assert_eq!(permits(&grants, referrer, "login"), expected, "{grants:?}");
        }
        let another = Referrer { kind: "HelmReleaseProxy", ..referrer };
        assert!(!permits(&[grant("fleet", None)], another, "login"));
    }
}

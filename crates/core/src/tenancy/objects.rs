//! Which objects Syncs may write to the management cluster.

use chandler_api::extensions::KindPattern;

use super::{Rules, refused};
use crate::failure::Failure;

/// An object of a Sync.
#[derive(Clone, Copy, Debug)]
pub struct ObjectOfSync<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Empty for an object that is in no namespace.
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Rules {
    /// Checks whether a Sync in `own` namespace may write an object. Besides its own namespace, it may write to those that the
    /// AddonTenancy names. The error names the AddonTenancy and its field.
    pub fn check_synced(&self, own: &str, object: ObjectOfSync<'_>) -> Result<(), Failure> {
        let ObjectOfSync { group, kind, namespace, name } = object;
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        for tenancy in &self.0 {
            let spec = &tenancy.spec;
            let is_own = |namespace: &str| namespace == own || tenancy.names(namespace);
            let is_namespace = group.is_empty() && kind == "Namespace";
            let (field, why) = if matches_kind(&spec.kinds.denied, group, kind) {
                ("spec.kinds.denied", format!("lists {shown}"))
            } else if namespace.is_empty() && !matches_kind(&spec.kinds.cluster_scoped, group, kind) {
                ("spec.kinds.clusterScoped", format!("does not list {shown}"))
            } else if is_namespace && !is_own(name) {
                ("spec.namespaces.names", format!("does not list {name}"))
            } else if !namespace.is_empty() && !is_own(namespace) {
                ("spec.namespaces.names", format!("does not list {namespace}"))
            } else {
                continue;
            };
            let named = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            return Err(refused(&tenancy.name, &format!("{kind} {named}"), field, &why));
        }
        Ok(())
    }
}

fn matches_kind(patterns: &[KindPattern], group: &str, kind: &str) -> bool {
    let matches = |pattern: &str, text: &str| pattern == "*" || pattern == text;
    patterns.iter().any(|pattern| matches(&pattern.group, group) && matches(&pattern.kind, kind))
}

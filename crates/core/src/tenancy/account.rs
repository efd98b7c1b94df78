//! The account as which package tools act on workload clusters.

use super::{Rules, refused};
use crate::failure::{Category, Failure};

/// A ServiceAccount of a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadAccount {
    pub namespace: String,
    pub name: String,
}

impl WorkloadAccount {
    /// Returns the account in `namespace`, or else in that of the release.
    fn of(namespace: Option<&String>, name: &str, release_namespace: &str) -> Self {
        let namespace = namespace.map_or(release_namespace, String::as_str).to_owned();
        Self { namespace, name: name.to_owned() }
    }

    /// Returns the name of its user.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The account of releases that name none: `--default-workload-service-account`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultAccount {
    /// `None` means the namespace of the release.
    namespace: Option<String>,
    name: String,
}

impl DefaultAccount {
    /// Parses `NAME` or `NAMESPACE/NAME`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        if namespace.into_iter().chain([name]).all(is_name) {
            return Ok(Self { namespace: namespace.map(str::to_owned), name: name.to_owned() });
        }
        Err(format!("{text:?} is neither the name of a ServiceAccount nor NAMESPACE/NAME"))
    }

    /// Returns the account of a release in this namespace.
    fn of_release(&self, release_namespace: &str) -> WorkloadAccount {
        WorkloadAccount::of(self.namespace.as_ref(), &self.name, release_namespace)
    }
}

impl Rules {
    /// Returns the account of a release in this namespace of a workload cluster. `None` means the user of the kubeconfig.
    pub(super) fn account(
        &self,
        requested: Option<&str>,
        default: Option<&DefaultAccount>,
        release_namespace: &str,
    ) -> Result<Option<WorkloadAccount>, Failure> {
        let of = |namespace, name| WorkloadAccount::of(namespace, name, release_namespace);
        if let Some(name) = requested.filter(|name| !is_name(name)) {
            let name: String = name.chars().take(100).collect();
            let message = format!("{name:?} is not the name of a ServiceAccount");
            return Err(Failure::new(Category::InvalidSpec, message));
        }
        let mut chosen = requested.map(|name| of(None, name));
        for tenancy in &self.0 {
            let Some(account) = &tenancy.spec.workload_service_account else { continue };
            let account = of(account.namespace.as_ref(), &account.name);
            let own = chosen.get_or_insert_with(|| account.clone());
            if *own != account {
                let what = format!("ServiceAccount {}/{} of workload clusters", own.namespace, own.name);
                let why = format!("is {}/{}", account.namespace, account.name);
                return Err(refused(&tenancy.name, &what, "spec.workloadServiceAccount", &why));
            }
        }
        Ok(chosen.or_else(|| default.map(|default| default.of_release(release_namespace))))
    }

    /// Returns the account of a release that is removed: one that an AddonTenancy names wins over that of the release, because
    /// it must be possible to remove a release that is not allowed any more.
    pub(super) fn removal_account(
        &self,
        requested: Option<&str>,
        default: Option<&DefaultAccount>,
        release_namespace: &str,
    ) -> Option<WorkloadAccount> {
        let of = |namespace, name| WorkloadAccount::of(namespace, name, release_namespace);
        let mut of_tenancies =
            self.0.iter().filter_map(|tenancy| tenancy.spec.workload_service_account.as_ref());
        if let Some(account) = of_tenancies.next() {
            return Some(of(account.namespace.as_ref(), &account.name));
        }
        let requested = requested.filter(|name| is_name(name)).map(|name| of(None, name));
        requested.or_else(|| default.map(|default| default.of_release(release_namespace)))
    }
}

/// Returns whether a text is the name of a namespace or ServiceAccount. With a colon, the impersonated user would be another one.
fn is_name(name: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=253).contains(&name.len())
        && name.chars().all(|c| is_end(c) || matches!(c, '-' | '.'))
        && name.starts_with(is_end)
        && name.ends_with(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_account_is_a_name_with_or_without_namespace() {
        let account = |namespace: Option<&str>, name: &str| DefaultAccount {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        assert_eq!(DefaultAccount::parse("tenant"), Ok(account(None, "tenant")));
        assert_eq!(DefaultAccount::parse("addons/tenant"), Ok(account(Some("addons"), "tenant")));
        for wrong in ["", "/", "a/", "/a", "a/b/c", "a:b", "kube-system:x/a", "A", "-a", "a-", "a b"] {
            assert!(DefaultAccount::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}

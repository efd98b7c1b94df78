//! What a release may do on a workload cluster.

use std::sync::Arc;

use chandler_api::extensions::{KindPattern, Scope};

use super::{
    DefaultAccount, ReleaseOrigin, Rules, SourceUse, WorkloadAccount, matches_any, package_url, refused,
    selection::Tenancy,
};
use crate::{failure::Failure, release::Desired};

/// What a package tool may do on a workload cluster. The default is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// The account as which it reads and writes objects of the release. `None` means the user of the kubeconfig. Records of
    /// releases are written by that user in any case.
    pub account: Option<WorkloadAccount>,
    /// What the objects may be: every rule must allow an object.
    pub rules: Vec<ObjectRule>,
    /// Whether no hooks are run, because nothing is known about those of the revision that is removed.
    pub disable_hooks: bool,
}

/// Which objects a release may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRule {
    /// Kind and name of the object with the rule.
    pub name: String,
    pub cluster_scoped: Vec<KindPattern>,
    pub denied: Vec<KindPattern>,
    /// `None` means all.
    pub namespaces: Option<Vec<String>>,
}

impl Boundary {
    /// Returns the optional features that a package tool must have.
    pub fn needed_capabilities(&self) -> Vec<&'static str> {
        let impersonate = self.account.is_some().then_some("impersonate");
        let object_rules = (!self.rules.is_empty()).then_some("object-rules");
        impersonate.into_iter().chain(object_rules).collect()
    }

    /// Returns what a release that is removed may do while its rules are unknown: nothing but be deleted.
    pub fn of_unknown_removal() -> Self {
        Self { disable_hooks: true, ..Self::default() }
    }
}

/// What an operation does with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Installs, upgrades, compares or tests it.
    Apply,
    /// Restores an earlier revision, which may have another origin.
    Restore,
    Remove,
}

/// A release, and what is done with it.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'a> {
    /// With the repository of its catalog.
    pub desired: &'a Desired,
    pub origin: &'a ReleaseOrigin,
    pub purpose: Purpose,
}

impl Rules {
    /// Returns what a release may do on its cluster. The error names the AddonTenancy and the field that does not allow it. A removal
    /// is never refused.
    pub fn boundary(
        &self,
        request: ReleaseRequest<'_>,
        default: Option<&DefaultAccount>,
    ) -> Result<Boundary, Failure> {
        let ReleaseRequest { desired, origin, purpose } = request;
        let is_exempt =
            origin.platform_extension.as_ref().is_some_and(|name| self.allow_platform_extension(name));
        let (account, namespace) = (origin.account.as_deref(), &desired.release.namespace);
        match purpose {
            Purpose::Apply if is_exempt => Ok(Boundary::default()),
            Purpose::Apply => {
                self.check_release(desired, origin)?;
                Ok(self.restricted(self.account(account, default, namespace)?))
            }
            // The earlier revision may be one of the tenant.
            Purpose::Restore => Ok(self.restricted(self.account(account, default, namespace)?)),
            Purpose::Remove => {
                let own = self.restricted(self.removal_account(account, default, namespace));
                // So may the one that is removed, if the Extension of the platform was never installed.
                let disable_hooks = own != Boundary::default();
                Ok(if is_exempt { Boundary { disable_hooks, ..Boundary::default() } } else { own })
            }
        }
    }

    fn restricted(&self, account: Option<WorkloadAccount>) -> Boundary {
        Boundary { account, rules: self.object_rules(), disable_hooks: false }
    }

    /// Checks where a release comes from and where it goes. The error names the AddonTenancy and its field.
    pub fn check_release(&self, desired: &Desired, origin: &ReleaseOrigin) -> Result<(), Failure> {
        self.check_release_source(desired, origin)?;
        self.check_target(&desired.release.namespace)
    }

    fn allow_platform_extension(&self, name: &str) -> bool {
        self.0.iter().all(|tenancy| {
            tenancy.spec.platform_extensions.as_ref().is_none_or(|allowed| matches_any(allowed, name))
        })
    }

    fn check_release_source(&self, desired: &Desired, origin: &ReleaseOrigin) -> Result<(), Failure> {
        let (access, package) = (&desired.access, &desired.package);
        match (&access.catalog, &access.folder, &origin.platform_catalog) {
            (Some(catalog), _, _) if catalog.scope == Scope::Platform => {
                self.check_source(SourceUse::PlatformCatalog(&catalog.name))
            }
            (_, Some(folder), catalog) if folder.source.scope == Scope::Platform => match catalog {
                Some(catalog) => self.check_source(SourceUse::PlatformCatalog(catalog)),
                None => self.check_source(SourceUse::PlatformSource(&folder.source.name)),
            },
            // The files of a Source in the same namespace are fetched only from an allowed URL.
            (_, Some(_), _) => Ok(()),
            _ => {
                let url = package_url(&package.repository, &package.name);
                self.check_source(SourceUse::Url(&url))
            }
        }
    }

    fn check_target(&self, namespace: &str) -> Result<(), Failure> {
        for tenancy in &self.0 {
            let Some(allowed) = &tenancy.spec.target_namespaces else { continue };
            if !matches_any(allowed, namespace) {
                let what = format!("releases in namespace {namespace} of workload clusters");
                return Err(refused(&tenancy.name, &what, "spec.targetNamespaces", "does not list it"));
            }
        }
        Ok(())
    }

    fn object_rules(&self) -> Vec<ObjectRule> {
        let rule = |tenancy: &Arc<Tenancy>| ObjectRule {
            name: format!("AddonTenancy {}", tenancy.name),
            cluster_scoped: tenancy.spec.kinds.cluster_scoped.clone(),
            denied: tenancy.spec.kinds.denied.clone(),
            namespaces: tenancy.spec.target_namespaces.clone(),
        };
        self.0.iter().map(rule).collect()
    }
}

//! What a release may do on a workload cluster.

use std::sync::Arc;

use chandler_api::extensions::{KindPattern, Scope};

use super::{
    DefaultAccount, Rules, SourceUse, WorkloadAccount, matches_any, package_url, refused, selection::Tenancy,
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
    /// Returns the optional features that a package tool must have, with what needs them.
    pub fn needed_capabilities(&self) -> Vec<&'static str> {
        let impersonate = self.account.is_some().then_some("impersonate");
        let object_rules = (!self.rules.is_empty()).then_some("object-rules");
        impersonate.into_iter().chain(object_rules).collect()
    }
}

/// A release that is to be installed or changed.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseRequest<'a> {
    /// With the repository of its catalog.
    pub desired: &'a Desired,
    /// The account that its placement names.
    pub account: Option<&'a str>,
    /// The Extension of the platform that it is made of, unless its placement adds something: see
    /// [`platform_extension`](super::platform_extension).
    pub platform_extension: Option<&'a str>,
}

impl Rules {
    /// Returns what a release may do on its cluster. The error names the AddonTenancy and the field that does not allow it.
    pub fn boundary(
        &self,
        request: ReleaseRequest<'_>,
        default: Option<&DefaultAccount>,
    ) -> Result<Boundary, Failure> {
        let ReleaseRequest { desired, account, platform_extension } = request;
        if platform_extension.is_some_and(|name| self.allow_platform_extension(name)) {
            return Ok(Boundary::default());
        }
        self.check_release(desired)?;
        let account = self.account(account, default, &desired.release.namespace)?;
        Ok(Boundary { account, rules: self.object_rules() })
    }

    /// Returns what a release that is removed may do on its cluster. It may be removed even if it is not allowed any more.
    pub fn removal_boundary(
        &self,
        request: ReleaseRequest<'_>,
        default: Option<&DefaultAccount>,
    ) -> Result<Boundary, Failure> {
        let ReleaseRequest { desired, account, platform_extension } = request;
        if platform_extension.is_some_and(|name| self.allow_platform_extension(name)) {
            return Ok(Boundary::default());
        }
        let account = self.account(account, default, &desired.release.namespace)?;
        Ok(Boundary { account, rules: self.object_rules() })
    }

    /// Checks where a release comes from and where it goes. The error names the AddonTenancy and its field.
    pub fn check_release(&self, desired: &Desired) -> Result<(), Failure> {
        self.check_release_source(desired)?;
        self.check_target(&desired.release.namespace)
    }

    fn allow_platform_extension(&self, name: &str) -> bool {
        self.0.iter().all(|tenancy| {
            tenancy.spec.platform_extensions.as_ref().is_none_or(|allowed| matches_any(allowed, name))
        })
    }

    fn check_release_source(&self, desired: &Desired) -> Result<(), Failure> {
        let (access, package) = (&desired.access, &desired.package);
        match (&access.catalog, &access.folder) {
            (Some(catalog), _) if catalog.scope == Scope::Platform => {
                self.check_source(SourceUse::PlatformCatalog(&catalog.name))
            }
            (_, Some(folder)) if folder.source.scope == Scope::Platform => {
                self.check_source(SourceUse::PlatformSource(&folder.source.name))
            }
            // The files of a Source in the same namespace are fetched only from an allowed URL.
            (_, Some(_)) => Ok(()),
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

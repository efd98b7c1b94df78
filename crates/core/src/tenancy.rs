//! What AddonTenancies allow: sources, namespaces on workload clusters, kinds of objects, and the account that acts there.
//!
//! Without an AddonTenancy everything is allowed. If several select a namespace, all of them must allow it. While an AddonTenancy
//! cannot be read, nothing new is allowed in the namespaces that it may select. Releases can be removed in any case.

mod account;
mod boundary;
mod objects;
mod platform_extension;
mod recorded;
mod refusal;
mod selection;
mod sources;
mod url_prefix;

pub use self::{
    account::{DefaultAccount, WorkloadAccount},
    boundary::{Boundary, ObjectRule, ReleaseUse},
    objects::ObjectOfSync,
    platform_extension::platform_extension,
    recorded::Recorded,
    refusal::Refusal,
    selection::{Rules, Tenancies, UnreadableSpec, read_spec},
    sources::{SourceUse, package_url},
};
use crate::failure::{Category, Failure};

/// Returns the failure of something that a tenancy does not allow. `field` is what refuses it.
fn refused(tenancy: &str, what: &str, field: &str, why: &str) -> Failure {
    let message = format!(
        "AddonTenancy {tenancy} does not allow {what}: its {field} {why}; nothing is changed, and what is installed is kept"
    );
    Failure::new(Category::NotAllowed, message)
}

/// Returns whether a name matches one of the patterns, whose last character may be `*`.
fn matches_any<'a>(patterns: impl IntoIterator<Item = &'a String>, name: &str) -> bool {
    patterns.into_iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    })
}

#[cfg(test)]
mod tests;

//! The rules that the API server checks beyond types.
//!
//! A rule sits on the field it speaks of: then the API server lets a value that was there before the rule pass as long
//! as it is not changed, and the rest of its object can be changed and lose its finalizer. A field that may be unset is
//! compared one level up, since a rule on the field itself is not asked when the field comes or goes.

use kube_core::Rule;

const REPLACE: &str = "is immutable: change the HelmChartProxy, which replaces this object";

pub(crate) fn absolute_url() -> Rule {
    Rule::new(
        "isURL(self) && url(self).getHostname() != '' \
         && (url(self).getScheme() == 'https' || self.startsWith('oci://'))",
    )
    .message("must begin with https:// or oci:// and name a host, for example https://charts.example.com")
}

pub(crate) fn go_duration() -> Rule {
    Rule::new("self.matches('^[+]?(0|([0-9.]+([nuµμm]?s|m|h))+)$')")
        .message("must be a duration such as 90s, 10m or 1h30m")
}

pub(super) fn fixed() -> Rule {
    Rule::new("self == oldSelf").message(REPLACE)
}

pub(super) fn fixed_cluster() -> Rule {
    Rule::new(format!("{} || {}", unset("oldSelf.name"), kept("name"))).message(
        "the name is immutable: delete this object, its HelmChartProxy makes one for each selected Cluster",
    )
}

/// A generated name is written after the object was made.
pub(super) fn fixed_release_name() -> Rule {
    Rule::new(format!("{} || {}", unset("oldSelf.releaseName"), kept("releaseName")))
        .message(REPLACE)
        .field_path(".releaseName")
}

/// `namespace` is a reserved word of CEL, hence the underscores.
pub(super) fn fixed_namespace() -> Rule {
    let default = |of: &str| format!("(!has({of}.__namespace__) || {of}.__namespace__ in ['', 'default'])");
    Rule::new(format!("{} || {} && {}", kept("__namespace__"), default("self"), default("oldSelf")))
        .message(REPLACE)
        .field_path(".namespace")
}

pub(super) fn fixed_strategy() -> Rule {
    let both_unset = format!("{} && {}", unset("self.reconcileStrategy"), unset("oldSelf.reconcileStrategy"));
    Rule::new(format!("{} || {both_unset}", kept("reconcileStrategy")))
        .message("is immutable: delete the object and create it with the other strategy")
        .field_path(".reconcileStrategy")
}

// Written out in full: the API server cannot tell the cost of optional values, and refuses the rule.
fn unset(field: &str) -> String {
    format!("(!has({field}) || {field} == '')")
}

fn kept(field: &str) -> String {
    format!("(has(self.{field}) && has(oldSelf.{field}) && self.{field} == oldSelf.{field})")
}

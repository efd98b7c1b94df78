//! CEL validation rules.
//!
//! A rule is attached to the field that it validates. Then the API server accepts an invalid value that is older than the
//! rule as long as it does not change (validation ratcheting), so the rest of the object, finalizers included, can still be
//! changed. An optional field is compared in its parent, because the API server does not evaluate a rule on a field that is
//! added or removed.

use kube_core::Rule;

const IMMUTABLE: &str = "is immutable: change the HelmChartProxy, which replaces this object";

pub(crate) fn absolute_url() -> Rule {
    Rule::new(
        "isURL(self) && url(self).getHostname() != '' \
         && (url(self).getScheme() == 'https' || self.startsWith('oci://'))",
    )
    .message("must begin with https:// or oci:// and name a host, for example https://charts.example.com")
}

/// Matches a URL with a user name or password.
pub(crate) const LOGIN: &str = "^[A-Za-z]+://[^/]*@";

/// A user name or password is refused where it is new. Objects that already have one keep working, because the API server
/// accepts an old value that does not change.
pub(crate) fn no_login() -> Rule {
    Rule::new(format!("!self.matches('{LOGIN}')")).message(
        "must not contain a user name or password: write them to a Secret, and refer to it in credentials",
    )
}

pub(crate) fn go_duration() -> Rule {
    Rule::new("self.matches('^[+]?(0|([0-9.]+([nuµμm]?s|m|h))+)$')")
        .message("must be a duration such as 90s, 10m or 1h30m")
}

pub(super) fn immutable() -> Rule {
    Rule::new("self == oldSelf").message(IMMUTABLE)
}

pub(super) fn immutable_cluster() -> Rule {
    Rule::new(format!("{} || {}", unset("oldSelf.name"), unchanged("name"))).message(
        "the name is immutable: delete this object, its HelmChartProxy makes one for each selected Cluster",
    )
}

/// Allows to set the name once: a generated name is written after the object is created.
pub(super) fn immutable_release_name() -> Rule {
    Rule::new(format!("{} || {}", unset("oldSelf.releaseName"), unchanged("releaseName")))
        .message(IMMUTABLE)
        .field_path(".releaseName")
}

/// `namespace` is a reserved word of CEL, hence the underscores.
pub(super) fn immutable_namespace() -> Rule {
    let default = |of: &str| format!("(!has({of}.__namespace__) || {of}.__namespace__ in ['', 'default'])");
    Rule::new(format!("{} || {} && {}", unchanged("__namespace__"), default("self"), default("oldSelf")))
        .message(IMMUTABLE)
        .field_path(".namespace")
}

pub(super) fn immutable_strategy() -> Rule {
    let both_unset = format!("{} && {}", unset("self.reconcileStrategy"), unset("oldSelf.reconcileStrategy"));
    Rule::new(format!("{} || {both_unset}", unchanged("reconcileStrategy")))
        .message("is immutable: delete the object and create it with the other strategy")
        .field_path(".reconcileStrategy")
}

// Without CEL optionals: the API server cannot estimate their cost and rejects the rule.
fn unset(field: &str) -> String {
    format!("(!has({field}) || {field} == '')")
}

fn unchanged(field: &str) -> String {
    format!("(has(self.{field}) && has(oldSelf.{field}) && self.{field} == oldSelf.{field})")
}

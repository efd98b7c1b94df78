//! CEL validation rules.

use kube_core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::addons::rules::LOGIN;

/// One version, complete or partial: `1`, `v1.34`, `1.34.2-rc.1+build`.
const VERSION: &str = r"v?\d+([.]\d+){0,2}(-[\w.-]+)?([+][\w.-]+)?";
/// One version of a range, where `x` and `*` match any number. Its length adds to the cost of the rule, which the API server
/// evaluates for every dependency of every version.
const PATTERN: &str =
    r"([<>]=?|=[<>]?|!=|~>?|\^)? *v?(\d+|[xX*])([.](\d+|[xX*])){0,2}(-[\w.-]+)?([+][\w.-]+)?";

pub(super) fn version() -> Rule {
    Rule::new(format!("self.matches(r'^{VERSION}$')")).message("must be a version such as 1.14.2")
}

pub(super) fn range() -> Rule {
    Rule::new(format!("self.matches(r'^ *{PATTERN}(( *, *| *[|][|] *| +- +| +){PATTERN})* *$')")).message(
        "must be a range of versions such as 1.14.2, ^1.14, ~1.14, 1.14.x, '>=1.30 <1.35', '1.30 - 1.34' or '1.x || 3.x'",
    )
}

pub(super) fn logo() -> Rule {
    Rule::new(
        "self.startsWith('https://') && isURL(self) && url(self).getHostname() != '' \
         || self.matches('^data:image/(png|jpeg|gif|webp|svg[+]xml);base64,[A-Za-z0-9+/]+=*$')",
    )
    .message(
        "must be an https:// address, or an image as data:image/png;base64,… (png, jpeg, gif, webp, svg+xml)",
    )
}

pub(super) fn https_url() -> Rule {
    Rule::new("isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''")
        .message("must begin with https:// and name a host")
}

pub(super) fn no_login() -> Rule {
    Rule::new(format!("!self.matches('{LOGIN}')"))
        .message("must not contain a user name or password: write them to the Secret of spec.credentials")
}

const LOGIN_IN_REPOSITORY: &str = "must not contain a user name or password: write them to a Secret, and refer to a \
                                   catalog whose credentials name it";

pub(super) fn no_login_outside_of_catalogs() -> Rule {
    Rule::new(format!("!self.matches('{LOGIN}')")).message(LOGIN_IN_REPOSITORY)
}

/// For packages that users write. AddonReleases have no such rule: they are made of objects that may be older than the rule.
pub(super) fn package_without_login() -> Rule {
    Rule::new(format!("!has(self.repository) || !self.repository.matches('{LOGIN}')"))
        .message(LOGIN_IN_REPOSITORY)
        .field_path(".repository")
}

pub(super) fn git_url() -> Rule {
    Rule::new(
        "self.startsWith('ssh://') \
         ? self.matches(r'^ssh://[\\w.-]+(:[^/@]*)?@([\\w.-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?/[^?#]+$') \
         : isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",
    )
    .message(
        "must begin with https:// or ssh://user@ and name a host and a path; write git@host:path as ssh://git@host/path",
    )
}

/// Allows only the user of an ssh URL.
pub(super) fn git_login() -> Rule {
    Rule::new(format!(
        "self.startsWith('ssh://') ? !self.matches('^ssh://[^/]*:[^/]*@') : !self.matches('{LOGIN}')"
    ))
    .message("must not contain a user name or password: write them to the Secret of spec.credentials")
}

/// An ssh server is verified by `known_hosts`, which is in the Secret.
pub(super) fn ssh_requires_credentials() -> Rule {
    Rule::new(
        "!has(self.git) || !self.git.url.startsWith('ssh://') \
         || has(self.credentials) && !has(self.certificateAuthority)",
    )
    .message(
        "an ssh:// URL requires credentials, a Secret with identity and known_hosts, and has no certificateAuthority",
    )
}

/// The characters that Git allows in the name of a branch or tag.
pub(super) fn git_ref_name() -> Rule {
    Rule::new(r"self.matches(r'^[^\s~^:?*\[\\]+$') && !self.contains('..') && !self.startsWith('refs/')")
        .message(
            "must be the name of a branch or tag without refs/heads/ or refs/tags/, such as main or v1.2.0",
        )
}

pub(super) fn commit_id() -> Rule {
    Rule::new("self.matches('^[0-9a-f]{40}$')")
        .message("must be the full id of a commit: 40 hexadecimal digits")
}

pub(super) fn oci_url() -> Rule {
    Rule::new("self.matches('^oci://[^/@]+(/[a-z0-9._-]+)+$')").message(
        "must name a registry and a repository, without a tag, such as oci://registry.example/platform/fleet",
    )
}

pub(super) fn bucket_name() -> Rule {
    Rule::new("self.matches('^[a-z0-9][a-z0-9._-]*$')")
        .message("must be the name of a bucket: lower-case letters, digits, '.', '_' and '-'")
}

pub(super) fn oci_tag() -> Rule {
    Rule::new(r"self.matches(r'^\w[\w.-]*$')").message("must be a tag such as v1.2.0")
}

pub(super) fn sha256_digest() -> Rule {
    Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("must be a digest: sha256: and 64 hexadecimal digits")
}

/// Requires exactly one of `fields`.
pub(crate) fn one_of(fields: &[&str]) -> Rule {
    let set: Vec<_> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    let names = fields.join(", ");
    Rule::new(format!("[{}].exists_one(is_set, is_set)", set.join(", ")))
        .message(&*format!("exactly one of {names} must be set"))
}

/// Requires `chart` for a package of a repository or catalog, and allows `path` only for one of a Source.
pub(super) fn chart_or_path() -> Rule {
    Rule::new("has(self.sourceRef) ? !has(self.chart) : has(self.chart) && !has(self.path)")
        .message("chart must be set for a repository or catalog, and path only for a sourceRef")
}

/// Access to a folder of a Source is configured in the Source.
pub(super) fn catalog_access_requires_url() -> Rule {
    Rule::new(
        "!has(self.source) || !has(self.credentials) && !has(self.certificateAuthority) && !has(self.verify)",
    )
    .message("credentials, certificateAuthority and verify are for url: with source, set them in the Source")
}

/// Requires the pinned package of a folder of a Source.
pub(super) fn pinned_with_source_ref() -> Rule {
    Rule::new("has(self.source.sourceRef) == has(self.pinned)")
        .message("pinned must be set exactly if source.sourceRef is set")
}

pub(super) fn keys_or_identities() -> Rule {
    Rule::new("has(self.keys) || has(self.identities) && size(self.identities) > 0 && has(self.trustedRoot)")
        .message("keys, or identities and trustedRoot, must be set")
}

pub(super) fn versions_or_follow_kubernetes() -> Rule {
    Rule::new("has(self.followKubernetes) || has(self.versions) && size(self.versions) > 0")
        .message("versions must list at least one version, unless followKubernetes is set")
}

pub(super) fn version_requires_extension() -> Rule {
    Rule::new("!has(self.source) || !has(self.version) && !has(self.channel)")
        .message("version and channel are for an extension: with source, write source.version")
}

pub(super) fn objects_require_service_account() -> Rule {
    Rule::new(
        "!has(self.parametersFrom) || has(self.serviceAccountName) \
         || self.parametersFrom.all(from, !has(from.object))",
    )
    .message("serviceAccountName must be set: other objects are read with the rights of that account")
}

/// The beginning of a URL names a scheme and a host, so that it cannot match another host.
pub(super) fn url_prefixes() -> Rule {
    Rule::new("self.all(prefix, prefix.matches('^(https|oci|ssh)://[^/@?#%]+(/[^@?#%]*)?$'))").message(
        "must be beginnings of URLs with a host, such as https://charts.example/team, without user names",
    )
}

/// Names of namespaces, which may end in `*`.
pub(super) fn namespace_patterns() -> Rule {
    Rule::new("self.all(name, name.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?|([a-z0-9][-a-z0-9]*)?[*])$'))")
        .message("must be names of namespaces; only the last character may be *")
}

pub(super) fn names_or_selector() -> Rule {
    Rule::new("has(self.names) && self.names.size() > 0 || has(self.selector)")
        .message("names or selector must be set")
}

/// Objects have no form of their own that parameters could have.
pub(super) fn objects_require_template() -> Rule {
    Rule::new("!has(self.objects) || has(self.template)")
        .message("template must be set with objects: it says which parameters they become")
}

pub(super) fn values_or_values_secret() -> Rule {
    Rule::new("!has(self.values) || !has(self.valuesSecret)")
        .message("only one of values, valuesSecret may be set")
}

pub(super) fn immutable() -> Rule {
    Rule::new("self == oldSelf")
        .message("is immutable: change the ExtensionInstance, which replaces this object")
}

pub(super) fn relative_path() -> Rule {
    Rule::new("!self.startsWith('/') && self.split('/').all(part, part != '..')")
        .message("must be relative to the root of the Source and must not contain '..'")
}

/// Returns the schema of a label selector that can be evaluated. That of Kubernetes accepts any operator.
pub(super) fn checked_selector(_: &mut SchemaGenerator) -> Schema {
    let values = "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0 \
                  : !has(self.values) || self.values.size() == 0";
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that a namespace must have.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "description": "Requirements that the labels of a namespace must meet.",
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The key of the label.",
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 317,
                        },
                        "operator": {
                            "description": "How the label is compared with the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values of the label, for In and NotIn.",
                            "type": "array",
                            "maxItems": 256,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": values,
                        "message": "values must be set for the operators In and NotIn, and only for them",
                    }],
                },
            },
        },
    })
}

/// Returns the schema of an arbitrary JSON object.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

//! Secrets with the values of releases, for values that contain data of Secrets.

use chandler_api::{
    addons::HelmReleaseProxy,
    extensions::{VALUES_SECRET_ANNOTATION, ValuesSecret},
};
use kube_core::ResourceExt as _;

use super::{ReleaseKind, SecretKey, Values, values_owner::is_values_secret_name};
use crate::{
    failure::Category,
    placement::{RENDERED_FROM_ANNOTATION, VALUES_FROM},
    policy::PolicyState,
};

/// Where the values of a release are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredValues {
    /// In the release object, as YAML.
    Text(String),
    Secret(ValuesSecret),
}

impl StoredValues {
    /// Returns the values in the release object and the Secret, one of which is `None`.
    pub fn unzip(self) -> (Option<String>, Option<ValuesSecret>) {
        match self {
            Self::Text(text) => (Some(text).filter(|text| !text.is_empty()), None),
            Self::Secret(secret) => (None, Some(secret)),
        }
    }
}

/// Returns whether the Secret with the values of a release has to be written.
///
/// It may have been deleted or changed since it was written, so it is written again before the package of the release
/// changes, and if the release could not use the values.
pub fn must_write_values<R: ReleaseKind>(
    existing: Option<&R>,
    secret: &ValuesSecret,
    has_same_package: bool,
) -> bool {
    let Some(existing) = existing else { return true };
    let failure = existing.status().and_then(|status| status.last_failure.as_ref());
    let has_failed = failure.is_some_and(|failure| {
        matches!(Category::parse(&failure.category), Category::InvalidValues | Category::Timeout)
    });
    existing.values_secret().as_ref() != Some(secret) || !has_same_package || has_failed
}

/// Returns the Secret with the values of the existing release object, if Chandler has written it and `desired` does not refer to it.
pub fn unused_values_secret<R: ReleaseKind>(existing: &R, desired: &R) -> Option<String> {
    let name = existing.values_secret()?.name;
    let is_own = is_values_secret_name::<R>(&name, &existing.name_any());
    (is_own && desired.values_secret().is_none()).then_some(name)
}

/// Returns whether the first installation of a release has to wait, because its object does not have the values of its policy yet.
pub fn awaits_policy_values<R: ReleaseKind>(policy: &PolicyState, release: &R) -> bool {
    let PolicyState::Known { policy, .. } = policy else { return false };
    !policy.values_from.is_empty() && !has_values_of_policy(release) && !release.is_marked_installed(None)
}

/// Returns whether a policy has a part in the values of a release object.
pub fn has_values_of_policy<R: ReleaseKind>(release: &R) -> bool {
    release.annotations().get(RENDERED_FROM_ANNOTATION).is_some_and(|from| from == VALUES_FROM)
}

/// Lets a HelmReleaseProxy refer to the Secret with its values. Its spec has no field for it and names the Secret in a comment, so
/// that other values change the spec.
pub fn refer_to_values(release: &mut HelmReleaseProxy, secret: &ValuesSecret) {
    let reference = format!("{}@{}", secret.name, secret.digest);
    release.spec.values = comment(&reference);
    release.annotations_mut().insert(VALUES_SECRET_ANNOTATION.to_owned(), reference);
}

/// Returns the Secret with the values of a HelmReleaseProxy, if its annotation and its spec name the same one.
pub(super) fn referred_values(release: &HelmReleaseProxy) -> Option<ValuesSecret> {
    let secret = commented_values(&release.spec.values)?;
    is_confirmed(release, &secret).then_some(secret)
}

/// Returns the values of a HelmReleaseProxy in this namespace.
///
/// The comment in its spec decides whether they are in a Secret: an annotation without it is out of date. The comment alone
/// can come from a template, or from an object that has lost its annotations, so it does not let Chandler read a Secret. It is not
/// taken for values either, because the release would be upgraded to empty ones.
pub(super) fn values_of(release: &HelmReleaseProxy, namespace: &str) -> Values {
    match commented_values(&release.spec.values) {
        None => Values::Text(release.spec.values.clone()),
        Some(secret) if !is_confirmed(release, &secret) => Values::Unconfirmed(secret.digest),
        Some(ValuesSecret { name, digest }) => {
            Values::Secret(SecretKey { namespace: namespace.to_owned(), name }, digest)
        }
    }
}

fn is_confirmed(release: &HelmReleaseProxy, secret: &ValuesSecret) -> bool {
    let reference = release.annotations().get(VALUES_SECRET_ANNOTATION);
    reference.and_then(|reference| reference.split_once('@')) == Some((&secret.name, &secret.digest))
}

const COMMENT: &str = "# The values are in Secret ";

fn comment(reference: &str) -> String {
    format!("{COMMENT}{reference}.\n")
}

/// Returns the Secret that a comment names, if the values are nothing but that comment.
fn commented_values(values: &str) -> Option<ValuesSecret> {
    let reference = values.trim().strip_prefix(COMMENT)?.strip_suffix('.')?;
    let (name, digest) = reference.split_once('@')?;
    let is_one_line = !reference.contains('\n');
    is_one_line.then(|| ValuesSecret { name: name.to_owned(), digest: digest.to_owned() })
}

#[cfg(test)]
mod tests {
    use chandler_api::{addons::HelmReleaseProxySpec, extensions::ValuesFrom};
    use serde_json::json;

    use super::*;
    use crate::policy::ReleasePolicy;

    fn secret(digest: &str) -> ValuesSecret {
        ValuesSecret { name: "net-blue-values".to_owned(), digest: digest.to_owned() }
    }

    fn release() -> HelmReleaseProxy {
        let spec: HelmReleaseProxySpec = serde_json::from_value(json!({
            "clusterRef": {"name": "blue"}, "chartName": "net", "repoURL": "https://charts.example", "releaseName": "net",
        }))
        .unwrap();
        let mut release = HelmReleaseProxy::new("net-blue", spec);
        release.metadata.namespace = Some("fleet".to_owned());
        release
    }

    #[test]
    fn a_release_object_refers_to_its_values() {
        let mut object = release();
        assert_eq!((referred_values(&object), object.values_secret()), (None, None));
        refer_to_values(&mut object, &secret("sha256:01"));
        assert_eq!(object.values_secret(), Some(secret("sha256:01")));
        let key = SecretKey { namespace: "fleet".to_owned(), name: "net-blue-values".to_owned() };
        assert_eq!(object.desired().unwrap().values, Values::Secret(key, "sha256:01".to_owned()));
        let mut other = object.clone();
        refer_to_values(&mut other, &secret("sha256:02"));
        assert!(!object.has_same_spec(&other), "other values change the spec");
        object.spec.values = "a: 1\n".to_owned();
        assert_eq!(object.desired().unwrap().values, Values::Text("a: 1\n".to_owned()), "an old annotation");
    }

    #[test]
    fn a_comment_alone_is_neither_values_nor_a_reference() {
        let mut object = release();
        refer_to_values(&mut object, &secret("sha256:01"));
        let comment = object.spec.values.clone();
        let unconfirmed = Values::Unconfirmed("sha256:01".to_owned());
        let confirmed = object.desired().unwrap().values;
        let text = |text: &str| Values::Text(text.to_owned());
        let continued = format!("{comment}a: b.\n");
        let rows = [
            ("both", Some("net-blue-values@sha256:01"), &*comment, confirmed.clone()),
            ("without the line break", Some("net-blue-values@sha256:01"), comment.trim(), confirmed),
            ("a lost annotation", None, &*comment, unconfirmed.clone()),
            ("another digest", Some("net-blue-values@sha256:02"), &*comment, unconfirmed.clone()),
            ("another Secret", Some("other@sha256:01"), &*comment, unconfirmed.clone()),
            ("an invalid annotation", Some("net-blue-values"), &*comment, unconfirmed),
            ("values after the comment", None, &*continued, text(&continued)),
            (
                "another comment",
                None,
                "# The values are in Secret a.\n",
                text("# The values are in Secret a.\n"),
            ),
            ("no values", None, "", text("")),
        ];
        for (case, annotation, values, expected) in rows {
            object.annotations_mut().remove(VALUES_SECRET_ANNOTATION);
            let annotation = annotation.map(|text| (VALUES_SECRET_ANNOTATION.to_owned(), text.to_owned()));
            object.annotations_mut().extend(annotation);
            values.clone_into(&mut object.spec.values);
            let is_secret = matches!(expected, Values::Secret(..));
            assert_eq!(object.desired().unwrap().values, expected, "{case}");
            assert_eq!(object.values_secret().is_some(), is_secret, "{case}");
        }
    }

    #[test]
    fn only_secrets_that_chandler_has_written_are_unused() {
        let referring = |name: &str| {
            let mut release = release();
            refer_to_values(&mut release, &ValuesSecret { name: name.to_owned(), digest: "one".to_owned() });
            release
        };
        let (own, other) = (referring("net-blue-helm-values"), referring("login"));
        let unused = unused_values_secret;
        assert_eq!(unused(&own, &release()).as_deref(), Some("net-blue-helm-values"));
        for (existing, desired) in
            [(&own, &own), (&release(), &own), (&release(), &release()), (&other, &release())]
        {
            assert_eq!(unused(existing, desired), None);
        }
    }

    #[test]
    fn a_values_secret_that_was_lost_is_written_again() {
        let existing = |category: Option<&str>| {
            let mut release = release();
            refer_to_values(&mut release, &secret("one"));
            let failure = category.map(|category| {
                json!({"category": category, "message": "", "input": "", "count": 1, "at": "2026-01-01T00:00:00Z"})
            });
            release.status = serde_json::from_value(json!({"lastFailure": failure})).unwrap();
            release
        };
        let same = |category| must_write_values(Some(&existing(category)), &secret("one"), true);
        assert!(!same(None), "a release that has its values costs no request");
        assert!(same(Some("InvalidValues")), "the Secret does not exist");
        assert!(same(Some("Timeout")), "the Secret has other values");
        assert!(!same(Some("NotReady")));
        assert!(must_write_values(None::<&HelmReleaseProxy>, &secret("one"), true), "a new release");
        assert!(must_write_values(Some(&existing(None)), &secret("two"), true), "other values");
        assert!(must_write_values(Some(&existing(None)), &secret("one"), false), "another package");
    }

    #[test]
    fn a_first_installation_waits_for_the_values_of_its_policy() {
        let known = |values_from: Vec<ValuesFrom>| PolicyState::Known {
            policy: ReleasePolicy { values_from, ..ReleasePolicy::default() }.into(),
            conflict: None,
        };
        let with_values = known(vec![ValuesFrom::default()]);
        let mut composed = release();
        composed.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), VALUES_FROM.to_owned());
        let mut installed = release();
        let annotation = HelmReleaseProxy::INSTALLED_ANNOTATION.to_owned();
        installed.annotations_mut().insert(annotation, "true".to_owned());
        for (policy, release, expected) in [
            (&with_values, &release(), true),
            (&with_values, &composed, false),
            (&with_values, &installed, false),
            (&known(Vec::new()), &release(), false),
            (&PolicyState::None, &release(), false),
        ] {
            assert_eq!(awaits_policy_values(policy, release), expected, "{policy:?}");
        }
    }
}

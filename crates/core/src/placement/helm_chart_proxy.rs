//! [`PlacementKind`] for HelmChartProxy.

use chandler_api::{
    addons::{
        CHART_PROXY_FINALIZER, CHART_PROXY_NAME_LABEL, Credentials, DEFAULT_CREDENTIALS_KEY,
        DEFAULT_NAMESPACE, HelmChartProxy, HelmReleaseProxy, HelmReleaseProxySpec,
        RELEASE_NAME_GENERATED_ANNOTATION, RELEASE_PROXY_FINALIZER, SecretReference, TlsConfig, or_default,
    },
    capi::{CLUSTER_GROUP, CLUSTER_NAME_LABEL, CLUSTER_VERSION, WATCH_FILTER_LABEL},
    extensions::{KUBERNETES_VERSIONS_ANNOTATION, PlacementKindName, Reference, WORKLOAD_ACCOUNT_ANNOTATION},
    reasons::PlacementVocabulary,
    status::PlacementStatus,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::{Resource as _, ResourceExt};
use serde_json::Value;

use super::{
    KubernetesVersions, KubernetesVersionsError, PlacementKind, RENDERED_FROM_ANNOTATION, Selection,
    SelectionError, kind::spec_without,
};
use crate::{
    digest::Digest,
    identity::ClusterKey,
    naming,
    policy::{PolicyOverrides, ValuesOwner, policy_of},
    release::{StoredValues, Strategy, helm_strategy, refer_to_values},
    tenancy::Recorded,
};

impl PlacementKind for HelmChartProxy {
    type Release = HelmReleaseProxy;
    type Status = PlacementStatus;
    const KIND_NAME: PlacementKindName = PlacementKindName::HelmChartProxy;
    const FINALIZER: &'static str = CHART_PROXY_FINALIZER;
    const OWNER_LABEL: &'static str = CHART_PROXY_NAME_LABEL;
    const VOCABULARY: PlacementVocabulary = PlacementVocabulary::HelmChartProxy;

    fn selection(&self) -> Result<Selection, SelectionError> {
        Selection::labels(&self.spec.cluster_selector, "spec.clusterSelector")
    }

    fn strategy(&self) -> Strategy {
        helm_strategy(self.spec.reconcile_strategy)
    }

    fn policy(&self) -> Option<Reference> {
        policy_of(Self::KIND_NAME, self.annotations(), None)
    }

    fn policy_overrides(&self) -> PolicyOverrides {
        let options = &self.spec.options;
        PolicyOverrides {
            atomic: options.atomic,
            skip_crds: options.skip_crds,
            force: options.upgrade.force,
            values: ValuesOwner::Policy,
        }
    }

    fn kubernetes_versions(&self) -> Option<Result<KubernetesVersions, KubernetesVersionsError>> {
        KubernetesVersions::parse(self.annotations(), &self.spec.version)
    }

    fn shared_spec(&self) -> Value {
        let mut spec = spec_without(&self.spec, &["clusterSelector"]);
        if let Some(versions) = self.annotations().get(KUBERNETES_VERSIONS_ANNOTATION) {
            spec["kubernetesVersions"] = versions.as_str().into();
        }
        spec
    }

    fn follows_newest_version(&self) -> bool {
        self.spec.version.is_empty() && self.kubernetes_versions().is_none()
    }

    fn same_request(existing: &HelmReleaseProxy, desired: &HelmReleaseProxy) -> bool {
        existing.spec == desired.spec
            && contains(existing.labels(), desired.labels())
            && contains(existing.annotations(), desired.annotations())
    }

    fn same_identity(existing: &HelmReleaseProxy, desired: &HelmReleaseProxy) -> bool {
        let identity = |object: &HelmReleaseProxy| {
            let spec = object.spec.clone();
            (spec.repo_url, spec.chart_name, or_default(&spec.release_namespace, DEFAULT_NAMESPACE))
        };
        // An object that has no release name yet has no release yet either.
        let unnamed = existing.spec.release_name.is_empty();
        identity(existing) == identity(desired)
            && (unnamed || existing.spec.release_name == desired.spec.release_name)
    }

    fn cluster_of(release: &HelmReleaseProxy) -> Option<ClusterKey> {
        Some(ClusterKey::new(release.namespace()?, release.spec.cluster_ref.name.clone()?))
    }

    fn status(&self) -> Option<&PlacementStatus> {
        self.status.as_ref()
    }
}

/// Returns the release object of a HelmChartProxy for a cluster. The name of the `existing` object is kept.
pub fn release_object(
    chart: &HelmChartProxy,
    cluster: &ClusterKey,
    values: String,
    existing: Option<&HelmReleaseProxy>,
) -> HelmReleaseProxy {
    let placement = chart.name_any();
    let name =
        existing.map_or_else(|| naming::release_object(&placement, &cluster.name), ResourceExt::name_any);
    let mut object = HelmReleaseProxy::new(&name, release_spec(chart, cluster, values, existing));
    object.metadata.namespace = chart.namespace();
    object.metadata.finalizers = Some(vec![RELEASE_PROXY_FINALIZER.to_owned()]);
    object.metadata.owner_references = chart.controller_owner_ref(&()).map(|owner| vec![owner]);
    object.labels_mut().extend([
        (CLUSTER_NAME_LABEL.to_owned(), naming::label_value(&cluster.name)),
        (CHART_PROXY_NAME_LABEL.to_owned(), naming::label_value(&placement)),
    ]);
    if let Some(filter) = chart.labels().get(WATCH_FILTER_LABEL) {
        object.labels_mut().insert(WATCH_FILTER_LABEL.to_owned(), filter.clone());
    }
    if chart.spec.release_name.is_empty() {
        object.annotations_mut().insert(RELEASE_NAME_GENERATED_ANNOTATION.to_owned(), "true".to_owned());
    }
    let account = chart.annotations().get(WORKLOAD_ACCOUNT_ANNOTATION).cloned();
    Recorded { account, ..Recorded::default() }.write(&mut object, existing);
    object
}

/// Returns the release object of a HelmChartProxy for a cluster, with values that were rendered from the input with this
/// digest.
///
/// If `existing` has the same values, it keeps its digest: an input that changes without an effect on the values causes no
/// write.
pub fn rendered_release_object(
    chart: &HelmChartProxy,
    cluster: &ClusterKey,
    values: String,
    input: &Digest,
    existing: Option<&HelmReleaseProxy>,
) -> HelmReleaseProxy {
    let same = existing.filter(|existing| existing.spec.values == values);
    let known = same.and_then(|existing| existing.annotations().get(RENDERED_FROM_ANNOTATION).cloned());
    let mut object = release_object(chart, cluster, values, existing);
    let input = known.unwrap_or_else(|| input.to_string());
    object.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), input);
    object
}

/// Value of [`RENDERED_FROM_ANNOTATION`] if more than the template determines the values, so that they are always composed again.
pub const VALUES_FROM: &str = "values-from";

/// Returns the release object of a HelmChartProxy for a cluster, with values that a policy has a part in.
pub fn composed_release_object(
    chart: &HelmChartProxy,
    cluster: &ClusterKey,
    values: StoredValues,
    existing: Option<&HelmReleaseProxy>,
) -> HelmReleaseProxy {
    let mut object = release_object(chart, cluster, String::new(), existing);
    object.annotations_mut().insert(RENDERED_FROM_ANNOTATION.to_owned(), VALUES_FROM.to_owned());
    match values {
        StoredValues::Text(values) => object.spec.values = values,
        StoredValues::Secret(secret) => refer_to_values(&mut object, &secret),
    }
    object
}

/// Returns whether a release object has the package of its placement. If the placement does not fix the version, that of the
/// release object may be any.
pub fn has_package_of(chart: &HelmChartProxy, release: &HelmReleaseProxy) -> bool {
    let (spec, other) = (&chart.spec, &release.spec);
    let is_fixed = !spec.version.is_empty() && chart.kubernetes_versions().is_none();
    (&spec.repo_url, &spec.chart_name) == (&other.repo_url, &other.chart_name)
        && (!is_fixed || spec.version == other.version)
}

fn release_spec(
    placement: &HelmChartProxy,
    cluster: &ClusterKey,
    values: String,
    existing: Option<&HelmReleaseProxy>,
) -> HelmReleaseProxySpec {
    let spec = &placement.spec;
    let release_name = if spec.release_name.is_empty() {
        existing
            .filter(|existing| existing.annotations().contains_key(RELEASE_NAME_GENERATED_ANNOTATION))
            .map(|existing| existing.spec.release_name.clone())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| {
                naming::generated_release(&spec.chart_name, &placement.name_any(), &cluster.name)
            })
    } else {
        spec.release_name.clone()
    };
    HelmReleaseProxySpec {
        cluster_ref: ObjectReference {
            api_version: Some(format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}")),
            kind: Some("Cluster".to_owned()),
            namespace: Some(cluster.namespace.clone()),
            name: Some(cluster.name.clone()),
            ..ObjectReference::default()
        },
        chart_name: spec.chart_name.clone(),
        repo_url: spec.repo_url.clone(),
        release_name,
        release_namespace: or_default(&spec.release_namespace, DEFAULT_NAMESPACE),
        version: spec.version.clone(),
        values,
        reconcile_strategy: spec.reconcile_strategy,
        options: spec.options.clone(),
        credentials: spec.credentials.as_ref().map(|credentials| Credentials {
            secret: with_namespace(&credentials.secret, placement),
            key: or_default(&credentials.key, DEFAULT_CREDENTIALS_KEY),
        }),
        tls_config: spec.tls_config.as_ref().map(|tls| TlsConfig {
            ca_secret: tls.ca_secret.as_ref().map(|secret| with_namespace(secret, placement)),
            ..tls.clone()
        }),
    }
}

/// Sets the namespace of a Secret reference explicitly, as CAAPH does, so that existing release objects need no change.
fn with_namespace(secret: &SecretReference, placement: &HelmChartProxy) -> SecretReference {
    let own = placement.namespace().unwrap_or_default();
    let namespace = or_default(secret.namespace.as_deref().unwrap_or_default(), &own);
    SecretReference { name: secret.name.clone(), namespace: Some(namespace) }
}

pub(super) fn contains(
    all: &std::collections::BTreeMap<String, String>,
    some: &std::collections::BTreeMap<String, String>,
) -> bool {
    some.iter().all(|(key, value)| all.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use chandler_api::extensions::{POLICY_ANNOTATION, Scope};

    use super::*;

    #[test]
    fn an_annotation_names_the_policy() {
        let mut chart: HelmChartProxy = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "hello", "namespace": "fleet"},
            "spec": {
                "clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example",
                "options": {"atomic": true, "upgrade": {"force": true}},
            },
        }))
        .unwrap();
        assert_eq!(chart.policy(), None);
        chart.annotations_mut().insert(POLICY_ANNOTATION.to_owned(), "platform/safe".to_owned());
        let reference = Reference { name: "safe".to_owned(), scope: Scope::Platform };
        assert_eq!(chart.policy(), Some(reference));
        let overrides = PolicyOverrides { atomic: true, force: true, ..PolicyOverrides::default() };
        assert_eq!(chart.policy_overrides(), overrides);
        assert_eq!(chart.reference().to_string(), "HelmChartProxy hello");
    }

    fn hello() -> HelmChartProxy {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
            "metadata": {"name": "hello", "namespace": "fleet", "uid": "1"},
            "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": "https://charts.example"},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_version_that_the_placement_fixes_is_part_of_its_package() {
        let rows = [
            (None, "", "", true),
            (None, "", "1.2.0", true),
            (None, "1.2.0", "1.2.0", true),
            (None, "1.3.0", "1.2.0", false),
            (Some("1.34=1.2.0"), "", "1.2.0", true),
            (Some("1.34=1.2.0"), "1.3.0", "1.2.0", true),
        ];
        for (annotation, version, existing, expected) in rows {
            let mut chart = hello();
            let mut release = release_object(&chart, &ClusterKey::new("fleet", "blue"), String::new(), None);
            existing.clone_into(&mut release.spec.version);
            version.clone_into(&mut chart.spec.version);
            let annotation =
                annotation.map(|text| (KUBERNETES_VERSIONS_ANNOTATION.to_owned(), text.to_owned()));
            chart.annotations_mut().extend(annotation);
            assert_eq!(has_package_of(&chart, &release), expected, "{version:?} {existing:?}");
            chart.spec.chart_name = "other".to_owned();
            assert!(!has_package_of(&chart, &release), "another chart");
        }
    }

    #[test]
    fn an_input_without_an_effect_on_the_values_causes_no_write() {
        let chart = hello();
        let cluster = ClusterKey::new("fleet", "blue");
        let rendered = |values: &str, input: &str, existing: Option<&HelmReleaseProxy>| {
            rendered_release_object(&chart, &cluster, values.to_owned(), &Digest::of(input), existing)
        };
        let existing = rendered("a: 1", "first", None);
        let same = rendered("a: 1", "second", Some(&existing));
        assert!(HelmChartProxy::same_request(&existing, &same));
        let other = rendered("a: 2", "second", Some(&existing));
        assert!(!HelmChartProxy::same_request(&existing, &other));
        assert_eq!(other.annotations()[RENDERED_FROM_ANNOTATION], Digest::of("second").to_string());
    }
}

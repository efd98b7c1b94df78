//! Builds the CustomResourceDefinition of a kind.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};
use kube_core::CustomResourceExt;

/// Labels of every definition: Cluster API finds the version for its contract by them, `clusterctl move` finds the kind
/// however it was installed, and so does the visualizer.
const LABELS: [(&str, &str); 4] = [
    ("clusterctl.cluster.x-k8s.io", ""),
    ("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    ("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    ("visualizer.cluster.x-k8s.io", ""),
];

/// With this label, `clusterctl move` moves objects of the kind together with the objects that they own, although no
/// Cluster owns them.
pub(crate) const MOVE_HIERARCHY_LABEL: (&str, &str) = ("clusterctl.cluster.x-k8s.io/move-hierarchy", "true");

/// Returns the definition of a kind. The labels are added here because `kube_derive` would also put them on every object.
pub(crate) fn of<K: CustomResourceExt>(labels: &[(&str, &str)]) -> CustomResourceDefinition {
    let mut definition = K::crd();
    let labels = LABELS.iter().chain(labels).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    definition.metadata.labels = Some(labels.collect::<BTreeMap<_, _>>());
    definition.spec.conversion =
        Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None });
    let versions = definition.spec.versions.iter_mut();
    for schema in versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        normalize(schema);
    }
    definition
}

/// Allows only one object of a cluster-scoped kind, by its name.
pub(crate) fn singleton(definition: CustomResourceDefinition, name: &str) -> CustomResourceDefinition {
    let message = format!("the only object of this kind has the name {name}");
    with_rule(definition, &format!("self.metadata.name == '{name}'"), &message)
}

/// Adds a rule for the whole object. It is added here because `kube_derive` cannot attach one without the crate `kube`.
pub(crate) fn with_rule(
    mut definition: CustomResourceDefinition,
    rule: &str,
    message: &str,
) -> CustomResourceDefinition {
    let versions = definition.spec.versions.iter_mut();
    for schema in versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        schema.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            ..ValidationRule::default()
        }]);
    }
    definition
}

/// Removes `nullable` and integer formats that only Rust knows. Unset and null mean the same: the API server drops the null
/// of a field that is not nullable, or replaces it by the default. It warns about unknown formats.
fn normalize(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.format.as_ref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = None;
    }
    schema.properties.iter_mut().flat_map(BTreeMap::values_mut).for_each(normalize);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        normalize(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        normalize(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every spec field of the Cluster API add-on provider for Helm. `+` marks a field of HelmChartProxy only, `-` a field of
    /// HelmReleaseProxy only.
    const SPEC: &str = "chartName repoURL releaseName namespace version reconcileStrategy options credentials tlsConfig
        +clusterSelector +clusterSelector.matchLabels +clusterSelector.matchExpressions
        +clusterSelector.matchExpressions[].key +clusterSelector.matchExpressions[].operator
        +clusterSelector.matchExpressions[].values +valuesTemplate
        -clusterRef -clusterRef.apiVersion -clusterRef.fieldPath -clusterRef.kind -clusterRef.name
        -clusterRef.namespace -clusterRef.resourceVersion -clusterRef.uid -values
        credentials.key credentials.secret credentials.secret.name credentials.secret.namespace
        tlsConfig.caSecret tlsConfig.caSecret.name tlsConfig.caSecret.namespace tlsConfig.insecureSkipTLSVerify
        options.atomic options.dependencyUpdate options.disableHooks options.disableOpenAPIValidation
        options.enableClientCache options.options options.skipCRDs options.takeOwnership options.timeout options.wait
        options.waitForJobs options.install options.install.createNamespace options.install.includeCRDs
        options.upgrade options.upgrade.cleanupOnFail options.upgrade.force options.upgrade.maxHistory
        options.upgrade.recreate options.upgrade.resetThenReuseValues options.upgrade.resetValues
        options.upgrade.reuseValues options.uninstall options.uninstall.description options.uninstall.keepHistory";

    /// The required status fields. Chandler adds its own.
    const STATUS: &str = "conditions observedGeneration +matchingClusters +matchingClusters[].apiVersion
        +matchingClusters[].kind +matchingClusters[].name +matchingClusters[].namespace -revision -status
        conditions[].lastTransitionTime conditions[].message conditions[].observedGeneration conditions[].reason
        conditions[].status conditions[].type";

    fn schema(definition: &CustomResourceDefinition) -> &JSONSchemaProps {
        definition.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
    }

    fn fields(path: &str, schema: &JSONSchemaProps, found: &mut BTreeMap<String, Option<String>>) {
        for (name, field) in schema.properties.iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            fields(&path, field, found);
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
                fields(&format!("{path}[]"), items, found);
            }
            found.insert(path, field.description.clone());
        }
    }

    fn expected(list: &str, parent: &str, other: char) -> Vec<String> {
        let mine = list.split_whitespace().filter(|field| !field.starts_with(other));
        let mut mine: Vec<_> =
            mine.map(|field| format!("{parent}.{}", field.trim_start_matches(['+', '-']))).collect();
        mine.sort();
        mine
    }

    #[test]
    fn specs_have_exactly_the_caaph_fields_and_status_has_them_all() {
        for (definition, other) in crate::crds().iter().zip(['-', '+']) {
            let mut found = BTreeMap::new();
            fields("", schema(definition), &mut found);
            let in_spec: Vec<_> = found.keys().filter(|field| field.starts_with("spec.")).cloned().collect();
            assert_eq!(in_spec, expected(SPEC, "spec", other));
            for field in expected(STATUS, "status", other) {
                assert!(found.contains_key(&field), "{field}");
            }
        }
    }

    /// A server-side apply replaces an atomic field as a whole, even if other managers own parts of it.
    #[test]
    fn references_and_selectors_are_atomic() {
        for (definition, own) in crate::crds().iter().zip(["clusterSelector", "clusterRef"]) {
            for path in [vec![own], vec!["credentials", "secret"], vec!["tlsConfig", "caSecret"]] {
                let spec = &schema(definition).properties.as_ref().unwrap()["spec"];
                let field =
                    path.iter().fold(spec, |schema, name| &schema.properties.as_ref().unwrap()[*name]);
                assert_eq!(field.x_kubernetes_map_type.as_deref(), Some("atomic"), "{path:?}");
            }
        }
    }

    #[test]
    fn every_field_has_a_description() {
        for definition in crate::crds() {
            let mut found = BTreeMap::new();
            fields("", schema(&definition), &mut found);
            let undocumented: Vec<_> = found.iter().filter(|(_, text)| text.is_none()).collect();
            assert_eq!(undocumented, [], "{}", definition.spec.names.kind);
        }
    }

    #[test]
    fn definitions_have_names_labels_and_conversion() {
        let definitions = crate::crds();
        let names = definitions.iter().map(|definition| {
            let names = &definition.spec.names;
            (definition.metadata.name.as_deref().unwrap(), names.short_names.as_deref().unwrap())
        });
        let expected = [
            ("helmchartproxies.addons.cluster.x-k8s.io", "hcp"),
            ("helmreleaseproxies.addons.cluster.x-k8s.io", "hrp"),
            ("referencegrants.chandler.dev", "rgrant"),
            ("extensioncatalogs.chandler.dev", "extcat"),
            ("extensions.chandler.dev", "ext"),
            ("extensioninstances.chandler.dev", "exti"),
            ("addonreleases.chandler.dev", "ar"),
            ("addonpolicies.chandler.dev", "ap"),
            ("addontenancies.chandler.dev", "at"),
            ("sources.chandler.dev", "src"),
            ("syncs.chandler.dev", "sy"),
            ("clustertunnels.chandler.dev", "ctun"),
            ("fleetaddonconfigs.addons.cluster.x-k8s.io", "fac"),
        ];
        assert_eq!(definitions.len(), expected.len());
        for ((name, short), (full_name, shortname)) in names.zip(expected) {
            assert_eq!((name, short), (full_name, &[shortname.to_owned()][..]));
        }
        for (definition, moves) in definitions
            .iter()
            .zip([true, false, true, true, true, true, false, true, false, true, false, false, false])
        {
            let labels = definition.metadata.labels.as_ref().unwrap();
            assert!(LABELS.iter().all(|(key, value)| labels[*key] == *value));
            assert_eq!(labels.contains_key(MOVE_HIERARCHY_LABEL.0), moves);
            assert_eq!(definition.spec.conversion.as_ref().unwrap().strategy, "None");
        }
    }

    #[test]
    fn a_fleet_addon_config_is_cluster_scoped_and_has_one_name() {
        let definitions = crate::crds();
        let definition = definitions.last().unwrap();
        assert_eq!(definition.spec.scope, "Cluster");
        let rules = schema(definition).x_kubernetes_validations.as_ref().unwrap();
        assert_eq!(rules[0].rule, "self.metadata.name == 'fleet-addon-config'");
        let cluster =
            &schema(definition).properties.as_ref().unwrap()["spec"].properties.as_ref().unwrap()["cluster"];
        assert_eq!(cluster.required.as_deref().unwrap(), ["namespaceSelector", "selector"]);
    }

    #[test]
    fn objects_do_not_get_the_labels_of_their_definition() {
        let spec = serde_json::from_value(
            serde_json::json!({"clusterSelector": {}, "chartName": "", "repoURL": ""}),
        );
        assert_eq!(crate::addons::HelmChartProxy::new("hello", spec.unwrap()).metadata.labels, None);
    }
}

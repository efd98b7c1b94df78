use super::*;
use crate::fleet::FleetSettings;

fn settings(fields: &Value) -> ClusterSettings {
    let mut section = json!({
        "selector": {}, "namespaceSelector": {}, "patchResource": true, "setOwnerReferences": true,
        "applyClassGroup": true, "hostNetwork": true,
    });
    section.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let spec = serde_json::from_value(json!({"cluster": section})).unwrap();
    FleetSettings::of(Some(&spec)).unwrap().clusters.unwrap()
}

fn cluster() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": "blue", "namespace": "team", "uid": "u-1", "resourceVersion": "7",
            "labels": {"tier": "one"},
            "annotations": {"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"topology": {"classRef": {"name": "base", "namespace": "classes"}, "version": "v1.34.4"}},
        "status": {"initialization": {"controlPlaneInitialized": true}},
    })
}

fn with(fields: &[(&str, Value)]) -> Value {
    let mut cluster = cluster();
    for (pointer, value) in fields {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        cluster.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    cluster
}

fn wanted(settings: &ClusterSettings, cluster: &Value, existing: Option<&Value>) -> Value {
    let view = ClusterView::of(cluster).unwrap();
    let (control_plane, infrastructure_cluster) = (TemplateObject::None, TemplateObject::None);
    fleet_cluster(
        settings,
        &HandedOver { cluster, view: &view, control_plane, infrastructure_cluster },
        existing,
    )
}

#[test]
fn only_selected_clusters_with_an_initialized_control_plane_are_handed_over() {
    let by_label = json!({"matchLabels": {"tier": "one"}});
    let rows = [
        ("all", json!({}), cluster(), true),
        ("selected", json!({"selector": by_label}), cluster(), true),
        ("not selected", json!({"selector": {"matchLabels": {"tier": "two"}}}), cluster(), false),
        (
            "namespace selected",
            json!({"namespaceSelector": {"matchLabels": {"import": "true"}}}),
            cluster(),
            true,
        ),
        ("namespace not selected", json!({"namespaceSelector": by_label}), cluster(), false),
        (
            "only one of both",
            json!({"selector": by_label, "namespaceSelector": {"matchLabels": {"import": "no"}}}),
            cluster(),
            false,
        ),
        ("not initialized", json!({}), with(&[("/status", json!({}))]), false),
        (
            "deleting",
            json!({}),
            with(&[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]),
            false,
        ),
    ];
    let namespace = BTreeMap::from([("import".to_owned(), "true".to_owned())]);
    for (what, fields, cluster, expected) in rows {
        let view = ClusterView::of(&cluster).unwrap();
        assert_eq!(is_handed_over(&settings(&fields), &cluster, &view, &namespace), expected, "{what}");
    }
}

#[test]
fn labels_annotations_class_and_agent_are_set() {
    let env = json!([{"name": "HTTP_PROXY", "value": "http://proxy"}]);
    let settings = settings(&json!({"agentEnvVars": env, "agentNamespace": "agents"}));
    let object = wanted(&settings, &cluster(), None);
    assert_eq!(
        object["metadata"],
        json!({
            "name": "blue", "namespace": "team",
            "labels": {
                "tier": "one",
                "clusterclass-name.fleet.addons.cluster.x-k8s.io": "base",
                "clusterclass-namespace.fleet.addons.cluster.x-k8s.io": "classes",
            },
            "annotations": {"note": "kept"},
            "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "blue", "uid": "u-1"},
            ],
        })
    );
    let spec = &object["spec"];
    assert_eq!(
        (&spec["kubeConfigSecret"], &spec["agentNamespace"], &spec["hostNetwork"], &spec["agentEnvVars"]),
        (&json!("blue-kubeconfig"), &json!("agents"), &json!(true), &env)
    );
    assert_eq!(spec["agentTolerations"][0]["value"], "true");
}

#[test]
fn tolerations_are_sorted_as_fleet_does_unless_only_their_order_differs() {
    let toleration = |key: &str| json!({"effect": "NoSchedule", "key": key, "operator": "Exists"});
    let settings = settings(&json!({"agentTolerations": [toleration("b"), toleration("a")]}));
    let of = |existing: Option<Value>| {
        let existing = existing.map(|tolerations| json!({"spec": {"agentTolerations": tolerations}}));
        wanted(&settings, &cluster(), existing.as_ref())["spec"]["agentTolerations"].clone()
    };
    let sorted = json!([toleration("a"), toleration("b")]);
    let unsorted = json!([toleration("b"), toleration("a")]);
    for (existing, expected) in [
        (None, &sorted),
        (Some(Value::Null), &sorted),
        (Some(json!([toleration("b")])), &sorted),
        (Some(sorted.clone()), &sorted),
        (Some(unsorted.clone()), &unsorted),
    ] {
        assert_eq!(&of(existing), expected);
    }
}

#[test]
fn optional_fields_are_left_out() {
    let section = json!({"selector": {}, "namespaceSelector": {}});
    let spec = serde_json::from_value(json!({"cluster": section})).unwrap();
    let minimal = FleetSettings::of(Some(&spec)).unwrap().clusters.unwrap();
    let without_class = with(&[("/spec/topology", Value::Null)]);
    let object = wanted(&minimal, &without_class, None);
    for pointer in ["/metadata/ownerReferences", "/spec/hostNetwork", "/spec/agentEnvVars"] {
        assert_eq!(object.pointer(pointer), None, "{pointer}");
    }
    assert_eq!(object["metadata"]["labels"], json!({"tier": "one"}));
}

#[test]
fn a_paused_cluster_does_not_own_its_fleet_cluster() {
    let paused = with(&[("/spec/paused", json!(true))]);
    assert_eq!(wanted(&settings(&json!({})), &paused, None).pointer("/metadata/ownerReferences"), None);
}

#[test]
fn the_client_id_is_kept_or_chosen_once() {
    let id = |cluster: &Value, existing: Option<&Value>| {
        wanted(&settings(&json!({})), cluster, existing)["spec"]["clientID"].as_str().unwrap().to_owned()
    };
    let new = id(&cluster(), None);
    assert_eq!(new.len(), 64);
    assert_eq!(id(&cluster(), Some(&json!({"spec": {"clientID": ""}}))), new, "not set");
    let moved = with(&[("/metadata/uid", json!("u-2"))]);
    assert_ne!(id(&moved, None), new, "not guessable from the name");
    for kept in [new.as_str(), "of-caapf"] {
        assert_eq!(id(&moved, Some(&json!({"spec": {"clientID": kept}}))), kept);
    }
}

#[test]
fn no_cluster_is_imported_twice() {
    let key = ClusterKey::new("team", "blue");
    let fleet = |name: &str, secret: &str| json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"kubeConfigSecret": secret}});
    let (other, own) = (fleet("green", "green-kubeconfig"), fleet("blue", "blue-kubeconfig"));
    let renamed = settings(&json!({"naming": {"prefix": "capi-"}}));
    let rows = [
        (settings(&json!({})), vec![other.clone()], None),
        (settings(&json!({})), vec![other.clone(), own.clone()], Some("blue")),
        (renamed.clone(), vec![other.clone(), own.clone()], Some("blue")),
        (renamed.clone(), vec![own, fleet("capi-blue", "blue-kubeconfig")], Some("capi-blue")),
        (renamed, vec![other], None),
    ];
    for (settings, all, expected) in rows {
        let found = existing_fleet_cluster(&settings, &key, &all);
        assert_eq!(found.map(metadata::name), expected);
        let object = wanted(&settings, &cluster(), found);
        assert_eq!(metadata::name(&object), expected.map_or_else(|| settings.name("blue"), str::to_owned));
    }
}

#[test]
fn template_values_have_no_status_and_keep_what_is_unknown() {
    let plane = json!({
        "kind": "Plane", "metadata": {"name": "p", "resourceVersion": "1", "managedFields": []},
        "spec": {"replicas": 3, "unset": null}, "status": {"ready": true},
    });
    let existing = json!({
        "metadata": {"name": "blue"}, "spec": {"templateValues": {"InfrastructureCluster": {"kind": "Old"}}},
    });
    let (cluster, settings) = (cluster(), settings(&json!({})));
    let view = ClusterView::of(&cluster).unwrap();
    let values = |control_plane, infrastructure_cluster| {
        let handed_over =
            HandedOver { cluster: &cluster, view: &view, control_plane, infrastructure_cluster };
        fleet_cluster(&settings, &handed_over, Some(&existing))["spec"]["templateValues"].clone()
    };
    let all = values(TemplateObject::Known(&plane), TemplateObject::Unknown);
    assert_eq!(
        all["ControlPlane"],
        json!({"kind": "Plane", "metadata": {"name": "p"}, "spec": {"replicas": 3}})
    );
    assert_eq!(all["InfrastructureCluster"], json!({"kind": "Old"}));
    for pointer in ["/Cluster/status", "/Cluster/metadata/managedFields", "/Cluster/metadata/resourceVersion"]
    {
        assert_eq!(all.pointer(pointer), None, "{pointer}");
    }
    assert_eq!(all["Cluster"]["spec"]["topology"]["version"], "v1.34.4");
    let none = values(TemplateObject::Unknown, TemplateObject::None);
    assert_eq!(none.as_object().unwrap().keys().collect::<Vec<_>>(), ["Cluster"]);
}

#[test]
fn a_fleet_cluster_names_its_cluster_by_the_kubeconfig() {
    let of = |secret: Value| {
        cluster_of(&json!({"metadata": {"namespace": "team"}, "spec": {"kubeConfigSecret": secret}}))
    };
    assert_eq!(of(json!("blue-kubeconfig")), Some(ClusterKey::new("team", "blue")));
    assert_eq!(of(json!("other")), None);
    assert_eq!(of(Value::Null), None);
}

use std::{collections::BTreeMap, slice::from_ref};

use chandler_api::extensions::{AddonRelease, AddonTenancySpec, ExtensionInstance};
use serde_json::{Value, json};

use super::*;
use crate::{
    failure::Failure,
    release::{Desired, ReleaseKind as _},
};

fn spec(fields: &Value) -> Result<AddonTenancySpec, UnreadableSpec> {
    read_spec(fields)
}

/// The rules of namespace `team`, which these AddonTenancies name.
fn rules(specs: &[Value]) -> Rules {
    let named = specs.iter().enumerate().map(|(number, fields)| {
        let mut fields = fields.clone();
        fields["namespaces"] = json!({"names": ["team", "team-staging"]});
        (format!("t{number}"), spec(&fields))
    });
    Tenancies::new(named).of("team", &BTreeMap::new()).unwrap()
}

fn desired(source: &Value, namespace: &str) -> Desired {
    let pinned = json!({"digest": "sha256:00", "format": "f", "revision": "c1"});
    let is_folder = source["sourceRef"].is_object();
    let release: AddonRelease = serde_json::from_value(json!({
        "metadata": {"name": "web-blue", "namespace": "team"},
        "spec": {
            "cluster": "blue", "release": {"name": "web", "namespace": namespace}, "source": source,
            "pinned": is_folder.then_some(pinned),
        },
    }))
    .unwrap();
    release.desired().unwrap()
}

fn origin(account: Option<&str>) -> ReleaseOrigin {
    ReleaseOrigin { account: account.map(str::to_owned), ..ReleaseOrigin::default() }
}

fn boundary(rules: &Rules, desired: &Desired, account: Option<&str>) -> Result<Boundary, Failure> {
    let request = ReleaseRequest { desired, origin: &origin(account), purpose: Purpose::Apply };
    rules.boundary(request, None)
}

/// Checks that something is allowed, or refused with these texts.
#[track_caller]
fn expect<T: std::fmt::Debug>(result: Result<T, Failure>, refused: &[&str]) {
    match result {
        Ok(_) => assert!(refused.is_empty(), "it is allowed: {refused:?}"),
        Err(failure) => {
            assert_eq!(failure.category, Category::NotAllowed);
            assert!(!refused.is_empty(), "{failure}");
            for text in refused {
                assert!(failure.message.contains(text), "{failure}");
            }
        }
    }
}

#[test]
fn tenancies_select_namespaces_by_name_or_label() {
    let all = Tenancies::new([
        ("named".to_owned(), spec(&json!({"namespaces": {"names": ["team"]}}))),
        ("gold".to_owned(), spec(&json!({"namespaces": {"selector": {"matchLabels": {"tier": "gold"}}}}))),
        (
            "both".to_owned(),
            spec(&json!({"namespaces": {"names": ["a"], "selector": {"matchLabels": {"tier": "silver"}}}})),
        ),
    ]);
    let label = |tier: &str| BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
    let rows = [
        ("team", label("gold"), vec!["gold", "named"]),
        ("team", label("bronze"), vec!["named"]),
        ("a", label("bronze"), vec!["both"]),
        ("b", label("silver"), vec!["both"]),
        ("b", BTreeMap::new(), vec![]),
    ];
    for (namespace, labels, expected) in rows {
        let found = all.of(namespace, &labels).unwrap();
        let names: Vec<_> = found.0.iter().map(|tenancy| &*tenancy.name).collect();
        assert_eq!(names, expected, "{namespace} {labels:?}");
        assert_eq!(found.allow_everything(), expected.is_empty());
    }
    assert!(all.need_labels("team"));
    let named = Tenancies::new([("named".to_owned(), spec(&json!({"namespaces": {"names": ["team"]}})))]);
    assert!(!named.need_labels("other") && !named.is_empty());
    assert!(Tenancies::default().is_empty());
}

#[test]
fn nothing_is_allowed_while_a_tenancy_cannot_be_read() {
    let odd = json!({"namespaces": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}});
    let newer = json!({"namespaces": {"names": ["team"], "owners": ["team"]}, "kinds": 3});
    for unreadable in [odd, json!({}), newer] {
        let all = Tenancies::new([("odd".to_owned(), spec(&unreadable))]);
        assert!(!all.is_empty());
        assert_eq!(all.unreadable().count(), 1);
        let failure = all.of("any", &BTreeMap::new()).unwrap_err();
        assert!(!is_refusal(&failure) && failure.message.contains("AddonTenancy odd"), "{failure}");
    }
    let named = json!({"namespaces": {"names": ["team"]}, "kinds": 3});
    let all = Tenancies::new([("named".to_owned(), spec(&named))]);
    all.of("team", &BTreeMap::new()).expect_err("it is about this namespace");
    assert!(all.of("any", &BTreeMap::new()).unwrap().allow_everything(), "it is about no other one");
    let removal = Boundary::of_unknown_removal();
    assert!(removal.disable_hooks && removal.needed_capabilities().is_empty());
}

#[test]
fn sources_are_allowed_by_every_tenancy_that_lists_some() {
    let charts = json!({"sources": {"urlPrefixes": ["https://charts.example/team"], "platformCatalogs": ["stable-*"]}});
    let oci =
        json!({"sources": {"urlPrefixes": ["oci://registry.example/team"], "platformSources": ["apps"]}});
    let repository = |url: &str| json!({"repository": url, "chart": "web"});
    let catalog = |name: &str| json!({"catalog": {"name": name, "scope": "Platform"}, "chart": "web"});
    let folder = |scope: &str| json!({"sourceRef": {"name": "apps", "scope": scope}, "path": "web"});
    let prefixes = "t0 does not allow source https://other.example: its spec.sources.urlPrefixes";
    let rows: [(&[Value], Value, &[&str]); 13] = [
        (&[], repository("https://other.example"), &[]),
        (&[json!({})], repository("https://other.example"), &[]),
        (from_ref(&charts), repository("https://charts.example/team"), &[]),
        (from_ref(&charts), repository("https://other.example"), &[prefixes]),
        (from_ref(&oci), repository("oci://registry.example"), &["oci://registry.example/web"]),
        (from_ref(&oci), repository("oci://registry.example/team"), &[]),
        (&[charts.clone(), oci.clone()], repository("https://charts.example/team"), &["AddonTenancy t1"]),
        (&[charts.clone(), json!({})], repository("https://charts.example/team"), &[]),
        (from_ref(&charts), catalog("stable-1"), &[]),
        (from_ref(&charts), catalog("edge"), &["ExtensionCatalog edge", "spec.sources.platformCatalogs"]),
        (from_ref(&oci), folder("Platform"), &[]),
        (from_ref(&charts), folder("Platform"), &["Source apps", "spec.sources.platformSources"]),
        (from_ref(&charts), folder("Namespace"), &[]),
    ];
    for (specs, source, refused) in rows {
        expect(boundary(&rules(specs), &desired(&source, "web"), None), refused);
    }
    let login = rules(&[oci]).check_source(SourceUse::Url("https://user:canary@other.example")).unwrap_err();
    assert!(!login.message.contains("canary"), "{login}");
}

#[test]
fn releases_are_in_allowed_namespaces() {
    let source = json!({"repository": "https://charts.example", "chart": "web"});
    let own = json!({"targetNamespaces": ["team", "team-*"]});
    let rows: [(&[Value], &str, &[&str]); 6] = [
        (&[], "kube-system", &[]),
        (&[json!({})], "kube-system", &[]),
        (from_ref(&own), "team", &[]),
        (from_ref(&own), "team-a", &[]),
        (
            from_ref(&own),
            "kube-system",
            &["AddonTenancy t0", "namespace kube-system", "spec.targetNamespaces"],
        ),
        (&[own.clone(), json!({"targetNamespaces": []})], "team", &["AddonTenancy t1"]),
    ];
    for (specs, namespace, refused) in rows {
        let (rules, desired) = (rules(specs), desired(&source, namespace));
        expect(boundary(&rules, &desired, None), refused);
        let request = ReleaseRequest { desired: &desired, origin: &origin(None), purpose: Purpose::Remove };
        expect(rules.boundary(request, None), &[]);
    }
}

/// AddonTenancies, the account that the release names, the default one; the account that is used.
type AccountRow<'a> = (&'a [Value], Option<&'a str>, Option<&'a DefaultAccount>, Option<&'a str>);

#[test]
fn the_account_is_that_of_the_tenancy_the_release_or_the_default_one() {
    let desired = desired(&json!({"repository": "https://charts.example", "chart": "web"}), "web");
    let account = |namespace: Option<&str>, name: &str| json!({"workloadServiceAccount": {"namespace": namespace, "name": name}});
    let (own, shared) = (account(None, "deployer"), account(Some("addons"), "deployer"));
    let default = DefaultAccount::parse("addons/default").unwrap();
    let rows: [AccountRow<'_>; 9] = [
        (&[], None, None, None),
        (&[], None, Some(&default), Some("addons/default")),
        (&[], Some("mine"), Some(&default), Some("web/mine")),
        (&[json!({})], None, Some(&default), Some("addons/default")),
        (from_ref(&own), None, Some(&default), Some("web/deployer")),
        (from_ref(&own), Some("deployer"), None, Some("web/deployer")),
        (from_ref(&shared), None, None, Some("addons/deployer")),
        (&[shared.clone(), json!({})], None, None, Some("addons/deployer")),
        (&[own.clone(), own.clone()], None, None, Some("web/deployer")),
    ];
    for (specs, requested, default, expected) in rows {
        let origin = origin(requested);
        let request = ReleaseRequest { desired: &desired, origin: &origin, purpose: Purpose::Apply };
        let account = rules(specs).boundary(request, default).unwrap().account;
        let found = account.map(|account| format!("{}/{}", account.namespace, account.name));
        assert_eq!(found.as_deref(), expected, "{specs:?} {requested:?}");
    }
    let refused = ["spec.workloadServiceAccount"];
    expect(boundary(&rules(from_ref(&own)), &desired, Some("admin")), &refused);
    expect(boundary(&rules(from_ref(&shared)), &desired, Some("deployer")), &refused);
    let both = rules(&[own, shared]);
    expect(boundary(&both, &desired, None), &["AddonTenancy t1", "is addons/deployer"]);
    // A removal is never refused.
    for (rules, requested, expected) in [
        (both, Some("mine"), Some("web/deployer")),
        (Rules::default(), Some("mine"), Some("web/mine")),
        (Rules::default(), Some("kube-system:root"), Some("addons/default")),
    ] {
        let origin = origin(requested);
        let request = ReleaseRequest { desired: &desired, origin: &origin, purpose: Purpose::Remove };
        let account = rules.boundary(request, Some(&default)).unwrap().account;
        let found = account.map(|account| format!("{}/{}", account.namespace, account.name));
        assert_eq!(found.as_deref(), expected, "{requested:?}");
    }
    let invalid = boundary(&Rules::default(), &desired, Some("kube-system:root")).unwrap_err();
    assert_eq!(invalid.category, Category::InvalidSpec);
    let account = WorkloadAccount { namespace: "web".to_owned(), name: "deployer".to_owned() };
    assert_eq!(account.user(), "system:serviceaccount:web:deployer");
}

#[test]
fn the_tool_gets_a_rule_of_every_tenancy() {
    let desired = desired(&json!({"repository": "https://charts.example", "chart": "web"}), "web");
    let role = json!({"group": "rbac.authorization.k8s.io", "kind": "ClusterRole"});
    let wide = json!({"kinds": {"clusterScoped": [role], "denied": [{"kind": "Secret"}]}});
    let found = boundary(&rules(&[wide, json!({"targetNamespaces": ["web"]})]), &desired, None).unwrap();
    assert_eq!(found.needed_capabilities(), ["object-rules"]);
    let [wide, narrow] = &found.rules[..] else { panic!("{found:?}") };
    assert_eq!(
        (&*wide.name, &*wide.cluster_scoped[0].kind, &*wide.denied[0].kind),
        ("AddonTenancy t0", "ClusterRole", "Secret")
    );
    assert_eq!(
        (wide.namespaces.as_ref(), narrow.namespaces.as_deref()),
        (None, Some(&["web".to_owned()][..]))
    );
    assert!(narrow.cluster_scoped.is_empty());
    assert_eq!(boundary(&Rules::default(), &desired, None).unwrap(), Boundary::default());
    let account = boundary(&Rules::default(), &desired, Some("a")).unwrap();
    assert_eq!(account.needed_capabilities(), ["impersonate"]);
}

#[test]
fn extensions_of_the_platform_are_allowed_as_they_are_published() {
    let instance = |fields: &Value| {
        let mut spec =
            json!({"extension": {"name": "cni", "scope": "Platform"}, "clusters": {"name": "blue"}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let metadata = json!({"name": "cni", "namespace": "team"});
        serde_json::from_value::<ExtensionInstance>(json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let rows = [
        (json!({}), Some("cni")),
        (json!({"version": "1.x", "channel": "edge", "policyRef": {"name": "a"}}), Some("cni")),
        (json!({"parameters": {"a": 1}}), None),
        (json!({"parametersTemplate": "a: 1"}), None),
        (json!({"parametersFrom": [{"secret": {"name": "a", "key": "b"}}]}), None),
        (json!({"release": {"namespace": "kube-system"}}), None),
        (json!({"options": {"timeout": "1m"}}), None),
        (json!({"workloadServiceAccountName": "a"}), None),
        (json!({"extension": {"name": "cni"}}), None),
        (json!({"extension": {"name": "cni", "scope": "Platform", "catalog": "charts"}}), None),
    ];
    for (fields, expected) in rows {
        assert_eq!(platform_extension(&instance(&fields)), expected, "{fields}");
    }
    let desired = desired(&json!({"repository": "https://platform.example", "chart": "cni"}), "kube-system");
    let strict =
        |allowed: &Value| json!({"sources": {}, "targetNamespaces": [], "platformExtensions": allowed});
    let of_platform =
        ReleaseOrigin { platform_extension: Some("cni".to_owned()), ..ReleaseOrigin::default() };
    let request = |purpose| ReleaseRequest { desired: &desired, origin: &of_platform, purpose };
    for (allowed, refused) in
        [(json!(null), false), (json!(["c*"]), false), (json!(["dns"]), true), (json!([]), true)]
    {
        match rules(&[strict(&allowed)]).boundary(request(Purpose::Apply), None) {
            Ok(boundary) => assert!(!refused && boundary == Boundary::default(), "{allowed}"),
            Err(failure) => assert!(refused, "{allowed}: {failure}"),
        }
    }
    // Other revisions may be those of the tenant: what they contain is checked, and their hooks are not run unchecked.
    let strict = rules(&[strict(&json!(null))]);
    let restored = strict.boundary(request(Purpose::Restore), None).unwrap();
    assert_eq!((restored.rules.len(), restored.disable_hooks), (1, false));
    let removed = strict.boundary(request(Purpose::Remove), None).unwrap();
    assert_eq!((removed.rules.len(), removed.disable_hooks), (0, true));
    let free = Rules::default().boundary(request(Purpose::Remove), None).unwrap();
    assert_eq!(free, Boundary::default());
}

#[test]
fn a_release_object_says_what_it_was_made_of() {
    let mut release: AddonRelease = serde_json::from_value(json!({
        "metadata": {"name": "web-blue"},
        "spec": {"cluster": "blue", "release": {"name": "web", "namespace": "web"}, "source": {"chart": "web"}},
    }))
    .unwrap();
    assert_eq!(ReleaseOrigin::of(&release), ReleaseOrigin::default());
    let origin = ReleaseOrigin {
        account: Some("deployer".to_owned()),
        platform_extension: Some("cni".to_owned()),
        platform_catalog: Some("charts".to_owned()),
    };
    origin.clone().annotate(&mut release);
    assert_eq!(ReleaseOrigin::of(&release), origin);
}

#[test]
fn a_catalog_that_is_a_folder_of_a_source_is_a_catalog() {
    let folder = json!({"sourceRef": {"name": "apps", "scope": "Platform"}, "path": "web"});
    let desired = desired(&folder, "web");
    let rules = rules(&[json!({"sources": {"platformCatalogs": ["charts"]}})]);
    let rows: [(Option<&str>, &[&str]); 3] =
        [(Some("charts"), &[]), (Some("other"), &["platformCatalogs"]), (None, &["platformSources"])];
    for (catalog, refused) in rows {
        let origin =
            ReleaseOrigin { platform_catalog: catalog.map(str::to_owned), ..ReleaseOrigin::default() };
        let request = ReleaseRequest { desired: &desired, origin: &origin, purpose: Purpose::Apply };
        expect(rules.boundary(request, None), refused);
    }
}

#[test]
fn syncs_write_allowed_kinds_to_their_own_namespaces() {
    let kinds = json!({"kinds": {
        "clusterScoped": [{"group": "*", "kind": "ClusterClass"}, {"kind": "Namespace"}],
        "denied": [{"group": "rbac.authorization.k8s.io", "kind": "*"}],
    }});
    let object = |group, kind, namespace, name| SyncedKind { group, kind, namespace, name };
    let rows: [(SyncedKind<'_>, &[&str]); 9] = [
        (object("", "ConfigMap", "team", "a"), &[]),
        (object("", "ConfigMap", "team-staging", "a"), &[]),
        (
            object("", "ConfigMap", "other", "a"),
            &["ConfigMap other/a", "spec.namespaces.names does not list other"],
        ),
        (object("cluster.x-k8s.io", "ClusterClass", "", "a"), &[]),
        (object("", "Node", "", "a"), &["Node a", "spec.kinds.clusterScoped does not list Node"]),
        (object("chandler.dev", "AddonTenancy", "", "mine"), &["does not list AddonTenancy.chandler.dev"]),
        (object("rbac.authorization.k8s.io", "RoleBinding", "team", "a"), &["spec.kinds.denied"]),
        (object("", "Namespace", "", "team"), &[]),
        (object("", "Namespace", "", "kube-system"), &["spec.namespaces.names"]),
    ];
    for (object, refused) in rows {
        expect(rules(from_ref(&kinds)).check_synced("team", object), refused);
        expect(Rules::default().check_synced("team", object), &[]);
    }
}

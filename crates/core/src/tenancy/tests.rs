use std::{collections::BTreeMap, slice::from_ref};

use chandler_api::extensions::{
    AddonRelease, AddonReleaseSpec, AddonTenancySpec, ExtensionInstance, PLATFORM_INPUTS_ANNOTATION,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    digest::InputDigest,
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

fn boundary(rules: &Rules, desired: &Desired, account: Option<&str>) -> Result<Boundary, Failure> {
    rules.boundary(&with_account(desired, account), ReleaseUse::Desired, None)
}

fn with_account(desired: &Desired, account: Option<&str>) -> Desired {
    let mut desired = desired.clone();
    desired.recorded.account = account.map(str::to_owned);
    desired
}

const REMOVAL: ReleaseUse<'static> = ReleaseUse::Removal { installed: None };

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
    for unreadable in [spec(&odd), spec(&json!({"namespaces": 3}))] {
        let all = Tenancies::new([("odd".to_owned(), unreadable)]);
        assert!(!all.is_empty());
        expect(all.of("any", &BTreeMap::new()), &["AddonTenancy odd", "in namespace any"]);
    }
}

/// A typing error in one AddonTenancy stops neither other namespaces nor removals.
#[test]
fn a_tenancy_that_cannot_be_read_keeps_no_release_from_being_removed() {
    let names = json!({"namespaces": {"names": ["team"]}, "targetNamespaces": 3});
    let both = json!({"namespaces": {"names": ["team"], "selector": {}}, "targetNamespaces": 3});
    let account = json!({"namespaces": {"names": ["team"]}, "workloadServiceAccount": {"name": "deployer"}});
    let none = BTreeMap::new();
    for (fields, elsewhere) in [(names, true), (both, false)] {
        let all = Tenancies::new([("odd".to_owned(), spec(&fields)), ("own".to_owned(), spec(&account))]);
        expect(all.of("team", &none), &["AddonTenancy odd"]);
        assert_eq!(all.of("other", &none).is_ok(), elsewhere, "{fields}");
        let desired = desired(&json!({"repository": "https://charts.example", "chart": "web"}), "web");
        let boundary = all.of_removals("team", &none).boundary(&desired, REMOVAL, None).unwrap();
        let [own, odd] = &boundary.rules[..] else { panic!("{boundary:?}") };
        assert_eq!((&*own.name, &*odd.name), ("AddonTenancy own", "AddonTenancy odd (cannot be read)"));
        let any = odd.denied.iter().map(|kind| (&*kind.group, &*kind.kind)).collect::<Vec<_>>();
        assert_eq!(any, [("*", "*")], "hooks are not run");
        assert_eq!(boundary.account.unwrap().user(), "system:serviceaccount:web:deployer");
        assert_eq!(all.of_removals("other", &none).allow_everything(), elsewhere);
    }
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
    let mut offered = desired(&folder("Platform"), "web");
    offered.recorded.platform_catalog = Some("stable-1".to_owned());
    let listed = json!({"sources": {"platformCatalogs": ["stable-*"]}});
    expect(boundary(&rules(&[listed]), &offered, None), &[]);
    expect(boundary(&rules(from_ref(&oci)), &offered, None), &[]);
    let neither = json!({"sources": {"platformCatalogs": ["edge"]}});
    expect(boundary(&rules(&[neither]), &offered, None), &["ExtensionCatalog stable-1", "platformCatalogs"]);
    let login = rules(&[oci]).check_source(SourceUse::Url("https://user:canary@other.example")).unwrap_err();
    assert!(!login.message.contains("canary"), "{login}");
}

/// The index of an allowed repository may name any address.
#[test]
fn packages_are_downloaded_from_allowed_addresses() {
    let rules = rules(&[
        json!({"sources": {"urlPrefixes": ["https://charts.example/team"], "platformCatalogs": ["*"]}}),
    ]);
    let own = desired(&json!({"repository": "https://charts.example/team", "chart": "web"}), "web");
    let catalog = json!({"catalog": {"name": "stable", "scope": "Platform"}, "chart": "web"});
    let platform = desired(&catalog, "web");
    let mut published = own.clone();
    published.recorded.platform_extension = Some("web".to_owned());
    let rows: [(&Desired, &str, &[&str]); 5] = [
        (&own, "https://charts.example/team/web-1.0.0.tgz", &[]),
        (&own, "https://charts.example/other/web-1.0.0.tgz", &["spec.sources.urlPrefixes"]),
        (&own, "https://evil.example/web-1.0.0.tgz", &["source https://evil.example/web-1.0.0.tgz"]),
        (&platform, "https://cdn.example/web-1.0.0.tgz", &[]),
        (&published, "https://cdn.example/web-1.0.0.tgz", &[]),
    ];
    for (desired, url, refused) in rows {
        expect(rules.check_archive(desired, url), refused);
    }
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
        expect(rules.boundary(&desired, REMOVAL, None), &[]);
    }
}

#[test]
fn the_account_is_that_of_the_tenancy_the_release_or_the_default_one() {
    type Row<'a> = (&'a [Value], Option<&'a str>, Option<&'a DefaultAccount>, Option<&'a str>);
    let desired = desired(&json!({"repository": "https://charts.example", "chart": "web"}), "web");
    let account = |namespace: Option<&str>, name: &str| json!({"workloadServiceAccount": {"namespace": namespace, "name": name}});
    let (own, shared) = (account(None, "deployer"), account(Some("addons"), "deployer"));
    let default = DefaultAccount::parse("addons/default").unwrap();
    let rows: [Row<'_>; 9] = [
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
        let requesting = with_account(&desired, requested);
        let account = rules(specs).boundary(&requesting, ReleaseUse::Desired, default).unwrap().account;
        let found = account.map(|account| format!("{}/{}", account.namespace, account.name));
        assert_eq!(found.as_deref(), expected, "{specs:?} {requested:?}");
    }
    let refused = ["spec.workloadServiceAccount"];
    expect(boundary(&rules(from_ref(&own)), &desired, Some("admin")), &refused);
    expect(boundary(&rules(from_ref(&shared)), &desired, Some("deployer")), &refused);
    expect(boundary(&rules(&[own, shared]), &desired, None), &["AddonTenancy t1", "is addons/deployer"]);
    let invalid = boundary(&Rules::default(), &desired, Some("kube-system:root")).unwrap_err();
    assert_eq!(invalid.category, Category::InvalidSpec);
    let account = WorkloadAccount { namespace: "web".to_owned(), name: "deployer".to_owned() };
    assert_eq!(account.user(), "system:serviceaccount:web:deployer");
}

/// What an AddonTenancy does not allow any more can be removed, and as no other account than the one that it names.
#[test]
fn a_release_can_be_removed_after_another_account_was_named() {
    let account = |namespace: Option<&str>| json!({"workloadServiceAccount": {"namespace": namespace, "name": "deployer"}});
    let default = DefaultAccount::parse("addons/default").unwrap();
    let rows: [(&[Value], Option<&str>, &str); 5] = [
        (&[account(None)], Some("mine"), "web/deployer"),
        (&[account(None), account(Some("addons"))], Some("mine"), "web/deployer"),
        (&[json!({})], Some("mine"), "web/mine"),
        (&[json!({})], Some("kube-system:root"), "addons/default"),
        (&[json!({})], None, "addons/default"),
    ];
    for (specs, requested, expected) in rows {
        let desired = desired(&json!({"repository": "https://charts.example", "chart": "web"}), "web");
        let found =
            rules(specs).boundary(&with_account(&desired, requested), REMOVAL, Some(&default)).unwrap();
        let account = found.account.unwrap();
        assert_eq!(format!("{}/{}", account.namespace, account.name), expected, "{specs:?} {requested:?}");
        assert_eq!(found.rules.len(), specs.len());
    }
}

/// The exemption is that of the spec which is applied. What is restored or removed may have come from elsewhere.
#[test]
fn only_what_the_platform_has_published_is_exempt() {
    let rules = rules(&[json!({"sources": {}, "workloadServiceAccount": {"name": "deployer"}})]);
    let source = json!({"repository": "https://platform.example", "chart": "cni"});
    let mut published = desired(&source, "kube-system");
    let [installed, other] =
        ['a', 'b'].map(|digit| InputDigest::parse(&digit.to_string().repeat(40)).unwrap());
    published.recorded.platform_extension = Some("cni".to_owned());
    let removal = |installed| ReleaseUse::Removal { installed: Some(installed) };
    let is_exempt = |desired: &Desired, release_use| {
        rules.boundary(desired, release_use, None).is_ok_and(|boundary| boundary == Boundary::default())
    };
    assert!(is_exempt(&published, ReleaseUse::Desired));
    expect(rules.boundary(&published, ReleaseUse::Rollback, None), &["spec.sources.urlPrefixes"]);
    assert!(!is_exempt(&published, removal(&installed)), "the spec says nothing about what is installed");

    let recorded = published.recorded.new_platform_inputs(Some(&installed), Some(&installed)).unwrap();
    assert_eq!(published.recorded.new_platform_inputs(Some(&installed), Some(&other)), None);
    assert_eq!(desired(&source, "web").recorded.new_platform_inputs(Some(&other), Some(&other)), None);
    let mut release = AddonRelease::new("cni", AddonReleaseSpec::default());
    release.metadata.annotations = Some([(PLATFORM_INPUTS_ANNOTATION.to_owned(), recorded)].into());
    let removed = Desired { recorded: Recorded::of(&release), ..published };
    assert!(is_exempt(&removed, removal(&installed)), "also if the spec is another one since");
    assert!(!is_exempt(&removed, removal(&other)) && !is_exempt(&removed, REMOVAL));
    assert!(!is_exempt(&removed, ReleaseUse::Desired));
}

/// An exempt release is neither adopted nor upgraded with `atomic`. One that has rules itself is.
#[test]
fn a_release_is_exempted_only_from_what_it_would_have_otherwise() {
    type Row<'a> = (&'a [Value], Option<&'a str>, Option<&'a DefaultAccount>, bool);
    let default = DefaultAccount::parse("addons/default").unwrap();
    let listed = |name: &str| json!({"platformExtensions": [name]});
    let rows: [Row<'_>; 10] = [
        (&[], Some("cni"), None, false),
        (&[], Some("cni"), Some(&default), true),
        (&[], None, Some(&default), false),
        (&[json!({})], Some("cni"), None, true),
        (&[json!({})], None, None, false),
        (&[json!({"sources": {}})], Some("cni"), None, true),
        (&[listed("cni")], Some("cni"), None, true),
        (&[listed("csi")], Some("cni"), None, false),
        (&[listed("csi")], Some("cni"), Some(&default), false),
        (&[listed("cni"), listed("csi")], Some("cni"), None, false),
    ];
    let mut desired =
        desired(&json!({"repository": "https://platform.example", "chart": "cni"}), "kube-system");
    for (specs, extension, default, expected) in rows {
        let rules = rules(specs);
        desired.recorded.platform_extension = extension.map(str::to_owned);
        let boundary = rules.boundary(&desired, ReleaseUse::Desired, default);
        let found = boundary.is_ok_and(|boundary| rules.exempts(&desired, &boundary, default));
        assert_eq!(found, expected, "{specs:?} {extension:?} {default:?}");
    }
    let is_exempt = rules(&[listed("csi")]).exempts(&desired, &Boundary::default(), None);
    assert!(is_exempt, "it has no rules in a running operation, whatever an AddonTenancy lists since");
}

/// Hooks of what was installed before run then, whatever the spec says since.
#[test]
fn an_interrupted_uninstall_is_finished_with_the_rules_of_what_is_installed() {
    let [inputs, platform, other] =
        ['a', 'b', 'c'].map(|digit| InputDigest::parse(&digit.to_string().repeat(40)).unwrap());
    let recorded = Recorded { platform_inputs: Some(platform.to_string()), ..Recorded::default() };
    let rows = [
        (Some(&inputs), ReleaseUse::Desired),
        (Some(&platform), ReleaseUse::Desired),
        (Some(&other), ReleaseUse::Rollback),
        (None, ReleaseUse::Rollback),
    ];
    for (installed, expected) in rows {
        let found = ReleaseUse::finishing_uninstall(&recorded, installed, &inputs);
        assert_eq!(found, expected, "{installed:?}");
    }
    let none = ReleaseUse::finishing_uninstall(&Recorded::default(), Some(&platform), &inputs);
    assert_eq!(none, ReleaseUse::Rollback);
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
    let mut desired =
        desired(&json!({"repository": "https://platform.example", "chart": "cni"}), "kube-system");
    desired.recorded.platform_extension = Some("cni".to_owned());
    let strict =
        |allowed: &Value| json!({"sources": {}, "targetNamespaces": [], "platformExtensions": allowed});
    for (allowed, refused) in
        [(json!(null), false), (json!(["c*"]), false), (json!(["dns"]), true), (json!([]), true)]
    {
        let found = rules(&[strict(&allowed)]).boundary(&desired, ReleaseUse::Desired, None);
        match found {
            Ok(boundary) => assert!(!refused && boundary == Boundary::default(), "{allowed}"),
            Err(failure) => assert!(refused, "{allowed}: {failure}"),
        }
    }
}

#[test]
fn syncs_write_allowed_kinds_to_their_own_namespaces() {
    let kinds = json!({"kinds": {
        "clusterScoped": [{"group": "*", "kind": "ClusterClass"}, {"kind": "Namespace"}],
        "denied": [{"group": "rbac.authorization.k8s.io", "kind": "*"}],
    }});
    let object = |group, kind, namespace, name| ObjectOfSync { group, kind, namespace, name };
    let rows: [(ObjectOfSync<'_>, &[&str]); 9] = [
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

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::{extension::Chosen, resolution::VersionName};

fn blue() -> ClusterKey {
    ClusterKey::new("fleet", "blue")
}

fn request(origin: Origin, name: &str) -> ImplicitRequest {
    ImplicitRequest::new(origin, ExtensionKey::in_namespace("system", name, "fleet"))
}

fn chosen(requested: bool) -> Chosen {
    Chosen {
        version: VersionName::parse("1.0.0").unwrap(),
        message: String::new(),
        after: Vec::new(),
        requested,
    }
}

fn all_changes(
    requests: &[ImplicitRequest],
    provisioned: &[&str],
    instances: &[&ExtensionInstance],
    resolution: &Resolution,
) -> ImplicitChanges {
    let provisioned = provisioned.iter().map(|key| ExtensionKey::parse(key)).collect();
    implicit_changes(&ImplicitInput {
        cluster: &blue(),
        requests,
        provisioned: &provisioned,
        instances,
        resolution,
        has_unread: false,
        is_published: &|key| key.to_string() != "platform/unpublished",
        is_needed: &|instance| instance.name_any().starts_with("needed"),
        is_placed: &|instance| !instance.name_any().starts_with("new"),
    })
}

/// Counts the instances that are applied, restored and deleted.
fn changes(
    requests: &[ImplicitRequest],
    provisioned: &[&str],
    instances: &[&ExtensionInstance],
    resolution: &Resolution,
) -> (usize, usize, usize) {
    let result = all_changes(requests, provisioned, instances, resolution);
    (result.apply.len(), result.restored.len(), result.delete.len())
}

#[test]
fn a_default_is_created_once_and_an_enforced_one_is_restored() {
    let none = Resolution::default();
    for (origin, again) in [(Origin::Default, 0), (Origin::Listed, 0), (Origin::Enforced, 1)] {
        let requests = [request(origin, "cni")];
        assert_eq!(changes(&requests, &[], &[], &none), (1, 0, 0), "{origin:?}: new");
        let existing = generated(&blue(), &requests[0]);
        assert_eq!(
            changes(&requests, &["platform/cni"], &[&existing], &none),
            (0, 0, 0),
            "{origin:?}: existing"
        );
        assert_eq!(
            changes(&requests, &["platform/cni"], &[], &none),
            (again, again, 0),
            "{origin:?}: deleted"
        );
        let mut changed = existing.clone();
        changed.spec.version = Some("1.x".to_owned());
        let found = changes(&requests, &["platform/cni"], &[&changed], &none);
        assert_eq!(found, (again, again, 0), "{origin:?}: changed");
    }
}

#[test]
fn parameters_of_a_request_reach_its_instance_unless_a_user_changed_it() {
    let none = Resolution::default();
    let with_mtu = |origin: Origin, mtu: u32| ImplicitRequest {
        parameters: json!({"mtu": mtu}).as_object().cloned(),
        parameters_template: Some("zone: {{ .Cluster.metadata.name }}".to_owned()),
        ..request(origin, "cni")
    };
    let existing = generated(&blue(), &with_mtu(Origin::Listed, 1400));
    assert_eq!(json!(existing.spec.parameters), json!({"mtu": 1400}));
    assert!(existing.spec.parameters_template.is_some());
    let again = |requests: &[ImplicitRequest], existing: &ExtensionInstance| {
        changes(requests, &["platform/cni"], &[existing], &none)
    };
    assert_eq!(again(&[with_mtu(Origin::Listed, 1400)], &existing), (0, 0, 0));
    assert_eq!(again(&[with_mtu(Origin::Listed, 9000)], &existing), (1, 0, 0), "an update");
    let mut changed = existing.clone();
    changed.spec.parameters = None;
    assert_eq!(again(&[with_mtu(Origin::Listed, 9000)], &changed), (0, 0, 0));
    // A list of the Cluster does not weaken what the platform enforces.
    let both = [with_mtu(Origin::Listed, 9000), with_mtu(Origin::Enforced, 1400)];
    let enforced = generated(&blue(), &both[1]);
    assert_eq!(again(&both, &enforced), (0, 0, 0));
    assert_eq!(again(&both, &changed), (1, 1, 0));
}

/// Returns version and namespace of the release of the instance to apply for extension `cni`, if any.
fn applied(
    requests: &[ImplicitRequest],
    existing: Option<&ExtensionInstance>,
) -> Option<(Option<String>, Option<String>)> {
    let existing: Vec<_> = existing.into_iter().collect();
    let provisioned = existing.iter().map(|_| ExtensionKey::parse("platform/cni")).collect();
    let changes = implicit_changes(&ImplicitInput {
        cluster: &blue(),
        requests,
        provisioned: &provisioned,
        instances: &existing,
        resolution: &Resolution::default(),
        has_unread: false,
        is_published: &|_| true,
        is_needed: &|_| false,
        is_placed: &|_| true,
    });
    changes.apply.into_iter().next().map(|instance| (instance.spec.version, instance.spec.release.namespace))
}

#[test]
fn an_enforced_request_keeps_the_version_of_the_list_and_the_namespace_of_the_release() {
    let of = |origin: Origin, range: Option<&str>, namespace: Option<&str>| ImplicitRequest {
        range: range.map(str::to_owned),
        release_namespace: namespace.map(str::to_owned),
        ..request(origin, "cni")
    };
    let listed = of(Origin::Listed, Some("^1.14"), None);
    let enforced = of(Origin::Enforced, None, Some("net"));
    let default = of(Origin::Default, None, Some("net"));
    let pair = |version: Option<&str>, namespace: Option<&str>| {
        Some((version.map(str::to_owned), namespace.map(str::to_owned)))
    };
    let changed = |instance: &ExtensionInstance, version: Option<&str>, namespace: Option<&str>| {
        let mut instance = instance.clone();
        instance.spec.version = version.map(str::to_owned);
        instance.spec.release.namespace = namespace.map(str::to_owned);
        instance
    };
    let of_list = generated(&blue(), &listed);
    // The enforced instance that replaces the one of the list.
    let taken_over = generated(&blue(), &of(Origin::Enforced, Some("^1.14"), None));
    let new = generated(&blue(), &of(Origin::Enforced, Some("^1.14"), Some("net")));
    let moved = changed(&new, Some("^1.14"), Some("mine"));
    let both = [listed.clone(), enforced.clone()];
    let rows = [
        ("new", &both[..], None, pair(Some("^1.14"), Some("net"))),
        ("only enforced", &both[1..], None, pair(None, Some("net"))),
        ("existing", &both[..], Some(&new), None),
        ("becomes enforced", &both[..], Some(&of_list), pair(Some("^1.14"), None)),
        ("is enforced", &both[..], Some(&taken_over), None),
        ("no longer listed", &both[1..], Some(&taken_over), pair(None, None)),
        ("moved by a user", &both[..], Some(&moved), pair(Some("^1.14"), Some("net"))),
        (
            "another version by a user",
            &both[..],
            Some(&changed(&taken_over, Some("2.x"), None)),
            pair(Some("^1.14"), None),
        ),
        (
            "a default becomes listed",
            &[listed.clone(), default.clone()][..],
            Some(&generated(&blue(), &default)),
            pair(Some("^1.14"), Some("net")),
        ),
    ];
    for (case, requests, existing, expected) in rows {
        assert_eq!(applied(requests, existing), expected, "{case}");
    }
}

#[test]
fn an_instance_that_a_user_changed_outlives_its_default() {
    let none = Resolution::default();
    let mut existing = generated(&blue(), &request(Origin::Default, "cni"));
    assert_eq!(changes(&[], &["platform/cni"], &[&existing], &none), (0, 0, 1));
    existing.spec.version = Some("1.x".to_owned());
    assert_eq!(changes(&[], &["platform/cni"], &[&existing], &none), (0, 0, 0));
}

#[test]
fn unpublished_defaults_and_needed_dependencies_are_kept() {
    let none = Resolution::default();
    let existing = generated(&blue(), &request(Origin::Default, "unpublished"));
    assert_eq!(changes(&[], &[], &[&existing], &none), (0, 0, 0));
    let existing = generated(&blue(), &request(Origin::Dependency, "needed"));
    assert_eq!(changes(&[], &[], &[&existing], &none), (0, 0, 0));
}

#[test]
fn an_instance_of_a_user_replaces_the_default() {
    let mut own = generated(&blue(), &request(Origin::Default, "cni"));
    own.metadata.name = Some("mine".to_owned());
    own.metadata.labels = None;
    let none = Resolution::default();
    assert_eq!(changes(&[request(Origin::Default, "cni")], &[], &[&own], &none), (0, 0, 0));
    let default = generated(&blue(), &request(Origin::Default, "cni"));
    let found = changes(&[request(Origin::Default, "cni")], &["platform/cni"], &[&own, &default], &none);
    assert_eq!(found, (0, 0, 1), "the instance of the user replaces it");
    own.metadata.name = Some("new".to_owned());
    let found = changes(&[request(Origin::Default, "cni")], &["platform/cni"], &[&own, &default], &none);
    assert_eq!(found, (0, 0, 0), "only after it has a release object that can take the release over");
}

#[test]
fn dependencies_exist_as_long_as_they_are_needed() {
    let needed = Resolution {
        chosen: BTreeMap::from([("platform/db".to_owned(), chosen(false))]),
        ..Resolution::default()
    };
    assert_eq!(changes(&[], &[], &[], &needed), (1, 0, 0));
    let existing = generated(&blue(), &request(Origin::Dependency, "db"));
    assert_eq!(changes(&[], &[], &[&existing], &needed), (0, 0, 0));
    assert_eq!(changes(&[], &[], &[&existing], &Resolution::default()), (0, 0, 1));
    let mut own = existing.clone();
    own.metadata.name = Some("mine".to_owned());
    own.metadata.labels = None;
    let requested = Resolution {
        chosen: BTreeMap::from([("platform/db".to_owned(), chosen(true))]),
        ..Resolution::default()
    };
    assert_eq!(changes(&[], &[], &[&existing, &own], &requested), (0, 0, 1));
    own.metadata.name = Some("new".to_owned());
    assert_eq!(changes(&[], &[], &[&existing, &own], &requested), (0, 0, 0), "it has no release object yet");
}

#[test]
fn only_instances_that_may_have_existed_before_count_as_recreated() {
    let none = Resolution::default();
    let needed = Resolution {
        chosen: BTreeMap::from([("platform/db".to_owned(), chosen(false))]),
        ..Resolution::default()
    };
    let (default, enforced) = ([request(Origin::Default, "cni")], [request(Origin::Enforced, "cni")]);
    let mut changed = generated(&blue(), &enforced[0]);
    changed.spec.version = Some("1.x".to_owned());
    let mut deleting = generated(&blue(), &request(Origin::Dependency, "db"));
    deleting.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let (first, again): (&[&str], &[&str]) = (&[], &["platform/cni"]);
    let rows = [
        ("the first default", &default[..], first, None, &none, (1, None)),
        ("the first enforced one", &enforced[..], first, None, &none, (1, None)),
        ("a deleted default", &default[..], again, None, &none, (0, None)),
        ("a deleted enforced one", &enforced[..], again, None, &none, (1, Some("cni"))),
        ("a changed enforced one", &enforced[..], again, Some(&changed), &none, (1, None)),
        ("a dependency", &default[..0], first, None, &needed, (1, Some("db"))),
        ("a dependency that is being deleted", &default[..0], first, Some(&deleting), &needed, (1, None)),
    ];
    for (what, requests, provisioned, existing, resolution, (applied, maybe_recreated)) in rows {
        let existing: Vec<_> = existing.into_iter().collect();
        let found = all_changes(requests, provisioned, &existing, resolution);
        let maybe_recreated: Vec<_> =
            maybe_recreated.into_iter().map(|name| implicit_instance_name(name, "blue")).collect();
        assert_eq!((found.apply.len(), found.maybe_recreated), (applied, maybe_recreated), "{what}");
    }
}

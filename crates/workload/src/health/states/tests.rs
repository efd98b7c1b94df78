use serde_json::json;

use super::*;

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const WIDGET: (&str, &str) = ("example.dev/v1", "Widget");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn release(name: &str) -> ReleaseId {
    ReleaseId::new("shop", name)
}

fn kind((api_version, kind): (&str, &str)) -> ObjectKind {
    ObjectKind::new(api_version, kind)
}

fn kinds(all: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    all.iter().map(|(api_version, kind)| ((*api_version).to_owned(), (*kind).to_owned())).collect()
}

fn head(name: &str, of: Option<&str>) -> ObjectHead {
    ObjectHead { key: object_key("shop", name), release: of.map(release), version: String::new() }
}

fn record(of: (&str, &str), name: &str) -> ObjectRecord {
    ObjectRecord {
        api_version: of.0.to_owned(),
        kind: of.1.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

fn listed(objects: &[(&str, Option<&str>, ObjectState)]) -> Listed {
    objects
        .iter()
        .map(|(name, of, state)| (object_key("shop", name), (of.map(release), state.clone())))
        .collect()
}

fn starting(reason: &str) -> ObjectState {
    ObjectState::Progressing(reason.to_owned())
}

fn seen(state: ObjectState, since: i64) -> Observation {
    Observation::Seen { state, since: at(since) }
}

/// The Deployments `web` and `db` of releases with these names, listed at second 0.
fn two_releases() -> States {
    let mut states = States::default();
    for name in ["web", "db"] {
        assert_eq!(states.set_kinds(&release(name), kinds(&[DEPLOYMENT])), name == "web");
    }
    let objects = ["web", "db"].map(|name| (name, Some(name), ObjectState::Healthy));
    states.listed(&kind(DEPLOYMENT), listed(&objects), at(0));
    states
}

fn observation(states: &mut States, name: &str, now: i64) -> Observation {
    states.observation(&record(DEPLOYMENT, name), at(now)).0
}

#[test]
fn kinds_are_watched_while_a_release_uses_them() {
    let mut states = States::default();
    let watched = |states: &States| states.watched().iter().map(|kind| kind.kind.clone()).collect::<Vec<_>>();
    assert!(states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP])));
    assert!(!states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP])), "nothing has changed");
    assert!(!states.set_kinds(&release("db"), kinds(&[DEPLOYMENT])), "its kind is watched already");
    assert_eq!(watched(&states), ["Deployment", "ConfigMap"]);
    assert!(states.set_kinds(&release("web"), kinds(&[DEPLOYMENT])));
    assert_eq!(watched(&states), ["Deployment"]);
    assert!(!states.forget(&release("web")));
    assert!(!states.forget(&release("web")));
    assert!(states.forget(&release("db")));
    assert_eq!(watched(&states), Vec::<String>::new());
}

#[test]
fn a_release_is_notified_once_all_its_kinds_were_tried() {
    let mut states = States::default();
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP]));
    states.set_kinds(&release("db"), kinds(&[DEPLOYMENT]));
    let objects = [("web", Some("web"), ObjectState::Healthy)];
    assert_eq!(observation(&mut states, "web", 0), Observation::NotListed);
    assert_eq!(states.listed(&kind(DEPLOYMENT), listed(&objects), at(0)), [release("db")]);
    assert_eq!(states.failed(&kind(CONFIG_MAP)), [release("web")]);
    assert_eq!(states.failed(&kind(CONFIG_MAP)), [], "a further failure is no news");
    assert_eq!(states.listed(&kind(CONFIG_MAP), Listed::new(), at(9)), [release("web")]);
    assert_eq!(states.listed(&kind(CONFIG_MAP), Listed::new(), at(9)), [], "the same again is no news");
    assert_eq!(states.failed(&kind(DEPLOYMENT)), []);
    assert_eq!(
        observation(&mut states, "web", 9),
        seen(ObjectState::Healthy, 0),
        "a broken watch changes nothing"
    );
}

#[test]
fn a_kind_that_is_not_served_tells_nothing() {
    let mut states = two_releases();
    let notified = |releases: Vec<ReleaseId>| releases.into_iter().collect::<BTreeSet<_>>();
    let both = BTreeSet::from([release("db"), release("web")]);
    assert_eq!(notified(states.not_served(&kind(DEPLOYMENT))), both);
    assert_eq!(states.not_served(&kind(DEPLOYMENT)), []);
    assert_eq!(observation(&mut states, "web", 1), Observation::NotListed);
    assert_eq!(notified(states.listed(&kind(DEPLOYMENT), Listed::new(), at(2))), both);
}

#[test]
fn only_changes_that_may_be_reported_cause_a_notification() {
    use ObjectState::{Failed, Healthy, Unknown};
    let failed = |reason: &str| Failed(reason.to_owned());
    // The states of an object at these seconds, and whether the release is notified of the last of them.
    let rows = [
        (vec![(0, Healthy)], true),
        (vec![(0, Healthy), (9, Healthy)], false),
        (vec![(0, Healthy), (9, starting("0 of 1"))], true),
        (vec![(0, Healthy), (9, Unknown)], true),
        (vec![(0, Unknown), (9, starting("0 of 2"))], true),
        (vec![(0, starting("0 of 2")), (9, Healthy)], true),
        (vec![(0, starting("0 of 2")), (29, starting("1 of 2"))], false),
        (vec![(0, starting("0 of 2")), (29, failed("crash"))], false),
        (vec![(0, starting("0 of 2")), (30, starting("0 of 2"))], false),
        (vec![(0, starting("0 of 2")), (30, starting("1 of 2"))], true),
        (vec![(0, starting("0 of 2")), (9, failed("crash")), (30, starting("1 of 2"))], true),
    ];
    for (changes, must_notify) in rows {
        let mut states = two_releases();
        let notified = changes.iter().map(|(second, state)| {
            states.changed(&kind(DEPLOYMENT), head("new", Some("web")), state.clone(), at(*second))
        });
        let expected = if must_notify { vec![release("web")] } else { vec![] };
        assert_eq!(notified.last(), Some(expected), "{changes:?}");
    }
}

#[test]
fn an_object_notifies_the_releases_that_it_may_belong_to() {
    let mut states = two_releases();
    states.set_kinds(&release("other"), kinds(&[CONFIG_MAP]));
    let rows: [(Option<&str>, &[&str]); 4] =
        [(Some("web"), &["web"]), (Some("unknown"), &[]), (Some("other"), &[]), (None, &["db", "web"])];
    for (of, notified) in rows {
        let name = of.unwrap_or("none");
        let mut changed = states.changed(&kind(DEPLOYMENT), head(name, of), starting("0 of 1"), at(1));
        changed.sort();
        let expected: Vec<_> = notified.iter().map(|name| release(name)).collect();
        assert_eq!(changed, expected, "{of:?}");
    }
}

#[test]
fn a_list_is_compared_with_what_was_known() {
    let mut states = two_releases();
    let objects = [("web", Some("web"), ObjectState::Healthy)];
    assert_eq!(states.listed(&kind(DEPLOYMENT), listed(&objects), at(9)), [release("db")]);
    let objects = [("web", Some("web"), starting("0 of 1")), ("db", Some("db"), ObjectState::Healthy)];
    let mut notified = states.listed(&kind(DEPLOYMENT), listed(&objects), at(12));
    notified.sort();
    assert_eq!(notified, [release("db"), release("web")]);
    assert_eq!(observation(&mut states, "web", 20), seen(starting("0 of 1"), 12));
    assert_eq!(states.listed(&kind(DEPLOYMENT), listed(&objects), at(30)), []);
    assert_eq!(observation(&mut states, "web", 30), seen(starting("0 of 1"), 12));
}

#[test]
fn an_object_is_missing_only_if_a_check_confirms_it() {
    let mut states = two_releases();
    assert_eq!(states.deleted(&kind(DEPLOYMENT), &head("web", Some("web")), at(10)), [release("web")]);
    assert_eq!(states.deleted(&kind(DEPLOYMENT), &head("web", Some("web")), at(10)), []);
    assert_eq!(states.next_check(), None, "no release has asked for it");
    let ask = |states: &mut States, now| states.observation(&record(DEPLOYMENT, "web"), at(now));
    assert_eq!(ask(&mut states, 11), (Observation::NotListed, true));
    assert_eq!(ask(&mut states, 11), (Observation::NotListed, false));
    let check = states.next_check().unwrap();
    assert_eq!((check.due, &*check.key), (at(11), "shop/web"));

    assert_eq!(states.checked(&check, None, at(12)), []);
    assert_eq!(ask(&mut states, 12), (Observation::NotListed, false));
    assert_eq!(states.next_check().unwrap().due, at(42), "a check that has failed is repeated");

    assert_eq!(states.checked(&check, Some(false), at(42)), [release("web")]);
    assert_eq!(states.next_check(), None);
    assert_eq!(ask(&mut states, 43), (Observation::Missing { since: at(10) }, false));
    // It is read again, because it may exist without the labels that the watch selects.
    assert_eq!(ask(&mut states, 102), (Observation::Missing { since: at(10) }, true));
    assert_eq!(states.checked(&check, Some(true), at(103)), [release("web")]);
    assert_eq!(ask(&mut states, 1_000), (Observation::NotListed, false));
}

#[test]
fn an_object_that_exists_again_is_not_missing() {
    let mut states = two_releases();
    states.deleted(&kind(DEPLOYMENT), &head("web", Some("web")), at(10));
    observation(&mut states, "web", 11);
    let check = states.next_check().unwrap();
    // The watch shows the object before the answer to the check arrives.
    let again = states.changed(&kind(DEPLOYMENT), head("web", Some("web")), ObjectState::Healthy, at(12));
    assert_eq!(again, [release("web")]);
    assert_eq!(states.checked(&check, Some(false), at(13)), []);
    assert_eq!(observation(&mut states, "web", 13), seen(ObjectState::Healthy, 12));
    states.deleted(&kind(DEPLOYMENT), &head("web", Some("web")), at(500));
    assert_eq!(observation(&mut states, "web", 501), Observation::NotListed, "an old check proves nothing");
}

#[test]
fn a_job_that_is_gone_is_not_checked() {
    let job = ("batch/v1", "Job");
    let mut states = States::default();
    states.set_kinds(&release("web"), kinds(&[job]));
    states.listed(&kind(job), Listed::new(), at(0));
    let expected = (Observation::Missing { since: at(5) }, false);
    assert_eq!(states.observation(&record(job, "migrate"), at(5)), expected);
    assert_eq!(states.next_check(), None);
}

#[test]
fn absent_objects_do_not_grow_without_limit() {
    let mut states = two_releases();
    for n in 0..3_000 {
        let name = format!("pod-{n}");
        states.changed(&kind(DEPLOYMENT), head(&name, Some("web")), ObjectState::Healthy, at(n));
        states.deleted(&kind(DEPLOYMENT), &head(&name, Some("web")), at(n));
    }
    for n in 0..3_000 {
        observation(&mut states, &format!("other-{n}"), 5_000);
    }
    let mut checks = 0;
    while let Some(check) = states.next_check() {
        states.checked(&check, Some(true), at(5_000));
        checks += 1;
    }
    assert!((1..=1_000).contains(&checks), "{checks}");
}

fn checks(current: &str) -> HealthChecks {
    let check = json!({"apiVersion": WIDGET.0, "kind": WIDGET.1, "current": current});
    HealthChecks::compile(&[serde_json::from_value(check).unwrap()])
}

#[test]
fn objects_are_listed_again_when_the_checks_of_their_release_change() {
    let mut states = States::default();
    assert!(!states.set_checks(&release("web"), &checks("true")), "nothing is watched yet");
    for name in ["web", "db"] {
        states.set_kinds(&release(name), kinds(&[WIDGET, DEPLOYMENT]));
    }
    let has_check = |states: &States, name| states.check(&kind(WIDGET), Some(&release(name))).is_some();
    assert_eq!((has_check(&states, "web"), has_check(&states, "db")), (true, false));
    assert!(states.check(&kind(DEPLOYMENT), Some(&release("web"))).is_none());
    assert!(states.check(&kind(WIDGET), None).is_none());
    assert!(states.take_kinds_to_list().is_empty());

    // The list has begun, and may have read objects without the check.
    assert!(states.set_checks(&release("web"), &checks("false")));
    assert!(!states.set_checks(&release("web"), &checks("false")), "nothing has changed");
    assert_eq!(states.take_kinds_to_list(), [Arc::new(kind(WIDGET))].into());
    assert!(states.take_kinds_to_list().is_empty());

    for of in [WIDGET, DEPLOYMENT] {
        states.listed(&kind(of), listed(&[("web", Some("web"), ObjectState::Healthy)]), at(0));
    }
    assert!(!states.set_checks(&release("db"), &checks("true")), "no object of it was read");
    assert!(states.set_checks(&release("web"), &checks("true")));
    assert!(states.set_checks(&release("web"), &HealthChecks::default()));
    assert!(!has_check(&states, "web") && has_check(&states, "db"));
    assert_eq!(states.take_kinds_to_list(), [Arc::new(kind(WIDGET))].into());
    states.forget(&release("db"));
    assert!(!has_check(&states, "db"));
}

mod health_checks;

use std::time::Duration;

use chandler_core::{
    identity::ClusterKey,
    target::{Target, TargetTls},
};

use super::*;
use crate::health::source::Source;

const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

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

fn object(name: &str, of: Option<&str>, state: ObjectState) -> ReadObject {
    ReadObject { head: head(name, of), state, checks_version: 0, fingerprint: None }
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
    let object = |(name, of, state): &(&str, Option<&str>, ObjectState)| {
        (object_key("shop", name), (of.map(release), state.clone()))
    };
    Listed { objects: objects.iter().map(object).collect(), ..Listed::default() }
}

/// A list without an object, because those of some releases were left out.
fn without(releases: &[&str]) -> Listed {
    let mut listed = Listed::default();
    listed.left_out.extend(releases.iter().map(|name| release(name)));
    listed
}

fn source(server: &str) -> Source {
    let target = Target {
        cluster: ClusterKey::new("fleet", "blue"),
        server: server.to_owned(),
        tls: TargetTls::default(),
        auth: None,
        proxy: None,
        request_timeout: Duration::from_secs(10),
        boundary: chandler_core::tenancy::Boundary::default(),
    };
    Source::new(&target, "app=x")
}

fn position(version: &str) -> Position {
    Position { source: Arc::new(source("https://blue")), version: version.to_owned() }
}

/// Takes in a list of Deployments.
fn list(states: &mut States, listed: Listed, now: i64) -> Vec<ReleaseId> {
    states.listed(&kind(DEPLOYMENT), listed, position("1"), at(now))
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
    list(&mut states, listed(&objects), 0);
    states
}

fn observation(states: &mut States, name: &str, now: i64) -> Observation {
    states.observation(&record(DEPLOYMENT, name), at(now)).0
}

#[test]
fn kinds_are_watched_while_a_release_uses_them() {
    let mut states = States::default();
    let watched =
        |states: &mut States| states.watches().0.iter().map(|kind| kind.kind.clone()).collect::<Vec<_>>();
    assert!(states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP])));
    assert!(!states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP])), "nothing has changed");
    assert!(!states.set_kinds(&release("db"), kinds(&[DEPLOYMENT])), "its kind is watched already");
    assert_eq!(watched(&mut states), ["Deployment", "ConfigMap"]);
    assert!(states.set_kinds(&release("web"), kinds(&[DEPLOYMENT])));
    assert_eq!(watched(&mut states), ["Deployment"]);
    assert!(!states.forget(&release("web")));
    assert!(!states.forget(&release("web")));
    assert!(states.forget(&release("db")));
    assert_eq!(watched(&mut states), Vec::<String>::new());
}

#[test]
fn a_release_is_notified_once_all_its_kinds_were_tried() {
    let mut states = States::default();
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP]));
    states.set_kinds(&release("db"), kinds(&[DEPLOYMENT]));
    let objects = [("web", Some("web"), ObjectState::Healthy)];
    assert_eq!(observation(&mut states, "web", 0), Observation::NotListed);
    assert_eq!(list(&mut states, listed(&objects), 0), [release("db")]);
    assert_eq!(states.failed(&kind(CONFIG_MAP)), [release("web")]);
    assert_eq!(states.failed(&kind(CONFIG_MAP)), [], "a further failure is no news");
    assert_eq!(states.listed(&kind(CONFIG_MAP), Listed::default(), position("1"), at(9)), [release("web")]);
    assert_eq!(
        states.listed(&kind(CONFIG_MAP), Listed::default(), position("1"), at(9)),
        [],
        "the same again is no news"
    );
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
    assert_eq!(notified(list(&mut states, Listed::default(), 2)), both);
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
            states.changed(&kind(DEPLOYMENT), object("new", Some("web"), state.clone()), false, at(*second))
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
        let mut changed =
            states.changed(&kind(DEPLOYMENT), object(name, of, starting("0 of 1")), false, at(1));
        changed.sort();
        let expected: Vec<_> = notified.iter().map(|name| release(name)).collect();
        assert_eq!(changed, expected, "{of:?}");
    }
}

#[test]
fn a_list_is_compared_with_what_was_known() {
    let mut states = two_releases();
    let objects = [("web", Some("web"), ObjectState::Healthy)];
    assert_eq!(list(&mut states, listed(&objects), 9), [release("db")]);
    let objects = [("web", Some("web"), starting("0 of 1")), ("db", Some("db"), ObjectState::Healthy)];
    let mut notified = list(&mut states, listed(&objects), 12);
    notified.sort();
    assert_eq!(notified, [release("db"), release("web")]);
    assert_eq!(observation(&mut states, "web", 20), seen(starting("0 of 1"), 12));
    assert_eq!(list(&mut states, listed(&objects), 30), []);
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
    assert_eq!(ask(&mut states, 162), (Observation::NotListed, false));
    // And again, because it may have been deleted since. Then it is missing since the check, and not for longer.
    assert_eq!(ask(&mut states, 163), (Observation::NotListed, true));
    assert_eq!(states.checked(&check, Some(false), at(164)), [release("web")]);
    assert_eq!(ask(&mut states, 165), (Observation::Missing { since: at(164) }, false));
}

#[test]
fn an_object_that_exists_again_is_not_missing() {
    let mut states = two_releases();
    states.deleted(&kind(DEPLOYMENT), &head("web", Some("web")), at(10));
    observation(&mut states, "web", 11);
    let check = states.next_check().unwrap();
    // The watch shows the object before the answer to the check arrives.
    let again =
        states.changed(&kind(DEPLOYMENT), object("web", Some("web"), ObjectState::Healthy), false, at(12));
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
    states.listed(&kind(job), Listed::default(), position("1"), at(0));
    let expected = (Observation::Missing { since: at(5) }, false);
    assert_eq!(states.observation(&record(job, "migrate"), at(5)), expected);
    assert_eq!(states.next_check(), None);
}

#[test]
fn absent_objects_do_not_grow_without_limit() {
    let mut states = two_releases();
    for n in 0..3_000 {
        let name = format!("pod-{n}");
        states.changed(&kind(DEPLOYMENT), object(&name, Some("web"), ObjectState::Healthy), false, at(n));
        states.deleted(&kind(DEPLOYMENT), &head(&name, Some("web")), at(n));
    }
    for n in 0..3_000 {
        observation(&mut states, &format!("other-{n}"), 5_000);
    }
    let answer_all = |states: &mut States, now| {
        let mut checks = 0;
        while let Some(check) = states.next_check() {
            states.checked(&check, Some(true), at(now));
            checks += 1;
        }
        checks
    };
    let checks = answer_all(&mut states, 5_000);
    assert!((1..=1_000).contains(&checks), "{checks}");

    observation(&mut states, "late", 5_100);
    assert_eq!(answer_all(&mut states, 5_100), 0, "a release has asked for all others lately");
    observation(&mut states, "other-0", 9_000);
    observation(&mut states, "late", 9_001);
    assert_eq!(answer_all(&mut states, 9_001), 2, "it takes the place of those that none asks for any more");
}

#[test]
fn objects_of_unknown_releases_are_not_kept() {
    let mut states = two_releases();
    for (name, of) in [("foreign", Some("foreign")), ("managed", Some("managed")), ("any", None)] {
        states.changed(&kind(DEPLOYMENT), object(name, of, ObjectState::Healthy), name == "managed", at(1));
    }
    assert!(matches!(observation(&mut states, "managed", 2), Observation::Seen { .. }));
    assert!(matches!(observation(&mut states, "any", 2), Observation::Seen { .. }));
    assert_eq!(observation(&mut states, "foreign", 2), Observation::NotListed);

    // An object that another release takes over is not kept either.
    let taken = states.changed(&kind(DEPLOYMENT), object("web", Some("other"), starting("")), false, at(3));
    assert_eq!(taken, [release("web")]);
    assert_eq!(observation(&mut states, "web", 3), Observation::NotListed);

    // Nor are those of a release that is not observed any more.
    assert!(matches!(observation(&mut states, "db", 4), Observation::Seen { .. }));
    assert!(!states.forget(&release("db")));
    assert_eq!(observation(&mut states, "db", 4), Observation::NotListed);
}

#[test]
fn a_kind_is_listed_again_for_a_release_whose_objects_were_left_out() {
    let mut states = two_releases();
    let ask = |states: &mut States| states.observation(&record(DEPLOYMENT, "late"), at(5));
    list(&mut states, without(&["late"]), 1);
    assert!(!states.set_kinds(&release("new"), kinds(&[DEPLOYMENT])), "it had no object yet");
    assert!(states.set_kinds(&release("late"), kinds(&[DEPLOYMENT])));
    assert_eq!(states.watches().1, [Arc::new(kind(DEPLOYMENT))].into());
    assert_eq!(states.watches().1, BTreeSet::new(), "the watch begins again once");
    assert_eq!(states.version(&kind(DEPLOYMENT), &source("https://blue")), None, "with a list");
    assert_eq!(ask(&mut states), (Observation::NotListed, false), "no request is needed before");

    // While it was listed, one more release has begun to use the kind.
    states.set_kinds(&release("later"), kinds(&[DEPLOYMENT]));
    list(&mut states, without(&["later", "foreign"]), 6);
    assert!(states.is_outdated(&kind(DEPLOYMENT)));
    let objects = [("late", Some("late"), ObjectState::Healthy)];
    assert!(list(&mut states, listed(&objects), 7).contains(&release("late")));
    assert!(!states.is_outdated(&kind(DEPLOYMENT)));
    assert_eq!(ask(&mut states), (seen(ObjectState::Healthy, 7), false));

    // A release that uses one more kind.
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP]));
    states.listed(&kind(CONFIG_MAP), without(&["late"]), position("1"), at(8));
    assert!(states.set_kinds(&release("late"), kinds(&[DEPLOYMENT, CONFIG_MAP])));
    assert_eq!(states.watches().1, [Arc::new(kind(CONFIG_MAP))].into());
}

#[test]
fn a_watch_continues_at_the_last_version_of_the_same_server() {
    let mut states = States::default();
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT]));
    let version = |states: &States, server| states.version(&kind(DEPLOYMENT), &source(server));
    assert_eq!(version(&states, "https://blue"), None);
    list(&mut states, Listed::default(), 0);
    assert_eq!(version(&states, "https://blue").as_deref(), Some("1"));
    states.advance(&kind(DEPLOYMENT), position("7"));
    assert_eq!(version(&states, "https://blue").as_deref(), Some("7"));
    assert_eq!(version(&states, "https://green"), None, "versions of another server mean nothing");
    states.failed(&kind(DEPLOYMENT));
    assert_eq!(version(&states, "https://blue").as_deref(), Some("7"));
    states.lose_position(&kind(DEPLOYMENT));
    assert_eq!(version(&states, "https://blue"), None);
}

#[test]
fn a_kind_that_is_used_again_is_listed_again() {
    let mut states = States::default();
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT]));
    assert_eq!(states.watches().1, [Arc::new(kind(DEPLOYMENT))].into());
    list(&mut states, Listed::default(), 0);
    let begun = states.begin_list(&kind(DEPLOYMENT));

    // Both happen before the watch is closed.
    assert!(states.forget(&release("web")));
    assert!(states.set_kinds(&release("web"), kinds(&[DEPLOYMENT])));
    let version = |states: &States| states.version(&kind(DEPLOYMENT), &source("https://blue"));
    states.advance(&kind(DEPLOYMENT), position("7"));
    assert_eq!(version(&states), None, "events of the old watch do not replace a list");
    // Nor does a list that has begun before.
    list(&mut states, begun, 1);
    assert!(states.is_outdated(&kind(DEPLOYMENT)));
    assert_eq!(version(&states), None);
    assert_eq!(states.watches().1, [Arc::new(kind(DEPLOYMENT))].into());

    let begun = states.begin_list(&kind(DEPLOYMENT));
    assert_eq!(list(&mut states, begun, 2), [release("web")]);
    assert_eq!(version(&states).as_deref(), Some("1"));
}

#[test]
fn a_watch_that_is_ahead_of_its_server_begins_again() {
    // The version of the watch, that of a later list on the server, and whether the objects are listed again.
    let rows = [("7", "9", false), ("7", "7", false), ("10", "9", true), ("7", "", false), ("x", "1", false)];
    for (watched, listed, lists_again) in rows {
        let mut states = two_releases();
        states.watches();
        states.advance(&kind(DEPLOYMENT), position(watched));
        let versions = states.versions();
        // What the watch shows after the list has begun proves nothing.
        states.advance(&kind(DEPLOYMENT), position("20"));
        assert_eq!(states.list_kinds_ahead(versions, listed), lists_again, "{watched} {listed}");
        assert_eq!(!states.watches().1.is_empty(), lists_again, "{watched} {listed}");
        let version = states.version(&kind(DEPLOYMENT), &source("https://blue"));
        assert_eq!(version.is_none(), lists_again, "{watched} {listed}");
        assert_eq!(observation(&mut states, "web", 1), seen(ObjectState::Healthy, 0));
    }
}

#[test]
fn a_list_confirms_what_was_true_before_it_began() {
    use chandler_core::health::Confirmation::{Confirmed, Impossible, Pending};
    let mut states = States::default();
    let confirm = |states: &mut States, after| states.confirm(&release("web"), at(after));
    let list = |states: &mut States, of, began| {
        let listed = Listed { began: Some(at(began)), ..Listed::default() };
        states.listed(&kind(of), listed, position("1"), at(began + 1))
    };
    assert_eq!(confirm(&mut states, 5), (Pending, false), "the release is not known");
    states.set_kinds(&release("web"), kinds(&[DEPLOYMENT, CONFIG_MAP]));
    list(&mut states, DEPLOYMENT, 4);
    states.watches();
    assert_eq!(confirm(&mut states, 5), (Pending, true), "the list has begun before");
    assert_eq!(states.watches().1, BTreeSet::from([Arc::new(kind(DEPLOYMENT))]));
    assert_eq!(confirm(&mut states, 5), (Pending, false), "it is going to be listed");
    assert_eq!(list(&mut states, DEPLOYMENT, 5), [], "a ConfigMap was not listed yet");
    assert_eq!(confirm(&mut states, 5), (Confirmed, false), "kinds without a status do not matter");
    assert_eq!(confirm(&mut states, 6), (Pending, true));
    assert_eq!(states.refused(&kind(DEPLOYMENT), at(20)), [], "a ConfigMap was not listed yet");
    assert_eq!(confirm(&mut states, 6), (Pending, false), "it may be a matter of seconds");
    list(&mut states, CONFIG_MAP, 6);
    assert_eq!(states.refused(&kind(DEPLOYMENT), at(21)), [release("web")]);
    assert_eq!(states.refused(&kind(DEPLOYMENT), at(22)), [], "nothing has asked since");
    assert_eq!(confirm(&mut states, 6), (Impossible, false));
    list(&mut states, DEPLOYMENT, 23);
    assert_eq!(confirm(&mut states, 6), (Confirmed, false), "it may be read again");
    let absent = states.observation(&record(DEPLOYMENT, "web"), at(24));
    assert_eq!(absent, (Observation::NotListed, true), "whether it exists is being checked");
    assert_eq!(confirm(&mut states, 6), (Pending, false));
    let check = states.next_check().unwrap();
    states.checked(&check, Some(false), at(25));
    assert_eq!(confirm(&mut states, 6), (Confirmed, false));

    states.set_kinds(&release("web"), kinds(&[CONFIG_MAP]));
    assert_eq!(confirm(&mut states, 9), (Pending, true), "one kind shows that the cluster answers");
    assert_eq!(list(&mut states, CONFIG_MAP, 9), [release("web")]);
    assert_eq!(confirm(&mut states, 9), (Confirmed, false));
    states.not_served(&kind(CONFIG_MAP));
    assert_eq!(confirm(&mut states, 9), (Pending, true), "its definition may come");
    states.refused(&kind(CONFIG_MAP), at(30));
    assert_eq!(confirm(&mut states, 9), (Impossible, false));
    states.set_kinds(&release("web"), BTreeSet::new());
    assert_eq!(confirm(&mut states, 9), (Confirmed, false), "there is nothing to list");
}

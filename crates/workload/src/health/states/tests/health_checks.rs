//! What changed health checks mean for the states.

use serde_json::json;

use super::*;

const WIDGET: (&str, &str) = ("example.dev/v1", "Widget");

fn checks(current: &str) -> HealthChecks {
    let check = json!({"apiVersion": WIDGET.0, "kind": WIDGET.1, "current": current});
    HealthChecks::compile(&[serde_json::from_value(check).unwrap()])
}

#[test]
fn objects_are_listed_again_when_the_checks_of_their_release_change() {
    let mut states = States::default();
    let widget = kind(WIDGET);
    assert!(!states.set_checks(&release("web"), &checks("true")), "nothing is watched yet");
    for name in ["web", "db"] {
        states.set_kinds(&release(name), kinds(&[WIDGET, DEPLOYMENT]));
    }
    states.watches();
    let has_check = |states: &States, name| states.check(&kind(WIDGET), Some(&release(name))).is_some();
    assert_eq!((has_check(&states, "web"), has_check(&states, "db")), (true, false));
    assert!(states.check(&kind(DEPLOYMENT), Some(&release("web"))).is_none());
    assert!(states.check(&widget, None).is_none());

    // A list that has begun before is repeated.
    let objects = [("web", Some("web"), ObjectState::Healthy)];
    let list = |states: &mut States, begun: Listed| {
        states.listed(
            &kind(WIDGET),
            Listed { objects: listed(&objects).objects, ..begun },
            position("1"),
            at(0),
        );
        states.is_outdated(&kind(WIDGET))
    };
    let begun = states.begin_list(&kind(WIDGET));
    assert!(!states.set_checks(&release("web"), &checks("false")));
    assert!(list(&mut states, begun));
    let begun = states.begin_list(&kind(WIDGET));
    assert!(!list(&mut states, begun));
    let begun = states.begin_list(&kind(WIDGET));
    states.listed(&kind(DEPLOYMENT), begun, position("1"), at(0));

    assert!(!states.set_checks(&release("web"), &checks("false")), "nothing has changed");
    assert!(!states.set_checks(&release("db"), &checks("true")), "no object of it was read");
    assert!(states.watches().1.is_empty());
    assert!(states.set_checks(&release("web"), &checks("true")));
    assert_eq!(states.watches().1, [Arc::new(widget.clone())].into());
    assert_eq!(states.version(&widget, &source("https://blue")), None, "the watch begins with a list");
    let begun = states.begin_list(&kind(WIDGET));
    assert!(!list(&mut states, begun));
    assert!(states.set_checks(&release("web"), &HealthChecks::default()));
    assert!(!has_check(&states, "web") && has_check(&states, "db"));
    states.forget(&release("db"));
    assert!(!has_check(&states, "db"));
}

fn widget(states: &mut States, name: &str) -> Observation {
    states.observation(&record(WIDGET, name), at(9)).0
}

/// Reads a list of the Widgets `web` and `db` of releases with these names. Returns whether it has to be repeated.
fn list_widgets(states: &mut States, begun: Listed) -> bool {
    let objects = ["web", "db"].map(|name| (name, Some(name), ObjectState::Healthy));
    let listed = Listed { objects: listed(&objects).objects, ..begun };
    states.listed(&kind(WIDGET), listed, position("1"), at(0));
    states.is_outdated(&kind(WIDGET))
}

/// The Widgets `web` and `db`. The release `web` was not reconciled yet, but its object is kept because Chandler manages it.
fn widgets() -> States {
    let mut states = States::default();
    states.set_kinds(&release("db"), kinds(&[WIDGET]));
    let begun = states.begin_list(&kind(WIDGET));
    assert!(!list_widgets(&mut states, begun));
    states.watches();
    states
}

#[test]
fn the_state_of_an_object_that_was_read_with_other_checks_is_not_known() {
    // The check that the release gets, and whether its object is known then.
    let rows = [(checks("true"), false), (HealthChecks::default(), true)];
    for (new, is_known) in rows {
        let mut states = widgets();
        assert_eq!(states.set_checks(&release("web"), &new), !is_known);
        states.set_kinds(&release("web"), kinds(&[WIDGET]));
        let healthy = seen(ObjectState::Healthy, 0);
        let expected = if is_known { healthy.clone() } else { Observation::NotListed };
        assert_eq!(widget(&mut states, "web"), expected, "{is_known}");
        assert_eq!(widget(&mut states, "db"), healthy, "other releases have other checks");

        // An event shows the object with the new checks, and so does a list.
        let checks_version = states.checks_version();
        let read = ReadObject { checks_version, ..object("web", Some("web"), ObjectState::Healthy) };
        let notified = states.changed(&kind(WIDGET), read, false, at(5));
        assert_eq!(notified.is_empty(), is_known, "{is_known}");
        assert_eq!(widget(&mut states, "web"), healthy);
        let begun = states.begin_list(&kind(WIDGET));
        assert!(!list_widgets(&mut states, begun));
        assert_eq!(widget(&mut states, "web"), healthy);
    }
}

#[test]
fn a_list_is_repeated_if_it_shows_objects_whose_checks_have_changed() {
    // The release whose checks change, and whether the list is repeated.
    for (name, is_repeated) in [("web", true), ("db", true), ("other", false)] {
        let mut states = widgets();
        let begun = states.begin_list(&kind(WIDGET));
        states.set_checks(&release(name), &checks("true"));
        assert_eq!(list_widgets(&mut states, begun), is_repeated, "{name}");
        for shown in ["web", "db"] {
            assert_eq!(widget(&mut states, shown) == Observation::NotListed, shown == name, "{name} {shown}");
        }
        let begun = states.begin_list(&kind(WIDGET));
        assert!(!list_widgets(&mut states, begun), "{name}");
    }
}

#[test]
fn a_list_that_has_begun_with_the_checks_of_a_forgotten_release_is_repeated() {
    let mut states = widgets();
    states.set_kinds(&release("web"), kinds(&[WIDGET]));
    states.set_checks(&release("web"), &checks("true"));
    let begun = states.begin_list(&kind(WIDGET));
    assert!(!list_widgets(&mut states, begun));
    let begun = states.begin_list(&kind(WIDGET));
    states.forget(&release("web"));
    assert!(list_widgets(&mut states, begun));
}

#[test]
fn a_check_that_changes_while_an_event_is_read_is_not_lost() {
    // The release whose checks change meanwhile, and whether the kind is listed again.
    for (name, lists_again) in [("new", true), ("other", false)] {
        let mut states = widgets();
        let checks_version = states.checks_version();
        assert!(!states.set_checks(&release(name), &checks("true")), "no object of it was read");
        let read = ReadObject { checks_version, ..object("new", Some("new"), ObjectState::Healthy) };
        states.changed(&kind(WIDGET), read, true, at(5));
        assert_eq!(states.must_list_again(), lists_again, "{name}");
        assert_eq!(states.is_outdated(&kind(WIDGET)), lists_again, "{name}");
        assert_eq!(widget(&mut states, "new") == Observation::NotListed, lists_again, "{name}");
    }
}

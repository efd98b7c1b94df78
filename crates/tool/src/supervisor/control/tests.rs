use super::*;

fn cause(is_memory: bool) -> DeathCause {
    DeathCause { text: "killed".to_owned(), is_memory }
}

#[test]
fn only_a_call_that_ran_alone_has_ended_the_process() {
    let rows = [
        // In flight, busy; memory; the call is busy, and has its turn to run alone; it is the cause.
        ((1, 1), true, (true, false), true),
        ((3, 1), false, (true, false), true),
        ((3, 1), true, (true, false), false),
        ((3, 1), true, (true, true), true),
        ((3, 1), false, (false, false), false),
        ((2, 2), false, (true, true), false),
        ((1, 0), true, (false, false), true),
        ((2, 0), false, (false, false), false),
    ];
    for ((in_flight, busy), is_memory, (is_busy, alone), expected) in rows {
        let death = Death { cause: cause(is_memory), in_flight, busy, is_unclear: false };
        assert_eq!(death.is_caused_by(is_busy, alone), expected, "{death:?}");
        let unclear = Death { is_unclear: true, ..death };
        assert!(!unclear.is_caused_by(is_busy, alone), "{unclear:?}");
    }
}

#[test]
fn a_process_with_calls_is_not_ended_as_idle_and_ends_with_the_last_one() {
    let controls = Controls::default();
    let guard = controls.add("team-a", 0, None, None);
    let control = guard.control();
    let (first, second) = (control.begin().unwrap(), control.begin().unwrap());
    assert!(!control.end_if_idle(Duration::ZERO));
    first.set_busy(false);
    control.set_death(Some(cause(false)));
    assert_eq!(control.death().map(|death| (death.in_flight, death.busy)), Some((2, 1)));
    control.retire();
    assert!(control.begin().is_none() && !control.end.is_cancelled());
    drop((first, second));
    assert!(control.end.is_cancelled());
    assert_eq!(controls.running_of("team-a").len(), 1);
    drop(guard);
    assert!(controls.running().is_empty());
}

#[test]
fn a_call_that_works_again_after_a_hook_is_busy_again() {
    let controls = Controls::default();
    let guard = controls.add("team-a", 0, None, None);
    let (hook, other) = (guard.control().begin().unwrap(), guard.control().begin().unwrap());
    for busy in [false, false, true, true] {
        hook.set_busy(busy);
    }
    guard.control().set_death(Some(cause(false)));
    let death = guard.control().death().unwrap();
    assert!(!death.is_caused_by(other.is_busy(), false), "the hook's operation may be the cause");
}

#[test]
fn no_call_is_blamed_if_one_that_was_given_up_may_still_run() {
    let controls = Controls::default();
    let guard = controls.add("team-a", 0, None, None);
    let (given_up, other) = (guard.control().begin().unwrap(), guard.control().begin().unwrap());
    guard.control().abandon_call();
    drop(given_up);
    assert!(guard.control().begin().is_none(), "it gets no more calls");
    guard.control().set_death(Some(cause(false)));
    assert!(!guard.control().death().unwrap().is_caused_by(other.is_busy(), true));
}

#[tokio::test]
async fn an_idle_process_ends_even_if_the_caller_is_canceled() {
    let controls = Controls::default();
    let guard = controls.add("team-a", 0, None, None);
    assert!(guard.control().end_if_idle(Duration::ZERO));
    assert!(!guard.control().end_if_idle(Duration::ZERO), "once");
    guard.control().ended().await;
}

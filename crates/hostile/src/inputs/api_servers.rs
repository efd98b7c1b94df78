//! Responses of API servers of workload clusters, which the manager and the Helm driver read.

use std::net::SocketAddr;

use anyhow::ensure;
use chandler_sandbox::hostile::api_server::Attack;

use super::{input, needing};
use crate::{Attempt, Input, Lab, Needs};

/// The reason if a response is not what was requested. Nothing of it is quoted.
const UNREADABLE: &str = "answered something else than the objects that were requested";
/// The longest reason, because reasons get into the status of objects.
const MAX_REASON: usize = 2_000;

const fn response(
    name: &'static str,
    what: &'static str,
    because: &'static str,
    run: fn(&Lab) -> Attempt,
) -> Input {
    input("API server", name, what, because, run)
}

const fn slowly(input: Input) -> Input {
    needing(Needs::Time, input)
}

const fn read_by_driver(input: Input) -> Input {
    needing(Needs::Driver, input)
}

pub(super) const INPUTS: &[Input] = &[
    slowly(response("endless list", "a list never ends", "a response has more than 16 MiB", endless_list)),
    slowly(response("endless pages", "each page of a list promises another one", UNREADABLE, endless_pages)),
    response("endless error", "an error never ends", "is not a status of Kubernetes", endless_error),
    response(
        "endless event",
        "an event of a watch never ends",
        "an event of a watch has more than 4 MiB",
        endless_event,
    ),
    response("many objects", "a list of five million empty objects", UNREADABLE, many_objects),
    response(
        "many fields",
        "an event of an object with five million empty fields",
        "an event of a watch has more than 4 MiB",
        many_fields,
    ),
    response("nested", "a list with a label of 50,000 nested lists", UNREADABLE, nested),
    response("long version", "a list with a version of 15 MiB", UNREADABLE, long_version),
    response("long message", "an error with a message of 60,000 characters", "forbids it: xxx", long_message),
    response("long header", "a header of 8 MiB", "message head is too large", long_header),
    response("text", "a list that is a text", UNREADABLE, text),
    response("error event", "an event with the message of another server", UNREADABLE, error_event),
    slowly(response("silent", "reads requests, and does not answer", "no response within 21s", silent)),
    slowly(response("slow", "sends a byte of a list every 100 ms", "cannot be reached", slow)),
    response(
        "redirect",
        "redirects the manager to an internal server",
        "redirects to another address",
        redirect,
    ),
    read_by_driver(response(
        "endless discovery",
        "the discovery of its APIs, which the driver reads, never ends",
        "has more than 16 MiB, which is not read",
        endless_discovery,
    )),
    read_by_driver(response(
        "nested discovery",
        "the discovery of its APIs is 50,000 nested lists",
        "exceeded max depth",
        nested_discovery,
    )),
    read_by_driver(response(
        "redirect of the driver",
        "redirects the driver to an internal server",
        "redirects to another address",
        redirect_of_driver,
    )),
];

fn endless_list(lab: &Lab) -> Attempt {
    lab.follow(Attack::EndlessLists)
}

fn endless_pages(lab: &Lab) -> Attempt {
    lab.follow(Attack::EndlessPages)
}

fn endless_error(lab: &Lab) -> Attempt {
    lab.follow(Attack::EndlessErrors)
}

fn endless_event(lab: &Lab) -> Attempt {
    lab.follow(Attack::EndlessEvents)
}

fn many_objects(lab: &Lab) -> Attempt {
    lab.follow(Attack::ManyObjects)
}

fn many_fields(lab: &Lab) -> Attempt {
    lab.follow(Attack::ManyFields)
}

fn nested(lab: &Lab) -> Attempt {
    lab.follow(Attack::NestedLists)
}

fn long_version(lab: &Lab) -> Attempt {
    lab.follow(Attack::LongVersion)
}

fn long_message(lab: &Lab) -> Attempt {
    let reason = lab.follow(Attack::LongErrors)?;
    let length = reason.as_ref().map_or(0, String::len);
    ensure!(length < MAX_REASON, "the reason has {length} bytes");
    Ok(reason)
}

fn long_header(lab: &Lab) -> Attempt {
    lab.follow(Attack::LongHeaders)
}

fn text(lab: &Lab) -> Attempt {
    lab.follow(Attack::Text)
}

fn error_event(lab: &Lab) -> Attempt {
    lab.follow(Attack::ErrorEvent)
}

fn silent(lab: &Lab) -> Attempt {
    lab.follow(Attack::Silence)
}

fn slow(lab: &Lab) -> Attempt {
    lab.follow(Attack::SlowLists)
}

fn redirect(lab: &Lab) -> Attempt {
    redirected(lab, Attack::RedirectManager, Lab::follow)
}

fn endless_discovery(lab: &Lab) -> Attempt {
    lab.observe(Attack::EndlessDiscovery)
}

fn nested_discovery(lab: &Lab) -> Attempt {
    lab.observe(Attack::NestedDiscovery)
}

fn redirect_of_driver(lab: &Lab) -> Attempt {
    redirected(lab, Attack::RedirectDriver, Lab::observe)
}

/// Redirects to a server at an address that is allowed, but must not be reached because an API server asks for it.
fn redirected(lab: &Lab, attack: fn(SocketAddr) -> Attack, read: fn(&Lab, Attack) -> Attempt) -> Attempt {
    let internal = lab.internal_server()?;
    let attempt = read(lab, attack(internal.address()))?;
    ensure!(internal.connections() == 0, "the redirect was followed");
    Ok(attempt)
}

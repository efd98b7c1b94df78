//! The cases, by topic.

mod anywhere;
mod cancel;
mod changeover;
mod crash;
mod crds;
mod hooks;
mod lifecycle;
mod marks;
mod methods;
mod ownership;
mod packages;
mod process;
mod reach;
mod templates;
mod values;
mod waiting;

use super::Case;

/// Every case, in the order in which a person would try things.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        packages::CASES,
        values::CASES,
        lifecycle::CASES,
        marks::CASES,
        hooks::CASES,
        waiting::CASES,
        ownership::CASES,
        methods::CASES,
        changeover::CASES,
        crds::CASES,
        crash::CASES,
        cancel::CASES,
        anywhere::CASES,
        reach::CASES,
        process::CASES,
        templates::CASES,
    ]
    .into_iter()
    .flatten()
}

//! The cases, by topic.

mod anywhere;
mod apis;
pub mod boundary;
mod builds;
mod bundles;
mod cancel;
mod crash;
mod drift;
mod helm;
mod lifecycle;
mod marks;
mod ownership;
mod packages;
mod process;
mod reach;
mod records;
mod render;
mod rollback;
mod templates;
mod values;
mod waiting;

use super::Case;

/// Returns every case: first the contract, then templates, then Helm.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let contract = [
        packages::CASES,
        values::CASES,
        lifecycle::CASES,
        records::CASES,
        marks::CASES,
        waiting::CASES,
        ownership::CASES,
        rollback::CASES,
        drift::CASES,
        render::CASES,
        apis::CASES,
        bundles::CASES,
        boundary::CASES,
        crash::CASES,
        cancel::CASES,
        anywhere::CASES,
        reach::CASES,
        process::CASES,
        templates::CASES,
        builds::CASES,
    ];
    contract.into_iter().chain(helm::TOPICS).flatten()
}

//! What Helm charts and agreement with the helm CLI require of a tool that declares `helm-records`.

mod agreement;
mod boundary;
mod cancel;
mod changeover;
mod crash;
mod crds;
mod drift;
mod hooks;
mod marks;
mod methods;
mod ownership;
mod packages;
mod process;
mod reach;
mod render;
mod test_hooks;
mod values;

use crate::Case;

/// The Helm topics.
pub const TOPICS: [&[Case]; 17] = [
    packages::CASES,
    values::CASES,
    agreement::CASES,
    marks::CASES,
    hooks::CASES,
    test_hooks::CASES,
    render::CASES,
    ownership::CASES,
    methods::CASES,
    changeover::CASES,
    crds::CASES,
    boundary::CASES,
    drift::CASES,
    crash::CASES,
    cancel::CASES,
    reach::CASES,
    process::CASES,
];

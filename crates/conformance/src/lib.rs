//! The conformance suite: checks against a real API server that a package tool fulfills the contract.
//!
//! Every tool must pass the contract topics. The Helm topics, whose case names start with `helm/`, check what the helm
//! CLI and Helm charts require; they run only for tools that declare the capability `helm-records`.
//!
//! The suite uses the contract's own messages, not Chandler's types, and gets its cluster as an [`Environment`].

/// Ends a case with a contract violation unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::CaseError::Violation(format!($($message)+)));
        }
    };
}

/// A case: its name, the abilities that it needs, its function, and what it checks.
macro_rules! case {
    ($name:literal, [$($ability:ident),*], $function:path, $proves:literal) => {
        $crate::Case {
            name: $name,
            proves: $proves,
            needs: &[$($crate::Ability::$ability),*],
            run: |context| Box::pin($function(context)),
        }
    };
}

mod agreement;
mod bundle;
mod chart;
mod context;
mod custom_resources;
mod environment;
mod error;
mod helm;
mod hold;
mod network;
mod objects;
mod package;
mod packer;
mod profile;
mod records;
mod report;
mod request;
mod runner;
mod tool;
mod topics;

use std::pin::Pin;

use self::context::Context;
pub use self::{
    environment::{BoxError, Environment, Host, Request, RequestReader},
    error::CaseError,
    package::TestPackage,
    report::{CaseReport, Outcome, Report},
    runner::run,
};

type CaseFuture<'a> = Pin<Box<dyn Future<Output = Result<(), CaseError>> + Send + 'a>>;

/// One check of the contract.
struct Case {
    /// `topic/name`, or `helm/topic/name`.
    name: &'static str,
    /// What the case checks, as a sentence.
    proves: &'static str,
    /// The abilities that the tool must have. Without one of them the case is skipped.
    needs: &'static [Ability],
    run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
}

/// An optional ability of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ability {
    Hooks,
    Wait,
    ServerSideApply,
    TakeOwnership,
    Crds,
    Rollback,
    Compare,
    Test,
    Render,
    Impersonate,
    ObjectRules,
    /// The helm CLI reads the tool's releases, and the tool reads Helm charts.
    HelmRecords,
    /// Not a capability: the tool declares the format `manifests/v1`.
    Manifests,
    /// Not declared by the tool: the environment names the process that serves templates.
    Templates,
}

impl Ability {
    /// Returns the capability's name in `Describe`.
    fn name(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::Wait => "wait",
            Self::ServerSideApply => "server-side-apply",
            Self::TakeOwnership => "take-ownership",
            Self::Crds => "crds",
            Self::Rollback => "rollback",
            Self::Compare => "compare",
            Self::Test => "test",
            Self::Render => "render",
            Self::Impersonate => "impersonate",
            Self::ObjectRules => "object-rules",
            Self::HelmRecords => "helm-records",
            Self::Manifests => "manifests",
            Self::Templates => "templates",
        }
    }

    /// Says why a case that needs the ability is skipped.
    fn missing(self) -> String {
        match self {
            Self::Manifests => "the tool does not declare the format manifests/v1".to_owned(),
            Self::Templates => "no template service is given".to_owned(),
            declared => format!("the tool does not declare the capability {}", declared.name()),
        }
    }
}

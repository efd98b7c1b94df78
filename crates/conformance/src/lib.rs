//! The conformance suite: what any package tool owes Chandler, proven against a real API server.
//!
//! The suite speaks the contract's own messages, not Chandler's types, so that it proves the contract and nothing
//! else. It knows no sandbox either: whoever runs it lends it a cluster as an [`Environment`].

/// Ends a case with what the tool did wrong.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::CaseError::Broken(format!($($message)+)));
        }
    };
}

/// One line of a table of cases.
macro_rules! case {
    ($name:literal, $needs:expr, $function:path, $proves:literal) => {
        $crate::Case {
            name: $name,
            proves: $proves,
            needs: $needs,
            run: |context| Box::pin($function(context)),
        }
    };
}

mod chart;
mod context;
mod environment;
mod error;
mod helm;
mod network;
mod objects;
mod order;
mod report;
mod runner;
mod tool;
mod topics;

use std::pin::Pin;

use self::context::Context;
pub use self::{
    environment::{BoxError, Environment, Host, Request, RequestReader},
    error::CaseError,
    report::{CaseReport, Outcome, Report},
    runner::run,
};

type CaseFuture<'a> = Pin<Box<dyn Future<Output = Result<(), CaseError>> + Send + 'a>>;

/// One thing a tool owes.
struct Case {
    /// `topic/name`.
    name: &'static str,
    /// In a sentence.
    proves: &'static str,
    /// Which ability the tool must have for the case to make sense.
    needs: Option<Ability>,
    run: for<'a> fn(&'a Context) -> CaseFuture<'a>,
}

/// What a tool may lack without breaking the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ability {
    Hooks,
    Wait,
    ServerSideApply,
    TakeOwnership,
    Crds,
    /// Not declared: found out by asking.
    Templates,
}

impl Ability {
    /// As Describe names it.
    fn word(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::Wait => "wait",
            Self::ServerSideApply => "server-side-apply",
            Self::TakeOwnership => "take-ownership",
            Self::Crds => "crds",
            Self::Templates => "the template service",
        }
    }
}

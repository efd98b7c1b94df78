//! A release of a package on one cluster: its desired state, the plan to reach it, and the status.

mod addon_release;
mod claim;
mod desired;
mod failures;
mod helm_release_proxy;
mod history;
mod installed;
mod kind;
mod operation;
mod plan;
mod report;
mod rollback_request;
mod state;
mod test_hooks;
mod tool;
mod values_owner;
mod values_secret;

pub use claim::{Claimant, Collision};
pub use desired::{
    Desired, ExecutionOptions, PackageReference, RenderingOptions, SecretKey, SourceAccess, SourceFolder,
    Strategy, VALUES_KEY, Values, ValuesReuse, replaces_unsafe_crds,
};
pub use failures::{past_failure, record_failure, retry_requested_at};
pub(crate) use helm_release_proxy::strategy as helm_strategy;
pub use history::history;
pub use installed::installed_version;
pub use kind::ReleaseKind;
pub use operation::{ApplyKind, Operation, OperationKind};
#[cfg(test)]
pub(crate) use plan::fixtures;
pub use plan::{
    ClusterState, InFlight, InputState, InventoryState, Observed, OperationPhase, PastFailure, Plan,
    RemoveFinalizer, RolledBackCause, Step, Wait, failure_key, hold_install, impossible_rollback, plan,
};
pub(crate) use report::unhealthy_object;
pub use report::{ANOTHER_NAME, Findings, Progress, Report, keep_health_message, report, wait_text};
pub use rollback_request::{RequestedRollback, RollbackOrigin, RollbackRequest};
pub use state::State;
pub use test_hooks::{PackageTest, TestNeed, TestReport, test_record};
pub use tool::{RecordState, ToolChoice, check_same_tool, tool_with_record};
pub use values_owner::{VALUES_SECRET_TYPE, may_write_values, values_secret_name_of};
pub(crate) use values_secret::refer_to_values;
pub use values_secret::{
    StoredValues, awaits_policy_values, has_values_of_policy, must_write_values, unused_values_secret,
};

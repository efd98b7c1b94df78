//! Clients of package tools and of the template service, and the supervision of their processes.

mod build;
mod client;
mod convert;
mod description_cache;
mod namespaces;
mod order;
mod supervisor;
mod template;
mod tools;

/// Code generated from `proto/`.
#[allow(
    clippy::large_enum_variant,
    clippy::pedantic,
    unused_qualifications,
    reason = "generated code is not written by hand"
)]
pub mod generated {
    /// `chandler.tool.v1`
    pub mod tool {
        include!("generated/chandler.tool.v1.rs");
    }
    /// `chandler.template.v1`
    pub mod template {
        include!("generated/chandler.template.v1.rs");
    }
}

pub use build::{BuildInput, BuiltObject};
pub use chandler_core::release::ApplyKind;
pub use client::{
    Applied, OperationFailure, PackageTool, ReleaseDetails, RenderedRelease, StepReport, ToolDescription,
};
pub use convert::target as target_message;
pub use order::{ApplyOrder, CompareOrder, PackageFile, RemoveOrder, RenderOrder, RollbackOrder, TestOrder};
pub use supervisor::{ProcessGuard, ProcessUser, Service, Supervisor, SupervisorConfig, ToolError};
pub use template::{RenderFailure, TemplateService};
pub use tools::Tools;

//! Placements: objects that install a package on clusters. Which clusters they select, which release objects they need,
//! and their status.

mod changes;
mod extension_instance;
mod helm_chart_proxy;
mod kind;
mod kubernetes_follower;
mod kubernetes_versions;
mod report;
mod selection;
mod source_progress;
mod template_paths;
mod templates;

pub use changes::{Change, changes};
pub use extension_instance::{ReleaseContent, addon_release, addon_release_name, pin, release_identity};
pub use helm_chart_proxy::{
    VALUES_FROM, composed_release_object, has_package_of, release_object, rendered_release_object,
};
pub use kind::PlacementKind;
pub use kubernetes_follower::{
    FollowerOutcome, Kept, KubernetesFollower, UpgradeAnswer, after_control_plane, before_upgrade,
};
pub use kubernetes_versions::{KubernetesVersions, KubernetesVersionsError, NoVersion};
pub use report::{ClusterFailure, DeleteFailure, PlacementSummary, report};
pub use selection::{Selection, SelectionError};
pub use source_progress::{SourceChecks, revisions_text};
pub use templates::{
    RENDERED_FROM_ANNOTATION, Rendering, TemplateObjects, refers_to, render_inputs, rendering,
    visible_to_templates,
};

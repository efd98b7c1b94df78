//! A placement puts a package on clusters: which ones, with which release objects, and what to say about it.

mod changes;
mod extension_instance;
mod helm_chart_proxy;
mod kind;
mod report;
mod selection;
mod templates;

pub use changes::{Change, changes};
pub use extension_instance::{Content, addon_release, addon_release_name, release_identity};
pub use helm_chart_proxy::release_object;
pub use kind::PlacementKind;
pub use report::{ClusterFailure, Outcome, report};
pub use selection::{Selection, SelectionError};
pub use templates::{
    RENDERED_FROM_ANNOTATION, Rendering, TemplateObjects, looks_at, render_inputs, rendering, visible,
};

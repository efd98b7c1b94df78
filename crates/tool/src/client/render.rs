//! Rendered objects of releases.

use std::time::Duration;

use chandler_core::{
    change_plan::{ObjectRole, ReleaseObject},
    digest::Digest,
    failure::{Category, Failure},
};

use super::{PackageTool, ReleaseDetails, broken, checked, client, traced};
use crate::{
    convert,
    generated::tool::{self as proto, render_response::Outcome},
    order::RenderOrder,
};

/// The capability of tools that can render.
const CAPABILITY: &str = "render";
/// Limit of a call: templates may read from the cluster.
const LIMIT: Duration = Duration::from_mins(3);

/// The objects that an install or upgrade would apply, and those that are there now.
#[derive(Clone, Debug)]
pub struct RenderedRelease {
    /// The newest revision. `None` means that the cluster has no such release.
    pub newest: Option<ReleaseDetails>,
    /// The revision whose objects an upgrade changes. `None` means that the release does not exist or is uninstalled.
    pub base: Option<ReleaseDetails>,
    pub base_objects: Vec<ReleaseObject>,
    pub objects: Vec<ReleaseObject>,
    /// Of the values that the next revision would record. `None` if nothing was rendered.
    pub values: Option<Digest>,
    pub package_version: String,
}

impl PackageTool {
    /// Renders what an install or upgrade would apply. Changes nothing on the cluster.
    pub async fn render(&self, order: RenderOrder) -> Result<RenderedRelease, Failure> {
        let description = self.description().await?;
        if !description.capabilities.iter().any(|one| one == CAPABILITY) {
            let message = format!("the package tool {} cannot render what it would apply", description.name);
            return Err(Failure::new(Category::InvalidPackage, message));
        }
        let guard = self.acquire(format!("{} {}", order.target.server, order.release)).await?;
        let mut request = traced(render_request(order));
        request.set_timeout(LIMIT);
        let answer = checked(&guard, client(&guard).render(request).await).await?;
        match answer.outcome {
            Some(Outcome::Rendered(rendered)) => rendered_release(rendered),
            Some(Outcome::Failure(failure)) => Err(convert::failure(&failure)),
            None => Err(broken("Render")),
        }
    }
}

fn render_request(order: RenderOrder) -> proto::RenderRequest {
    let RenderOrder { target, release, package, values, rendering, execution } = order;
    proto::RenderRequest {
        target: Some(convert::target(&target)),
        release: Some(convert::release(&release)),
        package: package.as_ref().map(convert::package),
        values: vec![convert::values(&values)],
        options: Some(convert::apply_options(&rendering, &execution)),
    }
}

fn rendered_release(rendered: proto::RenderedRelease) -> Result<RenderedRelease, Failure> {
    let proto::RenderedRelease { newest, base, base_objects, objects, values_digest, package_version } =
        rendered;
    Ok(RenderedRelease {
        newest: newest.map(convert::details),
        base: base.map(convert::details),
        base_objects: base_objects.into_iter().map(release_object).collect::<Result<_, _>>()?,
        objects: objects.into_iter().map(release_object).collect::<Result<_, _>>()?,
        values: Digest::parse(&values_digest),
        package_version,
    })
}

fn release_object(object: proto::RenderedObject) -> Result<ReleaseObject, Failure> {
    let role = match object.role() {
        proto::ObjectRole::Unspecified => ObjectRole::Object,
        proto::ObjectRole::Hook => ObjectRole::Hook,
        proto::ObjectRole::Crd => ObjectRole::Crd,
    };
    let record = convert::object(object.object.unwrap_or_default());
    // The message of the parser may quote the content.
    let content = serde_json::from_slice(&object.json).map_err(|_| {
        let message = format!("the package tool breaks the contract: Render returned no JSON for {record}");
        Failure::new(Category::Internal, message)
    })?;
    Ok(ReleaseObject { object: record, role, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(role: i32, json: &str) -> Result<ReleaseObject, Failure> {
        release_object(proto::RenderedObject { object: None, role, json: json.as_bytes().to_vec() })
    }

    #[test]
    fn an_unknown_role_is_that_of_an_object() {
        let role = |role| rendered(role, "{}").map(|object| object.role);
        assert_eq!(role(proto::ObjectRole::Hook.into()), Ok(ObjectRole::Hook));
        assert_eq!(role(1000), Ok(ObjectRole::Object), "a newer tool");
    }

    #[test]
    fn a_message_about_content_does_not_quote_it() {
        let failure = rendered(0, "canary").unwrap_err();
        assert!(!failure.message.contains("canary"), "{failure}");
    }
}

//! The attacks that cost others something, by what they attack.

mod charts;
mod clusters;
mod dependencies;
mod floods;
mod hooks;
mod packages;
mod platform;
mod repositories;
mod templates;

use anyhow::Result;

use super::attack::{Attack, Site};

pub use self::platform::offer;

/// Prepares all attacks.
pub async fn all(site: &Site<'_>) -> Result<Vec<Attack>> {
    Ok(vec![
        repositories::attack(site).await?,
        packages::attack(site).await?,
        charts::attack(site).await?,
        templates::attack(site),
        clusters::attack(site).await?,
        floods::attack(site).await?,
        dependencies::attack(site),
        platform::attack(site),
        hooks::attack(site.hooks),
    ])
}

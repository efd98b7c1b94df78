//! What a registry offers: its charts, their versions, and what those tell about themselves.

use chandler_core::{digest::Digest, release::PackageReference};
use reqwest::{
    Url,
    header::{HeaderMap, LINK},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    MOST_PAGES, PER_PAGE, Registries, below, home, not_a_package, session::Session, tagged, untagged,
};
use crate::{Access, SourceError, index::Published};

const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Answers of registries that do not list what they have, or not to everyone.
const NOT_LISTED: [u16; 6] = [401, 403, 404, 405, 410, 501];

#[derive(Deserialize)]
struct Tags {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Repositories {
    #[serde(default)]
    repositories: Option<Vec<String>>,
}

impl Registries {
    /// What is directly below an address. Whether these are charts, they tell themselves.
    pub async fn listed(&self, repository: &str, access: &Access) -> Result<Vec<String>, SourceError> {
        let bad = || SourceError::BadAddress { url: repository.to_owned() };
        let home = home(&chart(repository, "x"))?.join("../").map_err(|_| bad())?;
        let folder = home.path().strip_prefix("/v2/").ok_or_else(bad)?.to_owned();
        let url = home.join("/v2/_catalog").map_err(|_| bad())?;
        let mut session = self.session(&home, access)?;
        let pages = self.pages::<Repositories>(&mut session, url).await;
        let pages = pages.map_err(|error| match error {
            SourceError::Status { status, .. } if NOT_LISTED.contains(&status) => {
                SourceError::NotListed { url: repository.to_owned(), status }
            }
            other => other,
        })?;
        let all = pages.into_iter().flat_map(|page| page.repositories.unwrap_or_default());
        let inside = all.filter_map(|path| path.strip_prefix(&folder).map(str::to_owned));
        Ok(inside.filter(|name| !name.is_empty() && !name.contains('/')).collect())
    }

    /// All versions of a chart.
    pub async fn published(
        &self,
        repository: &str,
        name: &str,
        access: &Access,
    ) -> Result<Vec<String>, SourceError> {
        let home = home(&chart(repository, name))?;
        self.versions(&mut self.session(&home, access)?).await
    }

    /// What a version tells about itself, without its content.
    pub async fn described(
        &self,
        repository: &str,
        name: &str,
        version: &str,
        access: &Access,
    ) -> Result<Published, SourceError> {
        let home = home(&chart(repository, name))?;
        let mut session = self.session(&home, access)?;
        let (_, manifest) = self.manifest(&mut session, &tagged(version)).await?;
        let bad = |reason: &str| not_a_package(&home, reason);
        let config = manifest.config.filter(|config| config.media_type == CHART_CONFIG);
        let config = config.ok_or_else(|| bad("its manifest has no configuration of a chart"))?;
        let expected = Digest::parse(&config.digest)
            .ok_or_else(|| bad("the digest of its configuration is not a sha256"))?;
        let url = below(&home, &["blobs", &config.digest])?;
        let answer = session.get(url.clone(), HeaderMap::new()).await?.good()?;
        let body = answer.whole(self.web.limits.document_bytes).await?;
        let actual = Digest::of(&body);
        if actual != expected {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            return Err(SourceError::DigestMismatch { url: url.to_string(), expected, actual });
        }
        let told: Option<Published> = serde_json::from_slice(&body).ok();
        let told = told.ok_or_else(|| bad("its configuration is not that of a chart"))?;
        if told.is_concise() { Ok(told) } else { Err(bad("its annotations for Chandler are too long")) }
    }

    pub(super) async fn versions(&self, session: &mut Session<'_>) -> Result<Vec<String>, SourceError> {
        let url = below(session.home, &["tags", "list"])?;
        let pages = self.pages::<Tags>(session, url).await?;
        Ok(pages.iter().flat_map(|page| page.tags.iter().flatten()).map(|tag| untagged(tag)).collect())
    }

    /// A list, page by page; the next page is where the registry says, but never elsewhere.
    async fn pages<P: DeserializeOwned>(
        &self,
        session: &mut Session<'_>,
        mut url: Url,
    ) -> Result<Vec<P>, SourceError> {
        url.set_query(Some(&format!("n={PER_PAGE}")));
        let mut pages = Vec::new();
        for _ in 0..MOST_PAGES {
            let answer = session.get(url.clone(), HeaderMap::new()).await?.good()?;
            let next = answer.header(LINK).and_then(next_page).and_then(|link| answer.url.join(link).ok());
            let body = answer.whole(self.web.limits.document_bytes).await?;
            let page = serde_json::from_slice(&body);
            pages.push(page.map_err(|_| not_a_package(&url, "its list cannot be read"))?);
            match next.filter(|next| next.origin() == session.home.origin()) {
                Some(next) => url = next,
                None => break,
            }
        }
        Ok(pages)
    }
}

fn chart(repository: &str, name: &str) -> PackageReference {
    PackageReference { repository: repository.to_owned(), name: name.to_owned(), version: None }
}

/// `<…>; rel="next"`
fn next_page(link: &str) -> Option<&str> {
    let (target, rest) = link.trim_start().strip_prefix('<')?.split_once('>')?;
    rest.contains("next").then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_links() {
        assert_eq!(
            next_page(r#"</v2/x/tags/list?last=b&n=2>; rel="next""#),
            Some("/v2/x/tags/list?last=b&n=2")
        );
        assert_eq!(next_page(r#"</v2/x>; rel="first""#), None);
        assert_eq!(next_page("nonsense"), None);
    }
}

//! Lists the repositories of a registry, and the versions of charts and their metadata.

use chandler_core::{digest::Digest, release::PackageReference};
use reqwest::{
    Url,
    header::{HeaderMap, LINK},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    MAX_LIST_BYTES, MAX_PAGES, PAGE_SIZE, Registries, endpoint_url, from_tag, not_a_chart, repository_url,
    session::Session, to_tag,
};
use crate::{Access, SourceError, index::ChartVersion};

const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Statuses of registries that do not list their repositories, or only for some users.
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
    /// Returns the names of the repositories directly below `parent`. They are not necessarily charts.
    pub async fn list_repositories(&self, parent: &str, access: &Access) -> Result<Vec<String>, SourceError> {
        let invalid = || SourceError::invalid_url(parent);
        let base_url = repository_url(&chart(parent, "x"))?.join("../").map_err(|_| invalid())?;
        let prefix = base_url.path().strip_prefix("/v2/").ok_or_else(invalid)?.to_owned();
        let url = base_url.join("/v2/_catalog").map_err(|_| invalid())?;
        let mut session = self.session(&base_url, access)?;
        let pages = self.pages::<Repositories>(&mut session, url).await;
        let pages = pages.map_err(|error| match error {
            SourceError::Status { status, .. } if NOT_LISTED.contains(&status) => {
                SourceError::NotListed { url: parent.to_owned(), status }
            }
            other => other,
        })?;
        let all = pages.into_iter().flat_map(|page| page.repositories.unwrap_or_default());
        let below = all.filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned));
        Ok(below.filter(|name| !name.is_empty() && !name.contains('/')).collect())
    }

    /// Returns all versions of a chart.
    pub async fn chart_versions(
        &self,
        repository: &str,
        name: &str,
        access: &Access,
    ) -> Result<Vec<String>, SourceError> {
        let base_url = repository_url(&chart(repository, name))?;
        self.versions(&mut self.session(&base_url, access)?).await
    }

    /// Returns the metadata of a version, without downloading the chart.
    pub async fn chart_metadata(
        &self,
        repository: &str,
        name: &str,
        version: &str,
        access: &Access,
    ) -> Result<ChartVersion, SourceError> {
        let base_url = repository_url(&chart(repository, name))?;
        let mut session = self.session(&base_url, access)?;
        let (_, manifest) = self.manifest(&mut session, &to_tag(version)).await?;
        let invalid = |reason: &str| not_a_chart(&base_url, reason);
        let config = manifest.config.filter(|config| config.media_type == CHART_CONFIG);
        let config = config.ok_or_else(|| invalid("its manifest has no chart config"))?;
        let expected = Digest::parse(&config.digest)
            .ok_or_else(|| invalid("the digest of its config is not a sha256"))?;
        let url = endpoint_url(&base_url, &["blobs", &config.digest])?;
        let response = session.get(url.clone(), HeaderMap::new()).await?.error_for_status()?;
        let body = response.bytes(self.http.limits.document_bytes).await?;
        let actual = Digest::of(&body);
        if actual != expected {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            return Err(SourceError::DigestMismatch { url: url.to_string(), expected, actual });
        }
        let metadata: Option<ChartVersion> = serde_json::from_slice(&body).ok();
        let metadata = metadata.ok_or_else(|| invalid("its config is not that of a chart"))?;
        if !metadata.has_valid_annotations() {
            return Err(invalid("its chandler.dev annotations are too long"));
        }
        Ok(metadata)
    }

    pub(super) async fn versions(&self, session: &mut Session<'_>) -> Result<Vec<String>, SourceError> {
        Ok(self.tags(session).await?.iter().map(|tag| from_tag(tag)).collect())
    }

    /// Returns all tags of the repository.
    pub(super) async fn tags(&self, session: &mut Session<'_>) -> Result<Vec<String>, SourceError> {
        let url = endpoint_url(session.base_url, &["tags", "list"])?;
        let pages = self.pages::<Tags>(session, url).await?;
        Ok(pages.into_iter().flat_map(|page| page.tags.unwrap_or_default()).collect())
    }

    /// Returns all pages of a list. Links to other origins are not followed.
    async fn pages<P: DeserializeOwned>(
        &self,
        session: &mut Session<'_>,
        mut url: Url,
    ) -> Result<Vec<P>, SourceError> {
        let (list, mut bytes) = (url.to_string(), 0);
        url.set_query(Some(&format!("n={PAGE_SIZE}")));
        let mut pages = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = session.get(url.clone(), HeaderMap::new()).await?.error_for_status()?;
            let next =
                response.header(LINK).and_then(next_page).and_then(|link| response.url.join(link).ok());
            let body = response.bytes(self.http.limits.document_bytes).await?;
            bytes += body.len() as u64;
            if bytes > MAX_LIST_BYTES {
                return Err(SourceError::TooLarge { url: list, limit: MAX_LIST_BYTES });
            }
            let page = serde_json::from_slice(&body);
            pages.push(page.map_err(|_| not_a_chart(&url, "its list is invalid"))?);
            match next.filter(|next| next.origin() == session.base_url.origin()) {
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

/// Returns the URL of a header `Link: <…>; rel="next"`.
fn next_page(link: &str) -> Option<&str> {
    let (target, rest) = link.trim_start().strip_prefix('<')?.split_once('>')?;
    rest.contains("next").then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_is_parsed_from_the_link_header() {
        assert_eq!(
            next_page(r#"</v2/x/tags/list?last=b&n=2>; rel="next""#),
            Some("/v2/x/tags/list?last=b&n=2")
        );
        assert_eq!(next_page(r#"</v2/x>; rel="first""#), None);
        assert_eq!(next_page("nonsense"), None);
    }
}

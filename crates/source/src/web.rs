//! Asks servers that nobody vouches for: only https, only allowed addresses, bounded in size and time, and credentials
//! go to the host they are meant for and to no other.

mod clients;
mod resolver;

use std::{net::IpAddr, sync::Arc, time::Duration};

use chandler_core::failure::root_cause;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION},
};
use tokio::time::Instant;

use self::clients::Clients;
use crate::{
    Access, SourceError,
    addresses::{AddressPolicy, RefusedAddress},
    limits::Limits,
};

const REDIRECTS: usize = 5;

/// The way out to all sources.
#[derive(Debug)]
pub(crate) struct Web {
    policy: Arc<AddressPolicy>,
    proxies: Matcher,
    clients: Clients,
    pub limits: Limits,
}

/// One question.
pub(crate) struct Ask<'a> {
    pub url: Url,
    /// The repository or registry that the credentials are for.
    pub home: &'a Url,
    pub access: &'a Access,
    pub authorization: Option<HeaderValue>,
    pub headers: HeaderMap,
}

/// An answer whose body is still to come.
pub(crate) struct Answer {
    pub url: Url,
    /// Whether it comes from the very host that the credentials are for.
    pub at_home: bool,
    response: reqwest::Response,
    deadline: Instant,
    limit: Duration,
}

impl Web {
    pub fn new(policy: AddressPolicy, proxies: Matcher, limits: Limits) -> Self {
        let policy = Arc::new(policy);
        Self { clients: Clients::new(policy.clone(), limits), policy, proxies, limits }
    }

    /// Asks, and follows redirects.
    pub async fn get(&self, ask: Ask<'_>) -> Result<Answer, SourceError> {
        let limit = self.limits.overall;
        let deadline = Instant::now() + limit;
        let mut url = ask.url.clone();
        for _ in 0..=REDIRECTS {
            let answer = self.step(&ask, url.clone(), None, deadline);
            let answer = tokio::time::timeout_at(deadline, answer).await;
            let answer = answer.map_err(|_| SourceError::TooSlow { url: ask.url.to_string(), limit })??;
            match redirect(&answer)? {
                Some(next) => url = next,
                None => return Ok(answer),
            }
        }
        Err(SourceError::Redirects { url: ask.url.to_string(), limit: REDIRECTS })
    }

    /// Sends a form. What is in it is for this address alone, so no redirect is followed.
    pub async fn post(&self, ask: Ask<'_>, form: &[(String, String)]) -> Result<Answer, SourceError> {
        let limit = self.limits.overall;
        let deadline = Instant::now() + limit;
        let answer = self.step(&ask, ask.url.clone(), Some(form), deadline);
        let answer = tokio::time::timeout_at(deadline, answer).await;
        answer.map_err(|_| SourceError::TooSlow { url: ask.url.to_string(), limit })?
    }

    async fn step(
        &self,
        ask: &Ask<'_>,
        url: Url,
        form: Option<&[(String, String)]>,
        deadline: Instant,
    ) -> Result<Answer, SourceError> {
        let proxy = url.as_str().parse().ok().and_then(|uri| self.proxies.intercept(&uri));
        self.check(&url, proxy.is_some())?;
        let at_home = url.origin() == ask.home.origin();
        let client = self.clients.get(ask.access, at_home, proxy.as_ref(), ask.home)?;
        let request = match form {
            Some(form) => client.post(url.clone()).form(form),
            None => client.get(url.clone()),
        };
        let mut request = request.headers(ask.headers.clone());
        if let Some(authorization) = ask.authorization.as_ref().filter(|_| at_home) {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let response = request.send().await.map_err(|error| failed(&url, &error))?;
        Ok(Answer { url, at_home, response, deadline, limit: self.limits.overall })
    }

    /// Names are checked when they are resolved, by the connection itself; a proxy resolves them out of our sight.
    fn check(&self, url: &Url, proxied: bool) -> Result<(), SourceError> {
        let host = url.host_str().unwrap_or_default();
        let plain = url.username().is_empty() && url.password().is_none();
        if url.scheme() != "https" || host.is_empty() || !plain {
            return Err(SourceError::BadAddress { url: shown(url) });
        }
        let bare = host.trim_matches(['[', ']']).trim_end_matches('.');
        let local = bare == "localhost" || bare.ends_with(".localhost");
        let address = match bare.parse::<IpAddr>() {
            Ok(address) => Some(address),
            Err(_) if local && proxied => Some(IpAddr::from([127, 0, 0, 1])),
            Err(_) => None,
        };
        let checked = address.map_or(Ok(()), |address| self.policy.check(bare, address));
        checked.map_err(|refused| SourceError::Refused { url: url.to_string(), refused })
    }
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn header(&self, name: impl reqwest::header::AsHeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Only a good answer is taken.
    pub fn good(self) -> Result<Self, SourceError> {
        let status = self.status();
        if status.is_success() {
            return Ok(self);
        }
        Err(SourceError::Status { url: self.url.to_string(), status: status.as_u16(), hint: hint(status) })
    }

    /// Hands over the body piece by piece, up to `limit` bytes.
    pub async fn each(
        mut self,
        limit: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let too_large = || SourceError::TooLarge { url: self.url.to_string(), limit };
        if self.response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut taken = 0;
        loop {
            let chunk = tokio::time::timeout_at(self.deadline, self.response.chunk()).await;
            let too_slow = || SourceError::TooSlow { url: self.url.to_string(), limit: self.limit };
            let chunk = chunk.map_err(|_| too_slow())?.map_err(|error| failed(&self.url, &error))?;
            let Some(chunk) = chunk else { return Ok(()) };
            taken += chunk.len() as u64;
            if taken > limit {
                return Err(too_large());
            }
            take(&chunk)?;
        }
    }

    /// The whole body.
    pub async fn whole(self, limit: u64) -> Result<Vec<u8>, SourceError> {
        let mut body = Vec::new();
        self.each(limit, |chunk| {
            body.extend_from_slice(chunk);
            Ok(())
        })
        .await?;
        Ok(body)
    }
}

fn redirect(answer: &Answer) -> Result<Option<Url>, SourceError> {
    let follows = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(target) = answer.header(LOCATION).filter(|_| follows) else { return Ok(None) };
    let next = answer.url.join(target).map_err(|_| SourceError::BadAddress { url: target.to_owned() })?;
    Ok(Some(next))
}

fn failed(url: &Url, error: &reqwest::Error) -> SourceError {
    if let Some(refused) = refused(error) {
        return SourceError::Refused { url: url.to_string(), refused: refused.clone() };
    }
    SourceError::Get { url: url.to_string(), reason: root_cause(error) }
}

/// The refusal of the resolver, inside whatever the layers above it made of it.
fn refused(error: &reqwest::Error) -> Option<&RefusedAddress> {
    let mut current: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = current {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        current = error.source();
    }
    None
}

/// An address without what is secret in it.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Addresses that have no place for them have none of them either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "check the credentials that the object names",
        404 | 410 => "there is nothing; check the repository's address, chart and version",
        407 => "the proxy wants credentials; put them in the manager's HTTPS_PROXY",
        429 => "it wants fewer requests; it is tried again later",
        500..=599 => "its server has a problem; it is tried again later",
        _ => "that is not what a repository answers; check its address",
    }
}

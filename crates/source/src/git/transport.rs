//! The HTTP transport of the Git library, over the HTTP client for untrusted servers.

use std::{any::Any, sync::Arc};

use gix_error::{ErrorExt as _, message};
use gix_transport::{
    Protocol,
    client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse, Transport},
};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::exchange::{Exchange, HttpsRemote, Request, RequestBody, ResponseBody, ResponseHeaders};
use crate::SourceError;

/// The first request of a connection, relative to the repository.
const ADVERTISEMENT: &str = "info/refs";

/// Sends the requests of the Git library.
pub(super) struct GitHttp {
    remote: Arc<HttpsRemote>,
    redirected: Option<String>,
}

impl HttpsRemote {
    /// Returns the transport. It connects with the first request.
    pub fn open(self: &Arc<Self>) -> Result<Transport<GitHttp>, SourceError> {
        let url = gix_url::Url::try_from(self.connection.url.as_str())
            .map_err(|error| self.connection.error(&error))?;
        let http = GitHttp { remote: self.clone(), redirected: None };
        Ok(Transport::new_http(http, url, Protocol::V2, false))
    }
}

impl GitHttp {
    fn exchange(
        &self,
        url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        body: Option<Vec<u8>>,
    ) -> gix_error::Result<Exchange> {
        let url: Url = url.parse().map_err(|_| message("the URL of a request is invalid").raise())?;
        let headers = header_map(headers)?;
        Ok(Exchange::new(self.remote.clone(), Request { url, headers, body }))
    }
}

impl Http for GitHttp {
    type Headers = ResponseHeaders;
    type ResponseBody = ResponseBody;
    type PostBody = RequestBody;

    fn get(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix_error::Result<GetResponse<ResponseHeaders, ResponseBody>> {
        let exchange = self.exchange(url, headers, None)?;
        let answered = exchange.read(|response| Ok(response.url.clone()));
        let answered = answered.map_err(|_| message("the request failed").raise())?;
        self.redirected = base_of(&answered);
        Ok(GetResponse { headers: ResponseHeaders::new(exchange.clone()), body: ResponseBody::new(exchange) })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix_error::Result<PostResponse<ResponseHeaders, ResponseBody, RequestBody>> {
        let exchange = self.exchange(url, headers, Some(Vec::new()))?;
        Ok(PostResponse {
            post_body: RequestBody(exchange.clone()),
            headers: ResponseHeaders::new(exchange.clone()),
            body: ResponseBody::new(exchange),
        })
    }

    fn configure(&mut self, _config: &dyn Any) -> gix_error::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.redirected.clone()
    }
}

/// Returns the URL of the repository that answered the first request, which may have been redirected.
fn base_of(answered: &Url) -> Option<String> {
    let (base, _) = answered.as_str().rsplit_once(ADVERTISEMENT)?;
    Some(base.trim_end_matches('/').to_owned())
}

/// Parses headers such as `Accept: text/plain`.
fn header_map(headers: impl IntoIterator<Item = impl AsRef<str>>) -> gix_error::Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for header in headers {
        let parsed = header.as_ref().split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) = parsed.ok_or_else(|| message("a header of a request is invalid").raise())?;
        map.append(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_moves_the_repository() {
        let rows = [
            (
                "https://git.example/a.git/info/refs?service=git-upload-pack",
                Some("https://git.example/a.git"),
            ),
            ("https://git.example/login", None),
        ];
        for (answered, expected) in rows {
            assert_eq!(base_of(&answered.parse().unwrap()).as_deref(), expected);
        }
    }

    #[test]
    fn headers_are_parsed() {
        let map = header_map(["User-Agent: git/oxide", "Git-Protocol: version=2"]).unwrap();
        assert_eq!(map["git-protocol"], "version=2");
        assert!(header_map(["nonsense"]).is_err());
        assert!(header_map(["a: b\nc: d"]).is_err());
    }
}

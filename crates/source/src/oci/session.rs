//! Authenticated requests to one repository of a registry.

use reqwest::{
    StatusCode, Url,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;

use super::challenge::Challenge;
use crate::{
    Access, SourceError,
    access::Authorization,
    http::{HttpClient, HttpRequest, HttpResponse},
};

pub(crate) struct Session<'a> {
    http: &'a HttpClient,
    pub base_url: &'a Url,
    access: &'a Access,
    credentials: Option<Authorization>,
    /// The authorization header, once the registry has requested one.
    authorization: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Session<'a> {
    pub fn new(http: &'a HttpClient, base_url: &'a Url, access: &'a Access) -> Result<Self, SourceError> {
        Ok(Self { http, base_url, access, credentials: access.authorization(base_url)?, authorization: None })
    }

    /// Sends a GET request. If the registry responds with a challenge, authenticates once and repeats the request.
    pub async fn get(&mut self, url: Url, headers: HeaderMap) -> Result<HttpResponse, SourceError> {
        let response = self.request(url.clone(), headers.clone()).await?;
        // Challenges of other hosts, after a redirect, are ignored.
        let is_challenge = response.status() == StatusCode::UNAUTHORIZED && response.is_same_origin;
        if !is_challenge || self.authorization.is_some() {
            return Ok(response);
        }
        let challenge = response.header(WWW_AUTHENTICATE).and_then(Challenge::parse);
        let authorization = match (challenge, &self.credentials) {
            (Some(Challenge::Basic), Some(credentials @ Authorization::Basic(..)))
            | (_, Some(credentials @ Authorization::Bearer(_))) => credentials.clone(),
            (Some(Challenge::Bearer(realm)), Some(Authorization::IdentityToken(token))) => {
                self.exchange_identity_token(realm, token).await?
            }
            (Some(Challenge::Bearer(realm)), _) => self.request_token(realm).await?,
            _ => return Ok(response),
        };
        self.authorization = authorization.header();
        self.request(url, headers).await
    }

    async fn request(&self, url: Url, headers: HeaderMap) -> Result<HttpResponse, SourceError> {
        let authorization = self.authorization.clone();
        self.http
            .get(HttpRequest { url, base_url: self.base_url, access: self.access, authorization, headers })
            .await
    }

    /// Requests a token from the realm that the registry names, which may be another host. The credentials of the registry are
    /// sent to it over https.
    async fn request_token(&self, realm: Url) -> Result<Authorization, SourceError> {
        let authorization = self.credentials.as_ref().and_then(Authorization::header);
        let access = self.access_for(&realm);
        let request = HttpRequest {
            url: realm.clone(),
            base_url: &realm,
            access: &access,
            authorization,
            headers: HeaderMap::new(),
        };
        self.read_token(self.http.get(request).await?, &realm).await
    }

    /// Exchanges an identity token for an access token, as in OAuth 2. It is sent in the body, and redirects are not followed.
    async fn exchange_identity_token(&self, realm: Url, token: &str) -> Result<Authorization, SourceError> {
        let mut form: Vec<(String, String)> = realm.query_pairs().into_owned().collect();
        let grant = [("grant_type", "refresh_token"), ("client_id", "chandler"), ("refresh_token", token)];
        form.extend(grant.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut url = realm;
        url.set_query(None);
        let access = self.access_for(&url);
        let request = HttpRequest {
            url: url.clone(),
            base_url: &url,
            access: &access,
            authorization: None,
            headers: HeaderMap::new(),
        };
        self.read_token(self.http.post(request, &form).await?, &url).await
    }

    /// Returns the access for the realm. The client certificate is only sent to the registry itself.
    fn access_for(&self, realm: &Url) -> Access {
        let is_same_origin = realm.origin() == self.base_url.origin();
        if is_same_origin { self.access.clone() } else { self.access.without_client_certificate() }
    }

    async fn read_token(&self, response: HttpResponse, realm: &Url) -> Result<Authorization, SourceError> {
        let body = response.error_for_status()?.bytes(self.http.limits.document_bytes).await?;
        let token: Option<Token> = serde_json::from_slice(&body).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        token.map(Authorization::Bearer).ok_or_else(|| SourceError::RequestFailed {
            url: realm.to_string(),
            reason: "the response contains no token".to_owned(),
        })
    }
}

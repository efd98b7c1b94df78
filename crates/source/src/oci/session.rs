//! Requests to one repository of a registry, with what it takes to be let in.

use reqwest::{
    StatusCode, Url,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use serde::Deserialize;

use super::challenge::Challenge;
use crate::{
    Access, SourceError,
    access::Authorization,
    web::{Answer, Ask, Web},
};

pub(crate) struct Session<'a> {
    web: &'a Web,
    pub home: &'a Url,
    access: &'a Access,
    credentials: Option<Authorization>,
    /// What the registry has accepted.
    accepted: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Session<'a> {
    pub fn new(web: &'a Web, home: &'a Url, access: &'a Access) -> Result<Self, SourceError> {
        Ok(Self { web, home, access, credentials: access.authorization(home)?, accepted: None })
    }

    /// Asks, and does once what the registry wants before it answers.
    pub async fn get(&mut self, url: Url, headers: HeaderMap) -> Result<Answer, SourceError> {
        let answer = self.ask(url.clone(), headers.clone()).await?;
        // Only the registry itself may ask who we are, not whoever it redirects to.
        if answer.status() != StatusCode::UNAUTHORIZED || !answer.at_home || self.accepted.is_some() {
            return Ok(answer);
        }
        let challenge = answer.header(WWW_AUTHENTICATE).and_then(Challenge::parse);
        let authorization = match (challenge, &self.credentials) {
            (Some(Challenge::Basic), Some(credentials @ Authorization::Basic(..)))
            | (_, Some(credentials @ Authorization::Bearer(_))) => credentials.clone(),
            (Some(Challenge::Bearer(realm)), Some(Authorization::Identity(token))) => {
                self.exchanged(realm, token).await?
            }
            (Some(Challenge::Bearer(realm)), _) => self.token(realm).await?,
            _ => return Ok(answer),
        };
        self.accepted = authorization.header();
        self.ask(url, headers).await
    }

    async fn ask(&self, url: Url, headers: HeaderMap) -> Result<Answer, SourceError> {
        let authorization = self.accepted.clone();
        self.web.get(Ask { url, home: self.home, access: self.access, authorization, headers }).await
    }

    /// The registry may trust another host with its logins; whoever it names gets those for this registry, over https.
    async fn token(&self, realm: Url) -> Result<Authorization, SourceError> {
        let authorization = self.credentials.as_ref().and_then(Authorization::header);
        let access = self.access_at(&realm);
        let ask = Ask {
            url: realm.clone(),
            home: &realm,
            access: &access,
            authorization,
            headers: HeaderMap::new(),
        };
        self.granted(self.web.get(ask).await?, &realm).await
    }

    /// As OAuth 2 has it: an identity token is shown where tokens are given out, in the body, and never along a redirect.
    async fn exchanged(&self, realm: Url, token: &str) -> Result<Authorization, SourceError> {
        let mut form: Vec<(String, String)> = realm.query_pairs().into_owned().collect();
        let grant = [("grant_type", "refresh_token"), ("client_id", "chandler"), ("refresh_token", token)];
        form.extend(grant.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut url = realm;
        url.set_query(None);
        let access = self.access_at(&url);
        let ask = Ask {
            url: url.clone(),
            home: &url,
            access: &access,
            authorization: None,
            headers: HeaderMap::new(),
        };
        self.granted(self.web.post(ask, &form).await?, &url).await
    }

    /// The certificate is for the registry alone.
    fn access_at(&self, realm: &Url) -> Access {
        let at_home = realm.origin() == self.home.origin();
        if at_home { self.access.clone() } else { self.access.without_identity() }
    }

    async fn granted(&self, answer: Answer, realm: &Url) -> Result<Authorization, SourceError> {
        let body = answer.good()?.whole(self.web.limits.document_bytes).await?;
        let token: Option<Token> = serde_json::from_slice(&body).ok();
        let token = token.and_then(|token| token.token.or(token.access_token));
        token.map(Authorization::Bearer).ok_or_else(|| SourceError::Get {
            url: realm.to_string(),
            reason: "its answer holds no token".to_owned(),
        })
    }
}

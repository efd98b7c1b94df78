//! What a new kubeconfig, or an outage, means for the watches.

use chandler_core::target::TargetAuth;

use super::*;

#[tokio::test]
async fn states_stay_valid_while_the_watches_are_paused() {
    let (server, mut watched) = Watched::with_deployment().await;
    server.until_watched(DEPLOYMENTS, true).await;
    watched.connect();

    watched.health.pause();
    server.until_watched(DEPLOYMENTS, false).await;
    assert_eq!(
        server.requests(DEPLOYMENTS, 2).await.len(),
        2,
        "a reconnect with the same kubeconfig changes nothing"
    );
    assert_eq!(watched.deployment(), Some(ObjectState::Healthy));

    watched.connect();
    server.until_watched(DEPLOYMENTS, true).await;
    server.send(DEPLOYMENTS, "MODIFIED", &deployment("8", 0)).await;
    watched.notified().await;
    assert!(matches!(watched.deployment(), Some(ObjectState::Progressing(_))));
    let requests = server.requests(DEPLOYMENTS, 3).await;
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(requests[2].is_watch() && requests[2].query.contains("resourceVersion=5"), "{requests:?}");
}

#[tokio::test]
async fn renewed_credentials_continue_the_watches() {
    let (server, mut watched) = Watched::with_deployment().await;
    server.send(DEPLOYMENTS, "MODIFIED", &deployment("6", 0)).await;
    watched.notified().await;

    let renew = |watched: &mut Watched, server: &ApiServer, token: &str| {
        let mut target = Target::clone(&watched.target);
        target.auth = Some(TargetAuth::BearerToken(token.to_owned()));
        target.server.clone_from(&server.url);
        target.tls.ca_pem = Some(server.ca.as_bytes().to_vec());
        watched.target = Arc::new(target);
        watched.connect();
    };
    renew(&mut watched, &server, "new");
    let requests = server.requests(DEPLOYMENTS, 3).await;
    assert!(requests[2].is_watch() && requests[2].query.contains("resourceVersion=6"), "{requests:?}");

    // If the changes since then are not available any more, the objects are listed.
    server.until_watched(DEPLOYMENTS, true).await;
    server.refuse_watch(DEPLOYMENTS, 410);
    server.list(DEPLOYMENTS, "9", &[deployment("8", 1)]);
    renew(&mut watched, &server, "newer");
    watched.notified().await;
    assert_eq!(watched.deployment(), Some(ObjectState::Healthy));

    let other = ApiServer::start(H2).await;
    other.list(DEPLOYMENTS, "3", &[deployment("2", 0)]);
    renew(&mut watched, &other, "newer");
    watched.notified().await;
    let requests = other.requests(DEPLOYMENTS, 2).await;
    assert!(!requests[0].is_watch(), "another server is listed first: {requests:?}");
}

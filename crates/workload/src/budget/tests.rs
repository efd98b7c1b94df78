use std::time::Duration;

use super::*;
use crate::response::MAX_RESPONSE;

fn cluster(budgets: &ResponseBudgets, name: &str) -> ClusterBudget {
    budgets.cluster(&ClusterKey::new("fleet", name))
}

#[tokio::test(start_paused = true)]
async fn one_cluster_leaves_memory_for_the_others_of_its_namespace() {
    let budgets = ResponseBudgets::default();
    let (hostile, innocent) = (cluster(&budgets, "hostile"), cluster(&budgets, "innocent"));
    let mut held = Vec::new();
    for _ in 0..CLUSTER.small {
        held.push(hostile.begin().await.unwrap());
    }
    assert!(hostile.begin().await.is_err(), "it waits for its own responses");
    held[0].extend(SMALL + CLUSTER.large / 2).unwrap();
    assert!(held[1].extend(SMALL + CLUSTER.large).is_err());
    let mut response = innocent.begin().await.unwrap();
    assert_eq!(response.extend(SMALL + CLUSTER.large / 2), Ok(()));
    let mut event = innocent.event();
    assert_eq!(event.extend(CLUSTER.events / 2), Ok(()));
    assert!(
        cluster(&budgets, "hostile").begin().await.is_err(),
        "a new client shares the budget of the cluster"
    );
    drop(held);
    assert!(hostile.begin().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_leaves_memory_for_the_others() {
    let budgets = ResponseBudgets::default();
    let mut held = Vec::new();
    for number in 0..NAMESPACE.large / CLUSTER.large {
        held.push(cluster(&budgets, &number.to_string()).whole(MAX_RESPONSE).await.unwrap());
    }
    let next = cluster(&budgets, "next");
    let mut small = next.begin().await.expect("small responses do not wait for large ones");
    let busy = small.extend(SMALL + 1).unwrap_err();
    assert!(busy.to_string().contains("namespace fleet"), "{busy}");
    let other = budgets.cluster(&ClusterKey::new("other", "next"));
    assert!(other.whole(MAX_RESPONSE).await.is_ok());

    // It gets the memory as soon as another response has been read.
    drop(small);
    let waiting = tokio::spawn(async move { next.whole(MAX_RESPONSE).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    held.pop();
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_total_is_limited_and_all_responses_are_read_at_last() {
    let budgets = ResponseBudgets::default();
    let mut reads = tokio::task::JoinSet::new();
    for number in 0..200 {
        let budgets = budgets.clone();
        reads.spawn(async move {
            let key = ClusterKey::new(format!("namespace-{}", number % 20), format!("cluster-{number}"));
            let budget = budgets.cluster(&key);
            loop {
                let Ok(mut grant) = budget.begin().await else { continue };
                tokio::time::sleep(Duration::from_millis(10)).await;
                if grant.extend(MAX_RESPONSE).is_err() {
                    drop(grant);
                    let Ok(whole) = budget.whole(MAX_RESPONSE).await else { continue };
                    grant = whole;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                drop(grant);
                break;
            }
        });
    }
    tokio::time::timeout(Duration::from_mins(5), reads.join_all()).await.expect("no response waits for ever");
    let total = &budgets.0.total;
    assert_eq!(
        (total.small.available_permits(), total.large.available_permits()),
        (TOTAL.small, TOTAL.large >> 10)
    );
}

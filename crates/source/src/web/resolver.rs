//! Resolves names, and leaves out what may not be connected to: what is checked is what is connected to.

use std::{net::SocketAddr, sync::Arc};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::addresses::AddressPolicy;

pub(super) struct CheckedResolver {
    pub policy: Arc<AddressPolicy>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (mut usable, mut refusal) = (Vec::<SocketAddr>::new(), None);
            for address in found {
                match policy.check(name.as_str(), address.ip()) {
                    Ok(()) => usable.push(address),
                    Err(refused) => refusal = Some(refused),
                }
            }
            match refusal {
                Some(refused) if usable.is_empty() => Err(refused.into()),
                _ => Ok(Box::new(usable.into_iter()) as Addrs),
            }
        })
    }
}

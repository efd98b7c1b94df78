//! The values of releases: layers of parameters, and Secrets for values that contain data of Secrets.

mod layers;
mod secrets;

pub use self::{
    layers::{ClusterParameters, LayerBuilder, values_data},
    secrets::{ToStore, ValuesSecrets},
};

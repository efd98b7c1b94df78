use super::Reason;
use crate::string_enum::string_enum;

string_enum! {
    /// The reason of a condition of a FleetAddonConfig.
    pub enum FleetReason {
        Ready = "Ready",
        /// The management cluster does not serve Fleet's kinds.
        FleetNotInstalled = "FleetNotInstalled",
        InvalidSpec = "InvalidSpec",
        /// Fields are set that Chandler does not act upon.
        NotSupported = "NotSupported",
    }
}

impl From<FleetReason> for Reason {
    fn from(reason: FleetReason) -> Self {
        Self(reason.as_str())
    }
}

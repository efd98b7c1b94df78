mod cases;
mod fixtures;
mod properties;
mod upgrades;

mod cases;
mod complexity;
mod fixtures;
mod properties;
mod upgrades;

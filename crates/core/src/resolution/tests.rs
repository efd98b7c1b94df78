mod cases;
mod laws;
mod upgrades;
mod world;

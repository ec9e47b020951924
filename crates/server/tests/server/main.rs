//! The whole server over real sockets, each test on both drivers, with a WebSocket client that is not ours.

mod support;

mod api;
mod api_bounds;
mod crowded;
mod disk_history;
mod draining;
mod hand_back;
mod hand_over;
mod hostile;
mod lifecycle;
mod limits;
mod metrics;
mod pages;
mod publish;
mod reload;
mod routes;
mod strangers;
mod streams;
mod tables;
mod tls;
mod tokens;
mod users;
mod webhooks;

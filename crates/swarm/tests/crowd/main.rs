//! The crowd over real sockets, a file for each behaviour. They are one program: each further one takes
//! seconds to compile and link.

mod api;
mod churn;
mod connections;
mod echoes;
mod faults;
mod flows;
mod http;
mod own_heads;
mod pushes;
mod requests;
mod session_flows;
mod sessions;
mod storms;
mod support;
mod talk;
mod tcp;

//! The far side of a connection: a peer asks us to connect to a server here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farhaul_tunnel::{OpenRequest, Payload, Refusal, Target};
use tokio::net::TcpStream;

use crate::config::meaning::ClientAddress;
use crate::dial::{self, DialFailure, Source};
use crate::event::{Event, Reason, refusal_code};
use crate::flow::{Facing, carry};
use crate::flow_table::FlowInfo;
use crate::gateway::Gateway;
use crate::near::text;
use crate::session::{Incoming, Session};

/// A name that does not resolve within this time does not resolve.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

impl Gateway {
    /// Connects to the server, answers the near side and carries the flow.
    pub(crate) async fn fulfil(self: Arc<Self>, session: Arc<Session>, incoming: Incoming) {
        let request = incoming.request.clone();
        let info = FlowInfo {
            peer: session.peer.clone(),
            client: request.client,
            destination: text(&request.target),
            rule: "far side".to_owned(),
            class: request.class,
            reason: Reason::Optimised,
            facing: Facing::Server,
            writes_behind: true,
        };
        if self.has_drained() {
            return incoming.refuse(&session, Refusal::Draining);
        }
        let is_plain = request.payload == Payload::Plain;
        if !is_plain && session.reduction().is_none() {
            return incoming.refuse(&session, Refusal::Internal);
        }
        let Ok(entry) = self.flows.enter(info) else {
            return incoming.refuse(&session, Refusal::Overload);
        };
        let stream = match self.connect(&request).await {
            Ok(stream) => stream,
            Err(why) => {
                self.events.emit(Event::OpenFailed {
                    client: request.client,
                    destination: text(&request.target),
                    refusal: refusal_code(why),
                });
                return incoming.refuse(&session, why);
            }
        };
        let entry = self.announced(entry);
        let flow = incoming.accept(&session);
        let nothing = Bytes::new();
        let end = carry(stream, Facing::Server, nothing, &flow, &entry, &self.events).await;
        entry.conclude(end);
    }

    async fn connect(&self, request: &OpenRequest) -> Result<TcpStream, Refusal> {
        let config = self.config();
        let own = dial::own_addresses();
        let mut last = Refusal::NameNotFound;
        for destination in resolve(&request.target).await? {
            if let Err(forbidden) = dial::permitted(destination, &config.accept, &own) {
                self.trouble(destination, &forbidden);
                last = Refusal::Policy;
                continue;
            }
            let keep = request.keep_client_address
                && config.intercept.client_address == ClientAddress::Keep
                && same_family(request.client.ip(), destination.ip());
            if keep && let Some(off) = self.health().off {
                // Its answers would not come here, whatever the routes of the site.
                self.trouble(destination, &off);
                last = Refusal::Internal;
                continue;
            }
            let source = if keep {
                Source::Client(request.client)
            } else {
                Source::Gateway
            };
            match dial::dial(destination, source, config.tunnel.open_timeout).await {
                Ok(stream) => return Ok(stream),
                Err(failure) => last = self.refusal(destination, &failure),
            }
        }
        Err(last)
    }

    fn refusal(&self, destination: SocketAddr, failure: &DialFailure) -> Refusal {
        match failure {
            DialFailure::Refused => Refusal::Refused,
            DialFailure::HostUnreachable => Refusal::HostUnreachable,
            DialFailure::NetworkUnreachable => Refusal::NetworkUnreachable,
            DialFailure::TimedOut => Refusal::TimedOut,
            DialFailure::AsymmetricReturn { .. } => {
                self.trouble(destination, failure);
                Refusal::AsymmetricReturn
            }
            _ => {
                self.trouble(destination, failure);
                Refusal::Internal
            }
        }
    }

    fn trouble(&self, destination: SocketAddr, what: &dyn std::fmt::Display) {
        let what = format!("{destination}: {what}");
        self.events.emit(Event::Trouble {
            part: "dial".to_owned(),
            what,
        });
    }
}

async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
    match target {
        Target::Address(address) => Ok(vec![*address]),
        Target::Host { name, port } => {
            let lookup = tokio::net::lookup_host((name.as_str(), *port));
            match tokio::time::timeout(RESOLVE_MAX, lookup).await {
                Ok(Ok(addresses)) => Ok(addresses.take(4).collect()),
                _ => Err(Refusal::NameNotFound),
            }
        }
    }
}

fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical().is_ipv4() == b.to_canonical().is_ipv4()
}

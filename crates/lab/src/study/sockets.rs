//! How client and server send and receive: by which congestion control, and into which buffers. As the kernel says, not as the plan does.

use crate::demo::fetch::parse_ss;
use crate::demo::servers::SMB_PORT;
use crate::deployment::Lab;
use crate::netns::Namespace;
use crate::probe::host::HostFacts;

/// As far as it has been seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sockets {
    /// Of the socket that the server accepted.
    pub(super) server: Option<String>,
    /// Of the one that the client opened.
    pub(super) client: Option<String>,
    /// `net.ipv4.tcp_rmem` of both, least, first and greatest: without gateways it bounds the window of who receives.
    pub(super) server_buffers: Option<[u64; 3]>,
    pub(super) client_buffers: Option<[u64; 3]>,
}

impl Sockets {
    /// Of hosts that have not sent anything yet.
    pub(super) fn of(lab: &Lab) -> Self {
        let buffers = |host: Option<Namespace>| {
            let facts = host?.within(HostFacts::here).ok()?;
            facts.receive_buffer_bytes
        };
        Self {
            server_buffers: buffers(lab.server().ok()),
            client_buffers: buffers(lab.client().ok()),
            ..Self::default()
        }
    }

    /// Looks at what is not known yet, while the client runs.
    pub(super) fn look(&mut self, lab: &Lab) {
        let control = |host: Option<Namespace>, which: &str| {
            let filter = format!("{which} = :{SMB_PORT}");
            let shown = host?.exec(&["ss", "-tinH", &filter]).ok()?;
            Some(parse_ss(&shown)?.1)
        };
        if self.server.is_none() {
            self.server = control(lab.server().ok(), "sport");
        }
        if self.client.is_none() {
            self.client = control(lab.client().ok(), "dport");
        }
    }

    /// What differs from what the plan wants.
    pub(super) fn wrong(&self, wanted: &str) -> Vec<String> {
        let ends = [("server", &self.server), ("client", &self.client)];
        let others = ends.into_iter().filter_map(|(who, control)| {
            let other = control.as_ref().filter(|control| *control != wanted)?;
            Some(format!("the {who} sends by {other}, not by {wanted}"))
        });
        others.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_congestion_control_than_the_plans_is_named() {
        let sockets = Sockets {
            server: Some("bbr".to_owned()),
            client: Some("cubic".to_owned()),
            ..Sockets::default()
        };
        assert_eq!(
            sockets.wrong("cubic"),
            ["the server sends by bbr, not by cubic"]
        );
        assert!(
            Sockets::default().wrong("cubic").is_empty(),
            "nobody looked"
        );
    }
}

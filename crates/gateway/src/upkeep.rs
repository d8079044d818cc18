//! What is told of interception that others break.

use crate::event::Event;
use crate::gateway::Gateway;
use crate::intercept::Health;
use crate::lock::lock;

impl Gateway {
    /// Takes note of how interception fares, and tells what is new.
    pub(crate) fn note_health(&self, now: Health) {
        let before = std::mem::replace(&mut *lock(&self.health), now.clone());
        for event in news(&before, &now) {
            self.events.emit(event);
        }
    }

    /// How interception fares.
    pub(crate) fn health(&self) -> Health {
        lock(&self.health).clone()
    }
}

fn news(before: &Health, now: &Health) -> Vec<Event> {
    let trouble = |what: String| Event::Trouble {
        part: "intercept".to_owned(),
        what,
    };
    let mut news = Vec::new();
    match (&before.off, &now.off) {
        (None, None) if before.restored != now.restored => news.push(trouble(
            "rules that others had removed are back; see that firewall scripts keep the gateway's, and \
             systemd-networkd as well (ManageForeignRoutes=no, ManageForeignRoutingPolicyRules=no)"
                .to_owned(),
        )),
        (Some(_), None) => news.push(Event::Intercepting {
            on: true,
            why: "the rules are back".to_owned(),
        }),
        (before, Some(why)) if before.as_ref() != Some(why) => news.push(Event::Intercepting {
            on: false,
            why: why.clone(),
        }),
        _ => {}
    }
    if now.without_v6 && !before.without_v6 {
        news.push(trouble(
            "IPv6 is off on the loopback interface now, so IPv6 connections are no longer intercepted: \
             `sysctl -w net.ipv6.conf.lo.disable_ipv6=0`, then restart the gateway"
                .to_owned(),
        ));
    }
    if let Some(why) = now
        .unguarded
        .as_ref()
        .filter(|_| before.unguarded.is_none())
    {
        news.push(trouble(unguarded(why)));
    }
    news
}

/// What follows from having no guard.
pub(crate) fn unguarded(why: &str) -> String {
    format!("if this gateway is killed, its rules stay until it starts again: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_told_once() {
        let well = Health::default();
        let restored = Health {
            restored: 1,
            ..Health::default()
        };
        let off = |why: &str| Health {
            off: Some(why.to_owned()),
            ..restored.clone()
        };
        let told = |before: &Health, now: &Health| -> Vec<String> {
            news(before, now).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(&well, &well), Vec::<String>::new());
        assert!(told(&well, &restored)[0].contains("rules that others had removed are back"));
        assert_eq!(
            told(&restored, &off("no nft")),
            ["interception off: no nft"]
        );
        assert_eq!(told(&off("no nft"), &off("no nft")), Vec::<String>::new());
        assert_eq!(
            told(&off("no nft"), &off("no ip")),
            ["interception off: no ip"]
        );
        let back = Health {
            restored: 2,
            ..Health::default()
        };
        assert_eq!(
            told(&off("no ip"), &back),
            ["interception on: the rules are back"]
        );
        let unguarded = Health {
            unguarded: Some("no fork".to_owned()),
            ..well.clone()
        };
        assert!(told(&well, &unguarded)[0].contains("no fork"));
        let without_v6 = Health {
            without_v6: true,
            ..well.clone()
        };
        assert!(told(&well, &without_v6)[0].contains("disable_ipv6"));
    }
}
